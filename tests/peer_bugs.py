"""docs/peer-bugs.md as tests read it: which known bug is put back into our code, and what sees it."""

from pathlib import Path

TABLE = (Path(__file__).parents[1] / "docs" / "peer-bugs.md").read_text()


def seen_by() -> dict[str, str]:
    """Mutant to what sees it: a scenario, the seed of a random life, or a test of `tests/cluster`."""
    rows = (line.strip("| ").split("|") for line in TABLE.splitlines() if line.startswith("| `"))
    return {cells[0].strip(" `"): cells[-1].strip(" `") for cells in rows}

"""`make generate` calls this: docs/reference/values.md from the chart's values.yaml and the comments in it."""

from collections.abc import Iterator
from pathlib import Path

import yaml

VALUES = Path(__file__).parents[1] / "charts" / "trainmaster" / "values.yaml"
PAGE = Path(__file__).parent / "reference" / "values.md"
_HEAD = """<!-- Generated from charts/trainmaster/values.yaml by `make generate`. Do not edit. -->
# Values of the chart

`helm show values charts/trainmaster` prints the file itself. A value that is not here is refused.

| value | default | meaning |
|---|---|---|
"""


def values_page() -> str:
    """Return the page: a row for each value."""
    return _HEAD + "".join(f"| `{path}` | `{default}` | {text} |\n" for path, default, text in _rows())


def _rows() -> Iterator[tuple[str, str, str]]:
    """Yield path, default and comment of each value; one without a comment has that of the value before it."""
    defaults = yaml.safe_load(VALUES.read_text())
    comment: list[str] = []
    path: list[str] = []
    said = ""
    for line in VALUES.read_text().splitlines():
        words = line.strip()
        if not words:
            comment = []
        elif words.startswith("#"):
            comment.append(words.lstrip("# "))
        else:
            depth = (len(line) - len(line.lstrip())) // 2
            path = [*path[:depth], words.partition(":")[0]]
            value = _at(defaults, path)
            if isinstance(value, dict) and value and words.endswith(":"):
                continue  # its members have rows
            said, comment = " ".join(comment) or said, []
            yield ".".join(path), yaml.safe_dump(value, default_flow_style=True, width=10_000).split("\n")[0], said


def _at(values: object, path: list[str]) -> object:
    for name in path:
        values = values.get(name) if isinstance(values, dict) else None
    return values


if __name__ == "__main__":
    PAGE.write_text(values_page())

"""`make generate` calls this: draws docs/states.md from the table of phases (operator/trainmaster/core/phases.py)."""

from pathlib import Path

from trainmaster.core import phases

PAGE = Path(__file__).parent / "states.md"

_HEAD = """# The phases of a job

Drawn from `operator/trainmaster/core/phases.py` by `make generate`; not edited by hand. Succeeded and Failed are for
ever: nothing that happens to the pods afterwards changes them.

"""


def states_page() -> str:
    """The page: a diagram, and the same as a table for readers without one."""
    steps = [(phase, after, why) for phase in phases.STEPS for after, why in phases.next_phases(phase)]
    diagram = [f"    {phase} --> {after}: {why}" for phase, after, why in steps]
    ends = [f"    {phase} --> [*]" for phase in sorted(phases.TERMINAL)]
    rows = [f"| {phase} | {after} | {why} |" for phase, after, why in steps]
    return "\n".join(
        [
            _HEAD + "```mermaid",
            "stateDiagram-v2",
            f"    [*] --> {phases.PENDING}",
            *diagram,
            *ends,
            "```",
            "",
            "| from | to | when |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(states_page())

"""`make generate` calls this: docs/troubleshooting.md, the failure table and the obstacles of a start by symptom."""

from collections.abc import Iterator
from pathlib import Path

from trainmaster.core.failures import classes
from trainmaster.core.situation import obstacles

PAGE = Path(__file__).parent / "troubleshooting.md"

# What a user sees, and the classes that it may be. Each class is in one place; a test holds it.
SYMPTOMS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "The program ends with an error, or too early",
        (classes.CONFIGURATION, classes.PYTHON_ERROR, classes.PROCESS_EXIT, classes.ENDED_EARLY),
    ),
    (
        "Memory or storage runs out",
        (classes.OUT_OF_MEMORY, classes.DEVICE_OUT_OF_MEMORY, classes.DATA_WORKER_DIED, classes.OUT_OF_STORAGE),
    ),
    ("A process crashes or is killed", (classes.CRASH, classes.SIGNAL, classes.TERMINATED)),
    ("Nothing moves: no step ends", (classes.HANG, classes.STALLED, classes.PEER_LOST)),
    (
        "The loss is NaN, or what was saved is wrong",
        (classes.NON_FINITE_LOSS, classes.COPIES_DIFFER, classes.CORRUPT_CHECKPOINT),
    ),
    (
        "A device, a node or a service is broken",
        (classes.DEVICE_FAULT, classes.INFRASTRUCTURE, classes.SERVICE_UNAVAILABLE),
    ),
    (
        "Pods or agents go away",
        (
            classes.AGENT_FAILED,
            classes.REPLICA_ENDED,
            classes.REPLICA_DELETED,
            classes.DISRUPTION,
            classes.ROSTER_CHANGED,
        ),
    ),
)

_HEAD = """# Troubleshooting by symptom

Written by `make generate` from the failure table (`operator/trainmaster/core/failures/classes.py`) and the obstacles of
a start.

Look here first, in this order:

1. `trainmaster check job.yaml` finds mistakes before anything runs, each with its line and its cure.
2. `trainmaster status NAME` (or `kubectl describe tj NAME`) has the last message, what is in the way, and the restarts.
3. `trainmaster explain DIR` tells the story of a run: what died, the evidence, what was decided and why.
4. `trainmaster logs NAME --all` has what the ranks print; `--previous` that of the pod before,
   `--history` those of all attempts, also after the end.

The class of a failure is in `.status.restarts`, in `explain` and in the event `Restarting`.

"""


def troubleshooting_page() -> str:
    """Return the page: a section for each symptom, then what keeps a job from starting."""
    rows = {row.name: row for row in classes.CLASSES}
    lines: list[str] = []
    for symptom, names in SYMPTOMS:
        lines += [f"## {symptom}", ""]
        for name in names:
            lines += _class(rows[name])
    return _HEAD + "\n".join([*lines, *_obstacles()])


def advice(row: classes.FailureClass) -> str:
    """Return what to do about a failure of a class: what is said at its end, and at a restart, each sentence once."""
    otherwise = (
        "Nothing; the job goes on by itself."
        if row.name in classes.FREE
        else "If it comes again, correct what the evidence names."
    )
    hint = "" if row.hint in row.cure else row.hint
    return " ".join(text for text in (row.cure, row.cure_after_steps, hint) if text) or otherwise


def _class(row: classes.FailureClass) -> list[str]:
    return [
        f"### {row.name}",
        "",
        f"*You see*: {row.means}.",
        "",
        f"*Trainmaster*: {row.decision}. {row.why}",
        "",
        f"*You*: {advice(row)}",
        "",
    ]


def _obstacles() -> Iterator[str]:
    yield from (
        "## The job stays Pending, or starts with fewer workers",
        "",
        "The reason is in the message of the job and in the condition of its pods. `startSeconds` is",
        "`spec.failurePolicy.startSeconds`.",
        "",
        "| reason | how long it is waited for | cure |",
        "|---|---|---|",
    )
    for reason in sorted(obstacles.CURES):
        lasts = "the job ends" if reason in obstacles.HOPELESS else "without end"
        lasts = "`startSeconds`" if obstacles.has_its_time(reason) else lasts
        yield f"| {reason} | {lasts} | {obstacles.CURES[reason]} |"
    yield f"| any other | `startSeconds` | {obstacles.OTHER_CURE} |"
    yield ""


if __name__ == "__main__":
    PAGE.write_text(troubleshooting_page())

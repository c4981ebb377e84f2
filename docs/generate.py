"""`make generate` calls this: draws docs/states.md and docs/failures.md from the core's tables (phases, classes)."""

from pathlib import Path

from trainmaster.api.job_states import TERMINAL, Phase
from trainmaster.core.failures import budgets, classes
from trainmaster.core.situation import obstacles
from trainmaster.core.states import phases

PAGE = Path(__file__).parent / "states.md"
FAILURES = Path(__file__).parent / "failures.md"

_HEAD = """# The phases of a job

Drawn from `operator/trainmaster/core/states/phases.py` by `make generate`; not edited by hand. Succeeded and Failed are
for ever: nothing that happens to the pods afterwards changes them.

"""


def states_page() -> str:
    """The page: a diagram, and the same as a table for readers without one."""
    steps = [(phase, after, why) for phase in phases.STEPS for after, why in phases.next_phases(phase)]
    diagram = [f"    {phase} --> {after}: {why}" for phase, after, why in steps]
    ends = [f"    {phase} --> [*]" for phase in sorted(TERMINAL)]
    rows = [f"| {phase} | {after} | {why} |" for phase, after, why in steps]
    return "\n".join(
        [
            _HEAD + "```mermaid",
            "stateDiagram-v2",
            f"    [*] --> {Phase.PENDING}",
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


_FAILURES_HEAD = f"""# What a failure means

Drawn from `operator/trainmaster/core/failures/classes.py` by `make generate`; not edited by hand. `failure_errors.py`,
`failure_services.py` and `failure_ends.py` in `tests/core` hold hundreds of real messages and ends, with their classes.

"Progress" is {budgets.REFILL_INTERVALS} checkpoint intervals (`spec.checkpoint.everySteps`) past a failure: it then
leaves every budget. A script of your own (`command`) tells no steps: a failure leaves every budget when the script has
run for {budgets.REFILL_SECONDS // 3600} hours since, and "at one step" means within these hours.

"Counts" is a restart that takes one of `spec.failurePolicy.maxRestarts`. The same failure is one with the same
fingerprint: exception type, message without numbers, addresses and made-up names, and the top frame of your own
code. Each failure is one line of `.status.restarts`; `trainmaster explain` tells them as a story. "Stop" is
for ever: correct the job and {classes.AGAIN}.
`spec.checkpoint.resumeFrom.path` goes on from checkpoints that are left.

"""


def _soon(reason: str) -> str:
    seconds = obstacles.PATIENCE.get(reason)
    return f" after {seconds} s, unless its like run elsewhere" if seconds else " at once"


def failures_page() -> str:
    """The page: the table of classes, and what keeps replicas from starting."""
    rows = [
        f"| {one.name} | {one.means} | {one.decision} | {_counts(one)} | {_refilled(one)} | {one.why} |"
        for one in classes.CLASSES
    ]
    obstructions = [f"| {reason} | stop{_soon(reason)} | {_cure(reason)} |" for reason in sorted(obstacles.HOPELESS)]
    waits = "wait `spec.failurePolicy.startSeconds`, then stop"
    in_time = sorted(reason for reason in obstacles.CURES if obstacles.has_its_time(reason))
    obstructions += [f"| {reason} | {waits} | {_cure(reason)} |" for reason in in_time]
    obstructions += [f"| any other | {waits} | {obstacles.OTHER_CURE} |"]
    obstructions += [f"| {reason} | wait without end | {_cure(reason)} |" for reason in sorted(obstacles.ENDLESS)]
    return _FAILURES_HEAD + "\n".join(
        [
            "| class | what it is | decision | counts | refilled by progress | why |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
            "## What keeps replicas from starting",
            "",
            "Not a failure of training: nothing is counted. A cluster that is merely full is waited for without end.",
            "So is an API server that says again and again that it is broken, or a webhook that it must ask (5xx); the",
            "status has its words.",
            "A replica that is stuck on its node while its like run on others is tried elsewhere first, 3 times.",
            "While a job trains, as a smaller group or with other members, what keeps a replica away ends nothing.",
            f"A job that has stopped is over: after the cure {classes.AGAIN}.",
            "",
            "| reason | decision | cure |",
            "|---|---|---|",
            *obstructions,
            "",
        ]
    )


def _counts(one: classes.FailureClass) -> str:
    if one.costs:
        return "yes"
    return "no" if one.limit is None else "no, a budget of its own" if one.limit else "no"


def _refilled(one: classes.FailureClass) -> str:
    return "no" if one.limit == 0 or one.name in classes.FREE else "yes"


def _cure(reason: str) -> str:
    return obstacles.CURES.get(reason, "")


if __name__ == "__main__":
    FAILURES.write_text(failures_page())
    PAGE.write_text(states_page())

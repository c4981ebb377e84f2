"""Say what differs between trainings: fields of their specs, and how they went, side by side."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from trainmaster.cli.subjects import Subject
from trainmaster.core.figures import duration, short

_MOST_ROWS = 200
_SECRET = ("TOKEN", "SECRET", "PASSWORD", "KEY", "CREDENTIAL")
HIDDEN, ABSENT = "(hidden)", "-"

Row = tuple[str, list[str]]


def of_specs(subjects: Sequence[Subject]) -> list[Row]:
    """Return the fields that differ, by their paths, with the value of each subject."""
    specs = [dict(_leaves(without_secrets(subject.spec))) for subject in subjects]
    rows = [
        (path, [spec.get(path, ABSENT) for spec in specs])
        for path in dict.fromkeys(path for spec in specs for path in spec)
        if len({spec.get(path) for spec in specs}) > 1
    ]
    left = len(rows) - _MOST_ROWS
    return rows if left <= 0 else [*rows[:_MOST_ROWS], (f"and {left} fields more", [""] * len(subjects))]


def without_secrets(value: Any) -> Any:
    """Return a spec without the values of variables whose names say that they are secret."""
    if isinstance(value, list):
        return [without_secrets(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    hidden = any(word in str(value.get("name", "")).upper() for word in _SECRET)
    return {name: HIDDEN if hidden and name == "value" else without_secrets(inner) for name, inner in value.items()}


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each value; a list of plain values is one value."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _leaves(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list) and any(isinstance(inner, (dict, list)) for inner in value):
        for number, inner in enumerate(value):
            key = inner.get("name", number) if isinstance(inner, dict) else number
            yield from _leaves(inner, f"{path}[{key}]")
    else:
        yield path, value if isinstance(value, str) else json.dumps(value)


def of_figures(subjects: Sequence[Subject]) -> list[Row]:
    """Return how each of them went, whether or not it differs."""
    facts = [_facts(subject) for subject in subjects]
    names = dict.fromkeys(name for fact in facts for name in fact)
    return [(name, [fact.get(name, ABSENT) for fact in facts]) for name in names]


def _facts(subject: Subject) -> dict[str, str]:
    status = subject.status
    found = {"phase": subject.phase}
    if status.progress:
        found["step"] = status.progress.summary
    for name, curve in subject.curves.by_name.items():
        found[name] = short(curve.last[1])
        if name == "loss" and curve.low:
            found["least loss"] = f"{short(curve.low[1])} at step {curve.low[0]}"
    evaluation = status.progress.evaluation if status.progress else None
    for name, value in (evaluation.figures if evaluation else {}).items():
        found[f"eval {name}"] = short(value)
    if evaluation and evaluation.best_step is not None:
        found["best step"] = str(evaluation.best_step)
    if status.start_time and status.completion_time:
        found["took"] = duration((status.completion_time - status.start_time).total_seconds())
    found["restarts"] = str(status.restart_count)
    # The hashes of code and model tell what was trained and what came out.
    code = {"code": (status.code.sha256 or status.code.commit or "")[:12]} if status.code else {}
    model = {"model": status.checkpoint.sha256[:12]} if status.checkpoint else {}
    if status.goodput is not None and status.goodput.total:
        found |= {"goodput": status.goodput.share, "lost work": f"{status.goodput.lost_work:.1f} s"}
    return found | code | model

"""Session is what a script of your own may say to Trainmaster.

    from trainmaster_trainer import session

    session.report(step=step, total=steps, loss=loss.item(), accuracy=accuracy)

It does nothing outside of Trainmaster, takes microseconds, and imports the standard library only. What is wrong in a
report is said once on standard error and left out: it never ends a run.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from trainmaster_trainer import script_progress
from trainmaster_trainer.agent import errors

__all__ = ["report"]

_MOST_METRICS = 64  # of one report
_LONGEST_NAME = 128
_MOST_STEPS = 1 << 53
_said: set[str] = set()


def report(step: Any = None, total: Any = None, loss: Any = None, **metrics: Any) -> None:
    """Say that `step` steps are done, of `total`; the loss, and figures of your own.

    All of it may be left out. Without `step`, the optimizer steps count that torch has taken. Rank 0 reports for the
    job: its word is shown, and what it reports with a loss or a figure is a line of metrics.jsonl. Other ranks that
    report are watched for hangs as well. A figure may be a tensor of one element; on a GPU it is waited for.
    """
    progress = script_progress.of_this_process()
    if progress is None:
        return
    try:
        _report(
            progress, _read("step", step, _whole), _read("total", total, _whole), _read("loss", loss, _number), metrics
        )
    except Exception as error:  # noqa: BLE001 the script trains on, whatever is wrong here
        _say_once("failed", f"a report could not be taken: {type(error).__name__}: {errors.text_of(error)}")


def _report(
    progress: script_progress.ScriptProgress,
    step: int | None,
    total: int | None,
    loss: float | None,
    metrics: dict[str, Any],
) -> None:
    if step is not None and progress.reports and step < progress.step:
        _say_once(
            "backwards",
            f"step {step} came after step {progress.step}: report how many steps of the whole training are done. "
            "Lines of metrics.jsonl go on after the last one",
        )
    progress.reported(step, total, loss)
    figures = _figures(metrics)
    if progress.lines is not None and (loss is not None or figures):
        if progress.has_steps:
            progress.lines.add(progress.step, loss, figures, _say_once)
        else:
            _say_once("stepless", "figures without a step are not kept: give step= as well")


def _figures(metrics: dict[str, Any]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for name, value in metrics.items():
        if len(name) > _LONGEST_NAME or len(figures) == _MOST_METRICS:
            _say_once("many", f"at most {_MOST_METRICS} figures with names of {_LONGEST_NAME} characters are kept")
            continue
        number = _read(name, value, _number)
        if number is not None:
            figures[name] = number
    return figures


def _read(name: str, value: Any, how: Callable[[Any], Any]) -> Any:
    """Return what `how` makes of a value; None, with a word about it, where it cannot."""
    if value is None:
        return None
    try:
        return how(value)
    except Exception:  # noqa: BLE001 a value of the user's own, with methods of its own
        kind = "a whole number from 0 on" if how is _whole else "a number"
        _say_once(f"value {name[:_LONGEST_NAME]}", f"{name[:_LONGEST_NAME]}={errors.text_of(value)[:80]} is not {kind}")
        return None


def _whole(value: Any) -> int:
    number = operator.index(value)
    if isinstance(value, bool) or not 0 <= number <= _MOST_STEPS:
        raise ValueError("no count")
    return number


def _number(value: Any) -> float:
    """Return a number; NaN and infinity are some. A text is none."""
    if isinstance(value, (str, bytes)):
        raise TypeError("a text")
    item = getattr(value, "item", None)  # of a tensor, which warns where it is turned into a number otherwise
    number = float(value if item is None else item())
    return number if math.isfinite(number) else math.nan


def _say_once(what: str, text: str) -> None:
    if what not in _said and len(_said) < _MOST_METRICS:
        _said.add(what)
        errors.say(f"trainmaster: session.report: {text}")

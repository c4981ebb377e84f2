"""Session is what a script of your own may say to Trainmaster.

    from trainmaster_trainer import session

    state = session.state(model=model, optimizer=optimizer)
    for step in range(state.restore() + 1, steps + 1):
        ...
        session.report(step=step, total=steps, loss=loss.item(), accuracy=accuracy)
        state.step(step)

It does nothing outside of Trainmaster. A report takes microseconds and imports the standard library only; what is wrong
in it is said once on standard error and left out: it never ends a run.
"""

from __future__ import annotations

import atexit
import math
import operator
import os
import random
import sys
from collections.abc import Callable
from typing import Any

from trainmaster.wire.bounded_json import LARGEST_COUNT

from trainmaster_trainer import script_progress
from trainmaster_trainer.agent import rank_errors
from trainmaster_trainer.errors import ConfigurationError, with_article
from trainmaster_trainer.session_state import SessionState

__all__ = ["SessionState", "report", "state"]

_MOST_METRICS = 64  # of one report
_LONGEST_NAME = 128
_LEAST = (3, 10)  # that reads what session.state imports
_said: set[str] = set()
_states: list[SessionState] = []  # of this process: one at most
_RESERVED = ("objects", "ranks")  # parts of names in a checkpoint
_CURE = "Give it both, or keep what it needs in an object that has them."
_FROM_STEP = (
    "Leave it out and let it follow from the step: sampler.set_epoch(step // len(loader)), and skip the first "
    "step % len(loader) batches; or give a loader that has a state, such as torchdata's StatefulDataLoader."
)
_ONE_BY_ONE = "Give its members one by one, each under a name of its own."
_NUMBER = "Leave it out: restore() returns how many steps are done, and the rest follows from that."
_CURES = {
    "NoneType": "Leave it out where there is none.",
    "int": _NUMBER,
    "float": _NUMBER,
    "Tensor": "Keep it as a buffer of a module, and give that.",
    "list": _ONE_BY_ONE,
    "tuple": _ONE_BY_ONE,
    "dict": f"{_ONE_BY_ONE} Tensors are kept in a module, such as torch.optim.swa_utils.AveragedModel.",
    "DistributedSampler": _FROM_STEP,
    "DataLoader": _FROM_STEP,
    "RandomSampler": _FROM_STEP,
}


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
        _say_once("failed", f"a report could not be taken: {type(error).__name__}: {rank_errors.text_of(error)}")


def state(*unnamed: Any, **objects: Any) -> SessionState:
    """Return the state of these objects, each under a name of its own: model, optimizer, anything with a state_dict.

    An object has `state_dict()` and `load_state_dict()`, or is a random number generator of torch, NumPy or Python. The
    global generators of each rank are kept as well. Outside of Trainmaster, `restore()` gives 0 and `step()` does
    nothing.

    Raises:
        ConfigurationError: an object's state cannot be had; the message names it and the cure.
    """
    if unnamed:
        raise ConfigurationError(
            "session.state: give each object a name, such as model=model, optimizer=optimizer: a checkpoint is read by "
            "these names."
        )
    _check(objects)
    progress = script_progress.of_this_process()
    if progress is None:
        return SessionState()
    if _states:
        raise ConfigurationError(
            "session.state is called twice in this process. Give all objects in one call: they are restored together."
        )
    python = f"the Python of this script ({sys.executable})"
    if sys.version_info < _LEAST:
        raise ConfigurationError(f"session.state needs Python 3.10 or newer, and {python} is older")
    try:
        from trainmaster_trainer.scripts.script_state import ScriptState  # noqa: PLC0415 it imports torch
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"session.state needs {error.name}, which {python} does not have: install it there"
        ) from None
    _states.append(ScriptState(objects, progress))
    return _states[0]


def _check(objects: dict[str, Any]) -> None:
    if not objects:
        raise ConfigurationError("session.state: give what is to be kept, such as model=model, optimizer=optimizer.")
    for name, thing in objects.items():
        if name.startswith("_") or name in _RESERVED:
            raise ConfigurationError(f"session.state: {name}= is a name of our own. Choose another one.")
        if isinstance(thing, type):
            raise ConfigurationError(
                f"session.state: {name}= is the class {thing.__name__}. Give an object of it, the one that is trained."
            )
        if not all(callable(getattr(thing, one, None)) for one in ("state_dict", "load_state_dict")):
            # A generator of torch, NumPy or Python is known by what it can do: none of them is imported here.
            if (
                isinstance(thing, random.Random)
                or hasattr(thing, "bit_generator")
                or all(hasattr(thing, one) for one in ("get_state", "set_state", "manual_seed"))
            ):
                continue
            raise ConfigurationError(
                f"session.state: {name}= is {with_article(type(thing).__name__)}, which has no state_dict() and "
                f"load_state_dict(). {_CURES.get(type(thing).__name__, _CURE)}"
            )
    names = {id(thing): name for name, thing in objects.items()}
    for name, thing in objects.items():
        if names[id(thing)] != name:
            raise ConfigurationError(
                f"session.state: {name}= and {names[id(thing)]}= are the same object. Give it once."
            )


def _leave() -> None:
    """Tell the other ranks that this one ends without a state, for which they may wait."""
    if _states or "torch.distributed" not in sys.modules or script_progress.of_this_process(only_counts=True) is None:
        return
    from trainmaster_trainer.scripts.meeting import leave_unmet  # noqa: PLC0415 it imports torch
    from trainmaster_trainer.settings import Settings  # noqa: PLC0415 only here

    leave_unmet(Settings.read(os.environ))


atexit.register(_leave)


def _report(
    progress: script_progress.ScriptProgress,
    step: int | None,
    total: int | None,
    loss: float | None,
    metrics: dict[str, Any],
) -> None:
    if step is not None and progress.reports and step < progress.reported_step:
        _say_once(
            "backwards",
            f"step {step} came after step {progress.reported_step}: report how many steps of the whole training are "
            "done. Lines of metrics.jsonl go on after the last one",
        )
    about = progress.reported(step, total, loss)
    figures = _figures(metrics)
    progress.figures |= figures if loss is None else {**figures, "loss": loss}
    if progress.lines is not None and (loss is not None or figures):
        if progress.has_steps:
            progress.lines.add(about, loss, figures, _say_once)
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
        _say_once(
            f"value {name[:_LONGEST_NAME]}", f"{name[:_LONGEST_NAME]}={rank_errors.text_of(value)[:80]} is not {kind}"
        )
        return None


def _whole(value: Any) -> int:
    """Return a count; a float is one where it is whole, as of a division."""
    try:
        number = operator.index(value)
    except TypeError:
        whole = float(_number(value))
        number = int(whole) if whole.is_integer() else -1
    if isinstance(value, bool) or not 0 <= number <= LARGEST_COUNT:
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
        rank_errors.say(f"trainmaster: session.report: {text}")

"""Collating: single samples of a dataset made one batch, and a clear end where they do not fit together.

The order of samples is chance, so a sample that fits no other is named by its number in the dataset.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor
from torch.utils.data import default_collate

from trainmaster_trainer.agent.rank_errors import frame
from trainmaster_trainer.errors import ConfigurationError

if TYPE_CHECKING:
    from trainmaster_trainer.data import Batch

_BATCHED = (Tensor, np.ndarray, np.generic, float, int, str, bytes)  # what default_collate makes batches of
_PAIR: dict[int | str, str] = {0: "inputs", 1: "targets"}
_UNLIKE = (
    "Samples of one batch must fit together: pad or cut them to one shape in the dataset, or in the task's collate"
)
_Keys = tuple[int | str, ...]


def collate(samples: Sequence[Any], numbers: Sequence[int], what: str = "dataset()") -> Any:
    """Return the samples as one batch. `numbers` are their places in what the task's method `what` gave.

    Raises:
        ConfigurationError: two samples differ in shape or structure, or one holds what is no number, array or text.
    """
    try:
        return default_collate([*samples])
    except (RuntimeError, TypeError, KeyError, ValueError, IndexError) as error:
        why = _why_not(samples, numbers, what)
        if why is None:
            raise
        raise ConfigurationError(f"spec.training.task: {why}") from error


@contextmanager
def arrays_told(batch: Batch) -> Iterator[None]:
    """Blame a batch of NumPy arrays for an error that computing its first step ends with: a restart would not mend it.

    They are not refused before, as a model or a loss may take them on purpose.

    Raises:
        ConfigurationError: in place of that error.
    """
    try:
        yield
    except (TypeError, AttributeError, RuntimeError) as error:
        parts = (("inputs", batch.inputs), ("targets", batch.targets))
        arrays = [what for what, part in parts if any(isinstance(leaf, np.ndarray) for _, leaf in _leaves(part, ()))]
        is_theirs = not isinstance(error, RuntimeError) or "Can't call numpy()" in str(error)
        if batch.step != 1 or not arrays or not is_theirs:
            raise
        raise ConfigurationError(
            f"spec.training.task: the {' and '.join(arrays)} of a batch have NumPy arrays, and computing with them "
            f"failed: {type(error).__name__}: {error} ({frame(error)}). Let collate() "
            "make tensors of them (torch.from_numpy)."
        ) from error


def _why_not(samples: Sequence[Any], numbers: Sequence[int], what: str) -> str | None:
    """Return what keeps the samples from being one batch, and the cure; None where nothing is found."""
    for sample, number in zip(samples, numbers, strict=False):
        for keys, leaf in _leaves(sample, ()):
            if not isinstance(leaf, _BATCHED):
                return (
                    f"sample {number} of its {what} has {_said(leaf)} in its {_place(keys)}. Give tensors, NumPy "
                    "arrays, numbers or texts: turn it into a tensor in the dataset."
                )
        found = _difference(samples[0], sample, ())
        if found:
            keys, first, other = found
            return (
                f"the {_place(keys)} of sample {numbers[0]} of its {what} have {first}, those of sample {number} "
                f"have {other}. {_UNLIKE}, and let the model or the loss leave out what is "
                "padded, as cross_entropy does with ignore_index."
            )
    return None


def _difference(first: Any, other: Any, keys: _Keys) -> tuple[_Keys, str, str] | None:
    """Return where two samples differ in what must be alike, and what each has there."""
    described = _described(first), _described(other)
    if described[0] != described[1]:
        return keys, *described
    for (key, one), (_, two) in zip(_members(first), _members(other), strict=True):
        found = _difference(one, two, (*keys, key))
        if found:
            return found
    return None


def _described(value: Any) -> str:
    if isinstance(value, (Tensor, np.ndarray)):
        return f"the shape {list(value.shape)}"
    if isinstance(value, Mapping):
        return f"the keys {sorted(map(str, value))}"
    if _is_sequence(value):
        return f"{len(value)} members"
    return "a text" if isinstance(value, (str, bytes)) else "a number"


def _said(leaf: Any) -> str:
    return "None" if leaf is None else f"an object of the type {type(leaf).__module__}.{type(leaf).__qualname__}"


def _leaves(value: Any, keys: _Keys) -> Iterator[tuple[_Keys, Any]]:
    members = [*_members(value)]
    if not members and not _is_sequence(value) and not isinstance(value, Mapping):
        yield keys, value
    for key, member in members:
        yield from _leaves(member, (*keys, key))


def _members(value: Any) -> Iterator[tuple[int | str, Any]]:
    if isinstance(value, Mapping):
        yield from ((str(key), value[key]) for key in sorted(value, key=str))
    elif _is_sequence(value):
        yield from enumerate(value)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _place(keys: _Keys) -> str:
    """Return the place in words: a sample is a pair of inputs and targets."""
    if not keys:
        return "parts"
    first, *more = keys
    return _PAIR.get(first, f"part {first}") + "".join(f"[{key!r}]" for key in more)

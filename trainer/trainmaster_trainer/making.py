"""Make batches from the samples of a task: which samples are in one is decided by `data.SampleOrder`.

A batch follows from (seed, step, share) alone, also the random numbers that its samples are made with. So it is the
same wherever it is made: in the rank itself, or ahead of the step in a data worker (`data_workers.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from trainmaster_trainer import randomness
from trainmaster_trainer.collating import collate
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.structure import leaves

if TYPE_CHECKING:
    from trainmaster_trainer.data import SampleOrder, Share
    from trainmaster_trainer.task import Samples

Collate = Callable[[list[Any]], Any]
_TRAINING, VALIDATION = "dataset()", "validation_dataset()"


class Maker:
    """Maker makes the inputs and targets of any share of any step. `own` is the task's collate; None: torch's.

    `what`: the method of the task that gave the dataset.
    """

    def __init__(self, dataset: Dataset[Any], order: SampleOrder, own: Collate | None, what: str = _TRAINING) -> None:
        self._dataset, self._order, self._own, self._what = dataset, order, own, what

    def make(self, step: int, share: Share, _start: str | None = None) -> tuple[Any, ...]:
        """Return inputs and targets. The random number generators are left as the samples need them.

        Raises:
            ConfigurationError: the samples make no batch, or one that is no pair.
        """
        # A dataset derived from it may do something with each sample, such as to draw.
        if type(self._dataset) is TensorDataset and self._own is None:
            return pair(
                self._dataset[torch.from_numpy(self._order.share(step, share))], f"a sample of its {self._what}"
            )
        samples = [sample for part in share.each() for sample in self._samples(step, part)]
        if self._own is not None:
            return pair(self._own(samples), "what its collate() returns")
        return pair(
            collate(samples, self._order.share(step, share).tolist(), self._what), f"a sample of its {self._what}"
        )

    def _samples(self, step: int, part: Share) -> list[Any]:
        """Return the samples of one part, whose random numbers are its own: a share has one part or several."""
        randomness.seed_samples(self._order.seed, step, part.index, part.of)
        indices: list[int] = self._order.share(step, part).tolist()
        if hasattr(self._dataset, "__getitems__"):
            samples = list(self._dataset.__getitems__(indices))
            if len(samples) != len(indices):
                raise ConfigurationError(
                    f"spec.training.task: __getitems__() of what {self._what} gave was asked for {len(indices)} "
                    f"samples and gave {len(samples)}. Let it give one for each number: leave broken samples out of "
                    "__len__, or put others in their place."
                )
            return samples
        return [self._dataset[index] for index in indices]


def are_in_memory(dataset: Any) -> bool:
    """Return whether samples are tensors, or whatever a list has, in memory: to make a batch of them takes no time."""
    if isinstance(dataset, Subset):
        return are_in_memory(dataset.dataset)
    return type(dataset) in (TensorDataset, list, tuple)


def pair(batch: Any, what: str) -> tuple[Any, Any]:
    """Return what was collated, if it is a pair.

    Raises:
        ConfigurationError: it is none.
    """
    match batch:
        case [inputs, targets]:
            return inputs, targets
    given = "None" if batch is None else f"one {type(batch).__name__}"
    if isinstance(batch, Mapping):
        given = f"a dict of {', '.join(map(repr, batch)) or 'nothing'}"
    elif isinstance(batch, (tuple, list)):
        given = f"{len(batch)} parts"
    raise ConfigurationError(
        f"spec.training.task: {what} is {given}. Give pairs (inputs, targets); where there are more "
        "things, put them together: ((image, mask), label), or a dict of them for the inputs."
    )


def check_has_all(batch: tuple[Any, Any], size: int) -> None:
    """Check that a collate has made a batch of all `size` samples, as far as shapes tell.

    Batches that are none of samples are left alone: tokens in one row, time as the first dimension, graphs. Targets in
    one row are labels, one for each sample, whatever number the inputs have in another dimension.

    Raises:
        ConfigurationError: all tensors begin with the same smaller number.
    """
    shapes = [leaf.shape for leaf in leaves(batch) if leaf.dim()]
    labels = leaves(batch[1])
    are_labels = bool(labels) and all(leaf.dim() == 1 for leaf in labels)
    if not shapes or any(size in shape[: 1 if are_labels else None] for shape in shapes):
        return
    found = shapes[0][0]
    is_row = found == 1 and all(len(shape) > 1 for shape in shapes)
    if found < size and not is_row and all(shape[0] == found for shape in shapes):
        raise ConfigurationError(
            f"spec.training.task: collate() was given {size} samples and returned a batch of {found}, and the mean "
            f"over these would be weighed as that over {size}. Return all of them: leave broken samples out in the "
            "dataset, or put others in their place. Or let loss() return a pair, of the sum of the losses and how many "
            "they are, and write no metrics()."
        )


def as_dataset(samples: Samples, what: str = _TRAINING) -> tuple[Dataset[Any], int]:
    """Return a dataset and its length. A pair of tensors becomes one that takes many indices at once.

    Raises:
        ConfigurationError: what the task's method `what` gave is none, or is empty.
    """
    if isinstance(samples, tuple):
        others = [type(part).__name__ for part in samples if not isinstance(part, Tensor)]
        if others:
            raise ConfigurationError(
                f"spec.training.task: its {what} gave a tuple with {', '.join(others)} in it. Give two tensors "
                "(torch.from_numpy makes one of an array), or a list or map-style Dataset of pairs."
            )
        lengths = [len(tensor) for tensor in samples]
        if len(set(lengths)) != 1:
            raise ConfigurationError(f"spec.training.task: the tensors of its {what} differ in length: {lengths}.")
        dataset: Dataset[Any] = TensorDataset(*samples)
    else:
        dataset = cast("Dataset[Any]", samples)
    if isinstance(dataset, IterableDataset) or not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise ConfigurationError(
            f"spec.training.task: its {what} cannot be indexed. The trainer chooses samples by number, so that none "
            "is lost or repeated; give a map-style Dataset (with __len__ and __getitem__) or two tensors. (Only "
            "dataset() may give a stream, which is iterated, and validation_dataset() may not.)"
        )
    if len(dataset) == 0:
        cure = "Let it give at least one sample" + (", or None." if what == VALIDATION else ".")
        raise ConfigurationError(f"spec.training.task: its {what} is empty. {cure}")
    return dataset, len(dataset)

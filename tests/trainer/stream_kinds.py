"""Streams of samples of every kind."""

import random
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info
from typing_extensions import override

LENGTH = 23
Item = tuple[Tensor, Tensor]


def item(number: int) -> Item:
    """A sample that is known by its number, with noise."""
    return torch.tensor([number / LENGTH, random.random(), float(torch.rand(()))]), torch.tensor([number / LENGTH])  # noqa: S311


class Stateless(IterableDataset[Item]):
    """Begins anew at each iteration; splits itself among data workers, if it hears of any."""

    def __iter__(self) -> Iterator[Item]:
        worker = get_worker_info()
        first, every = (worker.id, worker.num_workers) if worker else (0, 1)
        return (item(number) for number in range(first, LENGTH, every))


class Stateful(Stateless):
    """Knows where it is, as torchdata asks; `read` says how many samples were made here."""

    def __init__(self) -> None:
        self.at, self.read = 0, 0

    @override
    def __iter__(self) -> Iterator[Item]:
        while self.at < LENGTH:
            self.at, self.read = self.at + 1, self.read + 1
            yield item(self.at - 1)
        self.at = 0

    def state_dict(self) -> dict[str, Any]:
        """Where it is."""
        return {"at": self.at, "words": ["a"]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go there."""
        self.at = state["at"]


class Shuffled(Stateless):
    """Has another order in each epoch, which it is told."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Take the order of this epoch."""
        self.epoch = epoch

    @override
    def __iter__(self) -> Iterator[Item]:
        numbers = [*range(LENGTH)]
        random.Random(self.epoch).shuffle(numbers)  # noqa: S311
        return (item(number) for number in numbers)


class _Walk:
    """An iterator that knows where it is."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        if self.at == LENGTH:
            raise StopIteration
        self.at += 1
        return item(self.at - 1)

    def state_dict(self) -> dict[str, Any]:
        """Where it is."""
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go there."""
        self.at = state["at"]


class Walked:
    """Whose iterator has the state. It is derived from nothing."""

    def __iter__(self) -> Iterator[Item]:
        return _Walk()


class Odd(Stateful):
    """Has a state that no checkpoint can hold."""

    @override
    def state_dict(self) -> dict[str, Any]:
        return {"at": {1, 2}}


class Boastful(Stateless):
    """Says that it has more samples than it gives."""

    says = LENGTH + 7

    def __len__(self) -> int:
        """Say how many."""
        return self.says


class Modest(Boastful):
    """Gives more samples than it says."""

    says = LENGTH - 1


class Reserved(Boastful):
    """Says that it has none."""

    says = 0


KINDS: dict[str, Any] = {kind.__name__: kind for kind in (Stateless, Stateful, Shuffled, Walked, Odd, Boastful)}

"""A task whose samples come from a process of its own, as those of a DataLoader with workers do."""

from concurrent.futures import ProcessPoolExecutor

import torch
from small import Small  # type: ignore[import-not-found]
from torch.utils.data import Dataset
from typing_extensions import override


def sample(index: int) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.full((8,), float(index % 3))
    return inputs, inputs.sum().reshape(1)


class Samples(Dataset):  # type: ignore[type-arg]
    """Asks its process for each of them."""

    def __init__(self) -> None:
        self._reader = ProcessPoolExecutor(1)
        self._reader.submit(sample, 0).result()  # it is there before the first step

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self._reader.submit(sample, index).result()


class Reads(Small):  # type: ignore[misc]
    """As Small, which may wait at the gate."""

    @override
    def dataset(self) -> Samples:
        return Samples()

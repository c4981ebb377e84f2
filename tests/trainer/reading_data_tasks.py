"""Tasks whose samples are read in data workers. Reached by `workingDirectory: tests/trainer`."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import torch
from small_tasks import SAMPLES, Line, Noisy  # type: ignore[import-not-found]
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset, default_collate
from typing_extensions import override


class OwnError(Exception):
    """An error that does not survive a journey to another process."""

    def __init__(self, number: int, words: object) -> None:
        super().__init__(f"sample {number} is {words}")
        self.words = lambda: words


class Odd(Noisy):  # type: ignore[misc]
    """Does something with its sample number 5, once in the life of a `marker`."""

    def __init__(self, kind: str, marker: str) -> None:
        self.kind, self.marker = kind, Path(marker)

    @override
    def __getitem__(self, index: int) -> Any:
        time.sleep(0.002)
        if index == 5 and self.kind != "none" and not self.marker.exists():
            self.marker.write_text(str(os.getpid()))
            return self.odd(index)
        return super().__getitem__(index)

    def odd(self, index: int) -> Any:
        """What is odd about it."""
        match self.kind:
            case "KeyError":
                raise KeyError(f"no such key: {index}")
            case "OwnError":
                raise OwnError(index, "odd")
            case "MemoryError":
                raise MemoryError("a picture of 80 GiB")
            case "exit":
                os._exit(3)
            case _:
                os.kill(os.getpid(), getattr(signal, self.kind))
                time.sleep(1000)


class WithOddSamples(Line):  # type: ignore[misc]
    """Learns from them."""

    def __init__(self, kind: str = "none", marker: str = "/nowhere/there", seconds: float = 0.0) -> None:
        super().__init__(seconds=seconds)
        self.samples = Odd(kind, marker)

    @override
    def dataset(self) -> Any:
        return self.samples


class RaggedPoints(Dataset[tuple[Tensor, Tensor]]):
    """Points of which some have more numbers than others."""

    def __len__(self) -> int:
        return int(SAMPLES)

    @override
    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return torch.ones(1 + index % 3), torch.ones(1)


class Ragged(Line):  # type: ignore[misc]
    """Cannot learn from them, as torch cannot stack them."""

    @override
    def dataset(self) -> Any:
        return RaggedPoints()


class LeavingOut(Line):  # type: ignore[misc]
    """Leaves broken samples out of a batch: those of the second rank, with a loss that is a mean or a `pair`."""

    def __init__(self, pair: bool) -> None:
        super().__init__()
        self.pair = pair

    @override
    def collate(self, samples: list[Any]) -> Any:
        return default_collate(samples[: len(samples) - int(os.environ["RANK"])])

    @override
    def loss(self, outputs: Any, targets: Any) -> Any:
        loss = super().loss(outputs, targets)
        return (loss * len(targets), len(targets)) if self.pair else loss


class Padded(Ragged):
    """Can, with a collate of its own, unless it `gives` something else than a pair of tensors."""

    def __init__(self, gives: str = "pair") -> None:
        super().__init__()
        self.gives = gives

    @override
    def collate(self, samples: list[Any]) -> Any:
        points, targets = zip(*samples, strict=True)
        padded = pad_sequence([*points, torch.ones(3)], batch_first=True)[:-1]
        if self.gives == "pair":
            return padded, torch.stack(targets)
        if self.gives == "array":
            return padded, torch.stack(targets).numpy()
        return padded if self.gives == "tensor" else (lambda: padded, targets)

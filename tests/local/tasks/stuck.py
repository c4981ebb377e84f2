"""A task whose ranks can be slow, or get stuck in several ways, in the first attempt only."""

import os
import time
from typing import Any

import torch
import torch.distributed as dist
from small import Small  # type: ignore[import-not-found]
from typing_extensions import override


class Stuck(Small):  # type: ignore[misc]
    """`way`: what happens to `rank` at the step `at`. `seconds` per step, ten times as many at every `jitter`th."""

    def __init__(self, way: str = "", at: int = 0, rank: int = 1, seconds: float = 0.0, jitter: int = 0) -> None:
        super().__init__()
        self.way, self.at, self.seconds, self.jitter = way, at, seconds, jitter
        self.mine = int(os.environ["RANK"]) == rank and os.environ["TRAINMASTER_ATTEMPT"] == "1"

    @override
    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = super().loss(outputs, targets)
        slow = self.jitter and self.calls % self.jitter == 0
        time.sleep(10 * self.seconds if slow else self.seconds)
        if self.mine and self.calls == self.at:
            getattr(self, self.way)()
        return loss

    def loop(self) -> None:
        """For ever."""
        while True:
            self.seconds += 1

    def compile(self) -> None:
        """What torch's compiler seems to take its time for: longer than any limit of who waits for it."""
        scope: dict[str, Any] = {"sleep": time.sleep}
        source = "def convert():\n    sleep(20.0)\n"
        exec(compile(source, "/site-packages/torch/_dynamo/convert_frame.py", "exec"), scope)  # noqa: S102
        scope["convert"]()

    def missing(self) -> None:
        """A message that nobody sends."""
        dist.recv(torch.zeros(3), src=0)


class SlowToSave(Stuck):
    """One rank takes its time for its part of the checkpoint of step `save_at`; its peers wait in the next step."""

    def __init__(self, save_at: int, save_seconds: float, **more: Any) -> None:
        super().__init__(**more)
        self.save_at, self.save_seconds = save_at, save_seconds

    @override
    def model(self) -> torch.nn.Module:
        def slow(*_: object) -> None:
            """Take long once: the start, and copies kept in memory, ask for the state as well."""
            time.sleep(self.save_seconds if self.calls == self.save_at else 0)

        model: torch.nn.Module = super().model()
        if self.mine:
            model.register_state_dict_post_hook(slow)  # type: ignore[no-untyped-call]
        return model


class Evaluated(Stuck):
    """It is its evaluation, and no step, that gets stuck: that number `at`. The first one takes `first` seconds."""

    def __init__(self, at: int, first: float, **more: Any) -> None:
        super().__init__(**more)
        self.late, self.first, self.evaluations = at, first, 0

    @override
    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        self.evaluations += 1
        time.sleep(self.first if self.evaluations == 1 else 0.1)
        if self.mine and self.evaluations == self.late:
            getattr(self, self.way)()
        return {"number": float(self.evaluations)}


class Tried(Stuck):
    """It has validation samples, and whatever is stuck may be so at one of their batches."""

    @override
    def validation_dataset(self) -> tuple[torch.Tensor, torch.Tensor]:
        samples: tuple[torch.Tensor, torch.Tensor] = self.dataset()
        return samples

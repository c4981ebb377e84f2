"""Copy live tensors while training goes on: weights do not change in forward and backward passes.

The thread that saves copies what only an optimizer's step changes, into buffers that are kept from save to save;
the next optimizer step waits for what is not copied yet, by a hook of torch's that every optimizer calls. All else is
copied at once. (DataStates-LLM, Maurya et al., HPDC 2024.) A tensor that changed nevertheless is noticed by torch's
version counter: that save fails, and from then on everything is copied at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from trainmaster_trainer.checkpoint.image import Image

Settled = Callable[[str], bool]


class TornCopyError(Exception):
    """A weight changed while it was copied, so there is no copy of one moment."""


class Copier:
    """Copier makes the copies of one saver: at most one is under way."""

    def __init__(self) -> None:
        self._image: Image | None = None  # where the copies are
        self.image: memoryview | None = None  # its memory; None if there was no copy yet
        self._later: dict[str, tuple[Tensor, Tensor, int]] = {}  # where from, where to, version
        self._progress = threading.Condition()  # of those, one after the other
        self._careful = False
        self._hook = register_optimizer_step_pre_hook(self._before_optimizer)

    def begin(self, tensors: Mapping[str, Tensor], settled: Settled) -> dict[str, Tensor]:
        """Copy in the order of a file, and return the copy; settled tensors are copied by `finish`."""
        self._wait(lambda: not self._later)
        forms = {name: (one.dtype, one.shape) for name, one in tensors.items()}
        if self._image is None or forms != {name: (one.dtype, one.shape) for name, one in self._image.tensors.items()}:
            self._image = self.image = None  # two of them would not fit where one does
            self._image = Image(tensors)
            self.image = self._image.view
        buffers = self._image.tensors
        for name, buffer in buffers.items():
            tensor = tensors[name]
            if settled(name) and not self._careful and not tensor.is_inference():
                self._later[name] = (tensor, buffer, tensor._version)  # noqa: SLF001 (autograd's own guard against the same)
            else:
                buffer.copy_(tensor)
        return buffers

    def finish(self) -> None:
        """Copy what is left, in the order of a file. It runs in a thread of its own.

        Raises:
            TornCopyError: something changed meanwhile.
        """
        torn = False
        try:
            for name, (tensor, buffer, version) in list(self._later.items()):
                buffer.copy_(tensor)
                torn = torn or tensor._version != version  # noqa: SLF001 (likewise)
                with self._progress:
                    del self._later[name]
                    self._progress.notify_all()
        finally:
            with self._progress:
                self._later.clear()
                self._progress.notify_all()
        if torn:
            self._careful = True
            raise TornCopyError("a weight changed while it was copied; the next save copies before training goes on")

    def arrived(self, name: str) -> None:
        """Wait until this tensor is copied."""
        self._wait(lambda: name not in self._later)

    def _wait(self, enough: Callable[[], bool]) -> None:
        if not enough():
            with self._progress:
                self._progress.wait_for(enough)

    def close(self) -> None:
        """Remove the hook from the optimizers."""
        self._hook.remove()

    def _before_optimizer(self, *_: Any) -> None:
        self._wait(lambda: not self._later)

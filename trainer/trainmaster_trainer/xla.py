"""Handle XLA devices (TPU). This is the one module that imports torch_xla.

One process drives all XLA devices of its replica (SPMD: Xu et al., "GSPMD", 2021): it holds tensors that are spread
over a mesh of devices, and XLA adds the communication. torch_xla is an extra of its own with a torch of its own
(requirements/xla.lock). `PJRT_DEVICE` says which devices: TPU by default, CPU for trying without one.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor

from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.structure import each_tensor

ACCELERATOR = "tpu"  # of spec.workers.accelerator


def open_device() -> torch.device:
    """Return the replica's XLA devices, as the one device that torch sees.

    Raises:
        ConfigurationError: torch_xla is not installed, or finds no device.
    """
    os.environ.setdefault("PJRT_DEVICE", "TPU")
    try:
        import torch_xla
        import torch_xla.runtime

        torch_xla.runtime.use_spmd()
        device: torch.device = torch_xla.device()
    except ImportError as error:
        raise ConfigurationError(
            f"spec.workers.accelerator: tpu needs torch_xla, which this image does not have ({error}). Take an image "
            "with requirements/xla.lock installed, or leave accelerator out."
        ) from None
    except RuntimeError as error:
        reason = str(error).strip().split("\n", 1)[0]
        raise ConfigurationError(
            f"spec.workers.accelerator: tpu finds no {os.environ['PJRT_DEVICE']} device here: {reason}"
        ) from None
    return device


class XlaMesh:
    """XlaMesh holds all XLA devices of this replica in a row."""

    def __init__(self) -> None:
        import numpy as np
        from torch_xla import runtime
        from torch_xla.distributed import spmd

        self._spmd = spmd
        self.size: int = runtime.global_runtime_device_count()
        self._mesh = spmd.Mesh(np.arange(self.size), (self.size,), ("data",))

    def spread(self, value: Any) -> Any:
        """Spread the samples of a batch over the devices."""
        return each_tensor(value, self._spread)

    def _spread(self, tensor: Tensor) -> Tensor:
        self._spmd.mark_sharding(tensor, self._mesh, ("data", *([None] * (tensor.dim() - 1))))
        return tensor


def seed_as_torch() -> None:
    """Seed the devices' generator with the number with which torch's was seeded for this step."""
    import torch_xla

    torch_xla.manual_seed(torch.initial_seed() % (1 << 32))


def finish_step() -> None:
    """Compile (the first time) and run the step that was only recorded so far."""
    import torch_xla

    torch_xla.sync()

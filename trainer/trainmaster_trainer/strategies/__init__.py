"""Find the class of a strategy by its name in the YAML."""

from __future__ import annotations

from trainmaster.wire.strategies import INDEPENDENT, WHOLE_MODELS

from trainmaster_trainer import xla
from trainmaster_trainer.errors import ConfigurationError, near
from trainmaster_trainer.strategies.all_reduce import AllReduce
from trainmaster_trainer.strategies.central_storage import CentralStorage
from trainmaster_trainer.strategies.fully_sharded import FullySharded
from trainmaster_trainer.strategies.local_sgd import LocalSGD
from trainmaster_trainer.strategies.mesh import Mesh
from trainmaster_trainer.strategies.mirrored import Mirrored
from trainmaster_trainer.strategies.one_device import OneDevice
from trainmaster_trainer.strategies.pipeline import Pipeline
from trainmaster_trainer.strategies.strategy import Strategy
from trainmaster_trainer.strategies.tensor import Tensor
from trainmaster_trainer.strategies.virtual_ranks import VirtualRanks
from trainmaster_trainer.strategies.xla_all_reduce import XlaAllReduce

CLASSES: dict[str, type[Strategy]] = {
    "OneDevice": OneDevice,
    "Mirrored": Mirrored,
    "AllReduce": AllReduce,
    "CentralStorage": CentralStorage,
    "LocalSGD": LocalSGD,
    "FullySharded": FullySharded,
    "Pipeline": Pipeline,
    "Tensor": Tensor,
    "Mesh": Mesh,
}


def find_strategy(name: str, reproducible: bool = False, accelerator: str | None = None) -> type[Strategy]:
    """Return the class for `spec.strategy.type`.

    Raises:
        ConfigurationError: there is none, or none that gives the same bits at any number of ranks, or runs on TPUs.
    """
    if accelerator == xla.ACCELERATOR:
        if name in WHOLE_MODELS and not reproducible:
            return XlaAllReduce
        raise ConfigurationError(
            f"spec.workers.accelerator: tpu trains {', '.join(WHOLE_MODELS)}, without reproducible. Choose one "
            "of them, or leave accelerator out."
        )
    if reproducible:
        if name in WHOLE_MODELS:
            return VirtualRanks
        raise ConfigurationError(
            f"spec.reproducible: {name} cannot promise the same bits at any number of ranks; "
            f"{', '.join(WHOLE_MODELS)} can. Choose one of them, or set it to false."
        )
    if name in CLASSES:
        return CLASSES[name]
    available = ", ".join(CLASSES)
    if name in INDEPENDENT:
        raise ConfigurationError(
            f"spec.strategy.type: members of {name} restart individually, they are no group of ranks as here. "
            f"For a group there are {available}."
        )
    raise ConfigurationError(
        f"spec.strategy.type: there is no {name!r}; there are {available}.{near(name, [*CLASSES, *INDEPENDENT])}"
    )

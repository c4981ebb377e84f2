"""Find the class of a strategy by its name in the YAML."""

from __future__ import annotations

from importlib import import_module

from trainmaster.wire.strategies import INDEPENDENT, STRATEGIES, WHOLE_MODELS, module_of

from trainmaster_trainer import xla
from trainmaster_trainer.errors import ConfigurationError, near
from trainmaster_trainer.strategies.strategy import Strategy
from trainmaster_trainer.strategies.virtual_ranks import VirtualRanks
from trainmaster_trainer.strategies.xla_all_reduce import XlaAllReduce

CLASSES: dict[str, type[Strategy]] = {
    name: getattr(import_module(f"{__name__}.{module_of(name)}"), name)
    for name in STRATEGIES
    if name not in INDEPENDENT
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

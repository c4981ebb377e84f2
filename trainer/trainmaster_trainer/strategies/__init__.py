"""The strategies by their name in the YAML."""

from __future__ import annotations

from typing import Dict, Type

from trainmaster_trainer.errors import ConfigurationError, near
from trainmaster_trainer.strategies.all_reduce import AllReduce
from trainmaster_trainer.strategies.one_device import OneDevice
from trainmaster_trainer.strategies.strategy import Strategy

STRATEGIES: Dict[str, Type[Strategy]] = {
    "OneDevice": OneDevice,
    "AllReduce": AllReduce,
}

# Names of the API that this version cannot train with yet.
PLANNED = (
    "Mirrored CentralStorage ParameterServer Gossip LocalSGD FullySharded Pipeline Tensor Mesh".split()
)


def find_strategy(name: str) -> Type[Strategy]:
    """The class for `spec.strategy.type`.

    Raises:
        ConfigurationError: there is none.
    """
    if name in STRATEGIES:
        return STRATEGIES[name]
    available = ", ".join(STRATEGIES)
    if name in PLANNED:
        raise ConfigurationError(
            f"spec.strategy.type: {name} is not in this version of the trainer yet. It has {available}."
        )
    raise ConfigurationError(
        f"spec.strategy.type: there is no {name!r}; there are {available}.{near(name, [*STRATEGIES, *PLANNED])}"
    )

"""Define the table of strategies: one row each, with the traits that others must know without running the strategy.

A new strategy is a row here, its class in the trainer's `strategies/`, and its page in `advice/pages/`, both in modules
of its name in small letters (`module_of`); a test in tests/house adds one and trains with it.
"""

import re
from dataclasses import dataclass
from typing import Callable, Dict, Optional, Tuple


@dataclass(frozen=True)
class StrategyTraits:
    """Hold what is true of a strategy with any options."""

    means: str
    """The phrase that describes it in the field's description."""
    options: Optional[str] = None
    """The attribute of `api.strategy_spec.StrategySpec` that holds its options; None if it has none."""
    independent: bool = False
    """Members restart individually: no process group spans replicas."""
    one_machine: bool = False
    """All ranks are in one replica."""
    fixed_size: bool = False
    """The number of workers follows from the model's layout, so `spec.elasticity` is refused."""
    least_ranks: int = 1
    shares_batch: bool = True
    """Each rank computes samples of its own. False: all ranks work on the same samples, each on its part of the model.
    For Mesh it depends on the axes."""
    compresses: bool = False
    """Gradients can be sent compressed (`spec.strategy.compression`)."""
    whole_models: bool = False
    """Each rank has the whole model and computes what one device would: `spec.reproducible` and TPUs are possible."""
    own_steps: bool = False
    """A rank (or server) takes optimizer steps that the others do not take with it, so no FP16 loss scale is shared."""
    replicated_snapshots: bool = False
    """Each rank's snapshot in memory has all that any rank needs, unless the compression is one of `OWN_REMAINDERS`."""
    copied_snapshots: bool = False
    """Each rank's snapshot in memory has a part that no other has, and the next replica keeps copies of it."""
    advised: bool = False
    """`trainmaster advise` may recommend it in place of one device: it computes the same numbers."""


STRATEGIES: Dict[str, StrategyTraits] = {
    "OneDevice": StrategyTraits(
        "one process", one_machine=True, fixed_size=True, whole_models=True, advised=True, replicated_snapshots=True
    ),
    "Mirrored": StrategyTraits(
        "all devices of one machine, a copy of the model on each",
        options="mirrored",
        one_machine=True,
        fixed_size=True,
        compresses=True,
        whole_models=True,
        advised=True,
        replicated_snapshots=True,
    ),
    "AllReduce": StrategyTraits(
        "many machines, a copy on each device, gradients added up at every step",
        options="all_reduce",
        compresses=True,
        whole_models=True,
        advised=True,
        replicated_snapshots=True,
    ),
    "CentralStorage": StrategyTraits("the model on one device, computed on all", one_machine=True, fixed_size=True),
    "ParameterServer": StrategyTraits(
        "the model on servers of its own", options="parameter_server", independent=True, compresses=True, own_steps=True
    ),
    "Gossip": StrategyTraits(
        "workers average with random others", options="gossip", independent=True, least_ranks=2, own_steps=True
    ),
    "LocalSGD": StrategyTraits("workers average every few steps", options="local_sgd", compresses=True, own_steps=True),
    "FullySharded": StrategyTraits("the model spread over all devices", advised=True, copied_snapshots=True),
    "Pipeline": StrategyTraits(
        "each rank holds some layers",
        options="pipeline",
        least_ranks=2,
        shares_batch=False,
        advised=True,
        copied_snapshots=True,
    ),
    "Tensor": StrategyTraits(
        "each layer spread over all ranks",
        fixed_size=True,
        least_ranks=2,
        shares_batch=False,
        advised=True,
        copied_snapshots=True,
    ),
    "Mesh": StrategyTraits("several of these at once", options="mesh", fixed_size=True, copied_snapshots=True),
}


def where(trait: Callable[[StrategyTraits], bool]) -> Tuple[str, ...]:
    """Return the names of the strategies for which `trait` is true, in the order of the table."""
    return tuple(name for name, traits in STRATEGIES.items() if trait(traits))


def module_of(name: str) -> str:
    """Return the name of the modules of a strategy: its own in small letters, such as local_sgd."""
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower()


INDEPENDENT = where(lambda traits: traits.independent)
WHOLE_MODELS = where(lambda traits: traits.whole_models)
OWN_REMAINDERS = ("PowerSGD", "TopK")
"""The compressions under which each rank keeps what it has not sent yet, so that its snapshot is its own."""

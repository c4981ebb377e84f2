"""Define the table of strategies: one row each, with the traits that others must know without running the strategy.

A new strategy is a row here, its class in the trainer's `strategies/`, and its words, costs and picture for its page;
tests/house checks that each row has them.
"""

from dataclasses import dataclass
from typing import Callable, Dict, Optional, Tuple


@dataclass(frozen=True)
class Traits:
    """Hold what is true of a strategy with any options."""

    options: Optional[str] = None
    """The attribute of `api.strategy.Strategy` that holds its options; None if it has none."""
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
    advised: bool = False
    """`trainmaster advise` may recommend it in place of one device: it computes the same numbers."""


STRATEGIES: Dict[str, Traits] = {
    "OneDevice": Traits(one_machine=True, fixed_size=True, whole_models=True, advised=True),
    "Mirrored": Traits("mirrored", one_machine=True, fixed_size=True, compresses=True, whole_models=True, advised=True),
    "AllReduce": Traits("all_reduce", compresses=True, whole_models=True, advised=True),
    "CentralStorage": Traits(one_machine=True, fixed_size=True),
    "ParameterServer": Traits("parameter_server", independent=True, compresses=True, own_steps=True),
    "Gossip": Traits("gossip", independent=True, least_ranks=2, own_steps=True),
    "LocalSGD": Traits("local_sgd", compresses=True, own_steps=True),
    "FullySharded": Traits(advised=True),
    "Pipeline": Traits("pipeline", least_ranks=2, shares_batch=False, advised=True),
    "Tensor": Traits(fixed_size=True, least_ranks=2, shares_batch=False, advised=True),
    "Mesh": Traits("mesh", fixed_size=True),
}


def where(trait: Callable[[Traits], bool]) -> Tuple[str, ...]:
    """Return the names of the strategies for which `trait` is true, in the order of the table."""
    return tuple(name for name, traits in STRATEGIES.items() if trait(traits))


INDEPENDENT = where(lambda traits: traits.independent)
WHOLE_MODELS = where(lambda traits: traits.whole_models)

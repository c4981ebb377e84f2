"""Define the table of frameworks: one row for each that a script may be written for, with the traits that others need.

How the processes of a framework are told who and where they are is in the agent: `agent/frameworks/`, one file for each
row that names an adapter. What users read of a framework is in `advice/framework_words.py` and docs/frameworks/. A new
framework is a row here and these three; tests/house checks that each row has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Optional, Tuple

from trainmaster.wire.strategies import INDEPENDENT, STRATEGIES

TORCH = "Torch"


@dataclass(frozen=True)
class FrameworkTraits:
    """Hold what is true of a framework's scripts."""

    strategies: Tuple[str, ...]
    """The strategies that its scripts can follow; the others need servers or processes that it does not have."""
    adapter: Optional[str] = None
    """The module of the agent's `frameworks/` that makes its variables, files and companions. None: the variables of
    torchrun are enough. With an adapter, the roster of a group has a port for each rank."""
    imports: Tuple[str, ...] = ()
    """The packages whose import in a script shows that it is written for this framework (`wire/script_imports.py`)."""
    led_under: Tuple[str, ...] = ()
    """The strategies under which the first worker's end is the end of the job: the other replicas serve it."""
    independent_under: Tuple[str, ...] = ()
    """The strategies under which members restart individually; under the others, and elsewhere, the group is fixed."""
    one_process: bool = False
    """One process drives all devices of a replica, so that each replica has one rank."""
    has_slots: bool = False
    """It is told how many processes it may start in each replica: as many as there are GPUs, or whole cores."""
    takes_arguments: bool = False
    """`training.arguments` reach its scripts in a way of its own."""


_GROUPS = ("OneDevice", "Mirrored", "AllReduce")

FRAMEWORKS: Dict[str, FrameworkTraits] = {
    TORCH: FrameworkTraits(
        tuple(STRATEGIES),
        imports=("torch", "torchvision", "torchaudio", "lightning", "pytorch_lightning", "accelerate", "deepspeed"),
        independent_under=INDEPENDENT,
    ),
    "JAX": FrameworkTraits(
        (*_GROUPS, "FullySharded", "Pipeline", "Tensor"),
        adapter="jax",
        imports=("jax", "jaxlib", "flax", "optax", "haiku", "equinox", "orbax"),
    ),
    "XGBoost": FrameworkTraits(_GROUPS, adapter="xgboost", imports=("xgboost",)),
    "Horovod": FrameworkTraits(_GROUPS, adapter="horovod", imports=("horovod",)),
    "LightGBM": FrameworkTraits(_GROUPS, adapter="lightgbm", imports=("lightgbm",)),
    "TensorFlow": FrameworkTraits(
        ("OneDevice", "Mirrored", "AllReduce", "CentralStorage", "ParameterServer"),
        adapter="tensorflow",
        imports=("tensorflow", "tf_keras"),
        led_under=("ParameterServer",),
        one_process=True,
    ),
    "MPI": FrameworkTraits(
        ("OneDevice", "AllReduce"),
        adapter="mpi",
        imports=("mpi4py",),
        led_under=("OneDevice", "AllReduce"),
        one_process=True,
        has_slots=True,
    ),
    "Ray": FrameworkTraits(
        ("OneDevice", "AllReduce"),
        adapter="ray",
        imports=("ray",),
        led_under=("OneDevice", "AllReduce"),
        one_process=True,
        has_slots=True,
    ),
    "Spark": FrameworkTraits(
        ("OneDevice", "AllReduce"),
        adapter="spark",
        imports=("pyspark", "elephas"),
        led_under=("OneDevice", "AllReduce"),
        one_process=True,
        has_slots=True,
    ),
    "SageMaker": FrameworkTraits(
        _GROUPS, adapter="sagemaker", imports=("sagemaker_training",), one_process=True, takes_arguments=True
    ),
}


def is_led(framework: Optional[str], strategy: str) -> bool:
    """Return whether the first worker's end is the end of the job."""
    return strategy in FRAMEWORKS[framework or TORCH].led_under


ONE_PROCESS = tuple(name for name, traits in FRAMEWORKS.items() if traits.one_process)
TAKE_ARGUMENTS = tuple(name for name, traits in FRAMEWORKS.items() if traits.takes_arguments)


def has_ports(framework: Optional[str]) -> bool:
    """Return whether each rank of a group has a port of its own in the roster."""
    return FRAMEWORKS[framework or TORCH].adapter is not None

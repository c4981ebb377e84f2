"""Define the result of measuring a task: sizes of its model, speeds of the machine.

Bytes and seconds throughout. `None` where it could not be found out (a model too big to try, say).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple


@dataclass(frozen=True)
class ModelFacts:
    """Hold the sizes of a task's model and samples."""

    parameters: int  # numbers to train
    parameter_bytes: int  # of all of them, frozen ones too
    trained_bytes: int  # of those to train, and so of a gradient
    buffer_bytes: int
    optimizer_bytes: Optional[int]  # what the optimizer keeps beside all parameters
    largest_layer_bytes: int  # parameters of the biggest module without children
    layers: int  # parts that run one after the other, at most so many stages
    samples: int
    sample_bytes: int  # inputs and targets of one sample
    activation_bytes: Optional[int] = None  # kept for the backward pass, per sample
    boundary_bytes: Optional[int] = None  # what flows from layer to layer, per sample; the median
    samples_are_a_stream: bool = False  # they can only be iterated
    samples_in_memory: bool = False  # tensors or lists: to make a batch of them takes no time
    batch_norms: int = 0  # layers that keep running means of what they see of a batch


@dataclass(frozen=True)
class Timing:
    """Hold the seconds of one step on one device with `samples` samples; the fastest of several."""

    samples: int
    seconds: float


@dataclass(frozen=True)
class Exchange:
    """Hold the seconds of one all-reduce of `size` bytes between two ranks; the median of several."""

    size: int
    seconds: float


@dataclass(frozen=True)
class MachineFacts:
    """Hold how fast this machine computes the model, and how fast two ranks on it exchange."""

    devices: int  # GPUs, or cores where there are none
    device: str  # "GPU" or "core"
    compute: Tuple[Timing, ...]
    exchange: Tuple[Exchange, ...]
    slowest_stage: Tuple[float, ...] = ()  # its share of the computation: with 1 stage, with 2, ...; empty: not cut
    sharding: Tuple[Exchange, ...] = ()  # what spreading a layer of `size` bytes over two ranks adds to a step


@dataclass(frozen=True)
class Measured:
    """Hold the answer of `python -m trainmaster_trainer.measure`."""

    model: ModelFacts
    machine: Optional[MachineFacts] = None

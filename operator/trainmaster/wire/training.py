"""Define the TrainingPlan: the part of a TrainingJob that the trainer needs, as one JSON variable."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Optional, Tuple

from trainmaster.wire.data_worker_defaults import PREFETCH
from trainmaster.wire.sources import GitSource, PackageSource, UrlSource


@dataclass(frozen=True)
class Aim:
    """Hold which figure of an evaluation is to become better. `patience`: for how many evaluations that may fail."""

    metric: str
    mode: str  # "min" or "max"
    patience: int = 0


@dataclass(frozen=True)
class TrainingPlan:
    """Hold what to train and how, but not on which replicas.

    `command` is empty for a task. `strategy_options` are those of the chosen type, as in the YAML. `checkpoint_shared`
    says whether all replicas see the same checkpoint folder; where they do not, each keeps a full copy of its own.
    """

    strategy: str
    strategy_options: Dict[str, Any] = field(default_factory=dict)
    task: Optional[str] = None
    command: Tuple[str, ...] = ()
    slots: Optional[int] = None  # processes that a launcher of the framework's own may start in a worker; None: one
    framework: Optional[str] = None  # that the command is written for; None: torch
    arguments: Dict[str, Any] = field(default_factory=dict)
    steps: int = 0
    epochs: Optional[int] = None  # instead of steps: who has the samples knows how many steps these are
    global_batch_size: int = 0
    seed: int = 0
    precision: Optional[str] = None  # of the forward pass: "BF16" or "FP16"; None: as the model is
    max_gradient_norm: Optional[float] = None
    micro_batch_size: Optional[int] = None  # samples at once, of a rank
    compile: bool = False
    recompute: bool = False  # activations of each layer, in the backward pass
    ema: Optional[float] = None  # decay of the weights' moving average; None: there is none
    data_workers: Optional[int] = None  # processes of a rank that make batches ahead; None: what the cores allow
    prefetch: int = PREFETCH  # batches that each of them makes ahead
    evaluate_every: Optional[int] = None  # steps; None: after the last one only
    stop_early: Optional[Aim] = None
    working_directory: Optional[str] = None
    code: Optional[str] = None  # the SHA-256 of the bundle of code, in a pod
    code_url: Optional[UrlSource] = None
    code_git: Optional[GitSource] = None
    code_image: bool = False  # the code is mounted as it is
    packages: Optional[PackageSource] = None
    progress: Dict[str, str] = field(default_factory=dict)  # of a command: what its output says, by expression
    trackers: Optional[Dict[str, Dict[str, str]]] = None  # by the names in `wire.trackers`; None: what variables say
    commit: Optional[str] = None  # of the code, as `submit` says
    checkpoint_every: int = 50
    checkpoint_keep: int = 3
    checkpoint_best: Optional[Aim] = None  # whose checkpoint is kept beside the newest ones
    checkpoint_shared: bool = True
    resume_from: Optional[str] = None
    resume_job: Optional[str] = None  # instead of a folder: the job whose folder lies beside this one
    resume_step: Optional[int] = None
    checkpoint_url: Optional[str] = None  # of this job's checkpoints in an object store; None: they are in a folder
    checkpoint_endpoint: Optional[str] = None  # of that store, if it is not the vendor's own
    hang_seconds: Optional[float] = None  # a step that takes longer hangs; None: learn it from the job's own steps
    evaluation_seconds: Optional[float] = None  # likewise of an evaluation
    reproducible: bool = False
    memory_every: Optional[int] = None  # a snapshot in memory after so many steps; 0: none; None: as often as is cheap
    accelerator: Optional[str] = None  # "tpu": XLA devices, all of a replica driven by one rank

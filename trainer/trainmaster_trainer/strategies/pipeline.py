"""Pipeline: each rank holds a run of layers; a batch flows through them in micro-batches.

It is vertical model parallelism on torch.distributed.pipelining, with two schedules:

    GPipe   all forwards, then all backwards (Huang et al., NeurIPS 2019): every stage keeps the activations of all
            micro-batches
    1F1B    one forward, one backward in turn (PipeDream-Flush: Narayanan et al., ICML 2021): a stage keeps those of
            at most as many micro-batches as there are stages

    stage 0   F0 F1 F2 F3 .  .  B0 .  B1 ...          With p stages and m micro-batches of equal cost, either is idle
    stage 1      F0 F1 F2 F3 B0 .  B1 ...             (p-1)/(m+p-1) of the time: the bubble.

Memory per rank: a stage's parameters, gradients and moments, about 1/p of the model. Bytes per step: only what goes in
and out at the cuts, through memory between the CPUs of one host (`collectives/tensor_messages.py`).

The loss is that of OneDevice, step by step, but for the order of float32 sums (1e-5 relative), also where the batch
does not divide (`microbatches.py`); a layer that looks at its whole batch, such as BatchNorm, sees a micro-batch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from typing_extensions import override

from trainmaster_trainer.answers import loss_of
from trainmaster_trainer.data import Batch, Batches, Share
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.group import Group
from trainmaster_trainer.model_guard import without_trace
from trainmaster_trainer.strategies.axes import Axes
from trainmaster_trainer.strategies.microbatches import MicroBatch, Signature, signature, split
from trainmaster_trainer.strategies.partitioned import Partitioned
from trainmaster_trainer.strategies.relay import Relay, Relayed, Tensors
from trainmaster_trainer.strategies.stages import Layer, Stage, cut
from trainmaster_trainer.strategies.strategy import check_options
from trainmaster_trainer.structure import each_tensor, leaves
from trainmaster_trainer.task import Task
from trainmaster_trainer.validation import Evaluator

log = logging.getLogger(__name__)
SCHEDULES = {"GPipe": "ScheduleGPipe", "1F1B": "Schedule1F1B"}
PER_STAGE = 4  # micro-batches, unless the YAML says how many: idle for less than a fifth of the time


@dataclass(frozen=True)
class Timetable:
    """Hold the schedule and the number of micro-batches."""

    schedule: str = "1F1B"
    micro_batches: int | None = None

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> Timetable:
        """Return the timetable of `spec.strategy.pipeline`."""
        return cls(options.get("schedule", "1F1B"), options.get("microBatches"))

    def count(self, samples: int, stages: int) -> int:
        """Return into how many micro-batches each share of a batch is cut; `samples` is the size of the smallest share.

        The number is the same on all ranks: those that spread parameters gather them for each micro-batch.

        Raises:
            ConfigurationError: the share has too few samples.
        """
        count = self.micro_batches or min(PER_STAGE * stages, samples)
        if count > samples:
            raise ConfigurationError(
                f"spec.strategy.pipeline.microBatches: {count} are more than the {samples} samples of a batch. Lower "
                f"it to {samples} at most, or raise spec.training.globalBatchSize."
            )
        return count

    def torch_name(self, count: int, stages: int) -> str:
        """Return torch's name of the schedule: GPipe if there are fewer micro-batches than stages, else as asked."""
        return SCHEDULES["GPipe" if count < stages else self.schedule]


class Pipeline(Partitioned):
    """Pipeline holds the stages of a model, one per rank."""

    def __init__(self, task: Task, group: Group, options: Mapping[str, Any]) -> None:
        check_options("Pipeline", options, {"schedule": tuple(SCHEDULES), "microBatches": ()})
        self.build(task, group, Axes(pipeline=group.world_size))
        self.pipe = Pipe(self, Timetable.read(options))

    @override
    def divide(self, model: nn.Module) -> nn.Module:
        return stage_of(self.task, model, self.axes, self.group.rank)

    @override
    def step(self, batch: Batch) -> Tensor | None:
        return self.pipe.step(batch)

    @override
    def evaluate(self, trial: Evaluator) -> dict[str, float]:
        return self.evaluate_with(self.pipe.relayed, trial)


def stage_of(task: Task, model: nn.Module, axes: Axes, rank: int) -> Stage:
    """Return the layers that a rank holds.

    Raises:
        ConfigurationError: the model cannot be cut into so many, or the layers are not the model.
    """
    layers = task.model_layers(model)
    stages = cut(model, layers, axes.pipeline)
    check_chain(task, model, layers)
    return Stage(stages[axes.place(rank).pipeline])


def check_chain(task: Task, model: nn.Module, layers: Sequence[Layer]) -> None:
    """Compare the whole model's outputs for one sample with those of its layers in turn, to find a forgotten layer.

    Raises:
        ConfigurationError: the outputs differ.
    """
    with without_trace(model):  # dataset() may draw random numbers, too
        inputs = Batches(task.dataset(), 1, 1, 0, torch.device("cpu")).take(1, Share(0, 1)).inputs
    try:
        expected = _answers(model, inputs)
    except Exception as error:  # noqa: BLE001 (it may need a GPU, which it is not on yet, or more than one sample)
        log.warning("Whether model_layers() makes the model was not checked: %s", error)
        return
    found = _answers(Stage(layers), inputs)
    if len(found) != len(expected) or not all(map(_alike, found, expected)):
        names = ", ".join(name for name, _ in layers)
        raise ConfigurationError(
            f"spec.training.task: the layers of model_layers() ({names}), one after the other, give other outputs than "
            "the model. What comes out of each must be what goes into the next; put what the model's forward does "
            "between them into the layers."
        )


def _answers(model: nn.Module, inputs: Any) -> list[Tensor]:
    """Return the outputs of a model, the same at every call, even if it draws random numbers or changes inputs."""
    with without_trace(model), torch.no_grad():
        return leaves(model(each_tensor(inputs, Tensor.clone)))


def _alike(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(
        one.double(), other.double(), rtol=1e-3, atol=1e-5, equal_nan=True
    )


class Pipe:
    """Pipe is one rank's end of a pipeline: it takes training steps through torch's schedules."""

    def __init__(self, owner: Partitioned, timetable: Timetable) -> None:
        self._owner = owner
        self._timetable = timetable
        self._process_group = owner.mesh["pipeline"].get_group()
        self._relay = Relay(self._process_group, owner.group.device)
        self._stage: Any = owner.model
        self._schedules: dict[Signature, Any] = {}
        self.relayed = Relayed(self._stage, self._relay)

    def step(self, batch: Batch) -> Tensor | None:
        """Take one training step. Return the batch's mean loss on the last stage, None on the others."""
        owner, relay = self._owner, self._relay
        parts = split(batch, self._timetable.count(batch.smallest, relay.stages))
        key = (*signature(parts[0].inputs), ((len(parts),), torch.int64))
        if key not in self._schedules:
            self._schedules[key] = self._make_schedule(parts)
        schedule = self._schedules[key]
        self._weight = batch.weight(owner.axes.data * owner.axes.sharded)
        self._loss = torch.zeros((), device=owner.group.device)
        owner.share_buffers()
        owner.optimizer.zero_grad()
        inputs = [(part.inputs,) if relay.stage == 0 else () for part in parts]
        last = relay.stage == relay.stages - 1
        with _its_own_error():
            schedule.step(arg_mbs=inputs, target_mbs=parts if last else None, return_outputs=False)
        owner.update(batch.fraction_done)
        return self._loss if last else None

    def _mean_loss(self, outputs: Any, part: MicroBatch) -> Tensor:
        """Return a micro-batch's part of the mean loss of the batch."""
        real = outputs[: part.size] if isinstance(outputs, Tensor) else tuple(one[: part.size] for one in outputs)
        told = loss_of(self._owner.task, real, part.targets)
        self._owner.numerics.measure(told.metrics, part.size)
        loss = told.mean_for("Pipeline") * part.fraction
        self._loss += loss.detach()
        return self._owner.numerics.scaled(loss * self._weight)

    def _make_schedule(self, parts: list[MicroBatch]) -> Any:
        from torch.distributed import pipelining  # noqa: PLC0415 (half a second that other strategies need not wait)

        # One micro-batch, which changes nothing, shows the shapes that come into this stage and go out of it.
        with without_trace(self._stage):
            passed = self.relayed.pass_on(parts[0].inputs)
        if isinstance(self._stage, FSDPModule):
            self._stage.reshard()
        came, gave = map(_forms, passed)
        stage = pipelining.PipelineStage(
            self._stage,
            self._relay.stage,
            self._relay.stages,
            self._owner.group.device,
            input_args=came,
            output_args=gave,
            group=self._process_group,
        )
        kind = getattr(pipelining, self._timetable.torch_name(len(parts), self._relay.stages))
        return kind(stage, len(parts), loss_fn=self._mean_loss, scale_grads=False)


def _forms(values: Any) -> Tensors:
    """Return tensors of the same shapes without content."""
    return tuple(
        torch.empty(leaf.shape, dtype=leaf.dtype, device="meta").requires_grad_(leaf.requires_grad)
        for leaf in leaves(values)
    )


@contextmanager
def _its_own_error() -> Iterator[None]:
    """Raise the original error of a layer: torch wraps it, and its class and line would be lost."""
    try:
        yield
    except RuntimeError as error:
        if error.__cause__ is not None and "failed to run" in str(error).lower():
            raise error.__cause__ from None
        raise

"""Find the sizes of a task's model by making it and sending a few samples through."""

from __future__ import annotations

from statistics import median

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from trainmaster.wire.measured import ModelFacts

from trainmaster_trainer.answers import loss_of, make_model
from trainmaster_trainer.data import Batch, Batches, Share
from trainmaster_trainer.measure.layers import boundary_bytes, layers_of, size_of
from trainmaster_trainer.measure.optimizer import optimizer_bytes
from trainmaster_trainer.numerics import Numerics
from trainmaster_trainer.samples import own_collate
from trainmaster_trainer.strategies.stages import blocks_of
from trainmaster_trainer.task import Task

_TRIED_SAMPLES = 4


def describe(task: Task, numerics: Numerics) -> ModelFacts:
    """Return the sizes of the model, which is made once, on the CPU."""
    model = make_model(task)
    numerics.attach(model, torch.device("cpu"))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    samples = Batches(task.dataset(), _TRIED_SAMPLES, 1, 0, torch.device("cpu"), own=own_collate(task))
    batch = samples.take(1, Share(0, 1))
    half = _TRIED_SAMPLES // 2
    kept = _kept_bytes(task, model, batch) - _kept_bytes(task, model, batch.part(0, half))
    chain = layers_of(task, model)
    flowing = boundary_bytes(chain, batch.inputs)
    return ModelFacts(
        parameters=sum(parameter.numel() for parameter in trained),
        parameter_bytes=size_of(list(model.parameters())),
        trained_bytes=size_of(trained),
        buffer_bytes=size_of(list(model.buffers())),
        optimizer_bytes=optimizer_bytes(task, model),
        largest_layer_bytes=max(
            (size_of(list(module.parameters(recurse=False))) for module in model.modules()), default=0
        ),
        layers=max(1, len(blocks_of(chain))),
        samples=samples.count,
        samples_are_a_stream=samples.is_stream,
        samples_in_memory=samples.are_in_memory,
        sample_bytes=(size_of(batch.inputs) + size_of(batch.targets)) // _TRIED_SAMPLES,
        activation_bytes=max(0, kept) // (_TRIED_SAMPLES - half),
        batch_norms=sum(isinstance(one, _BatchNorm) and one.track_running_stats for one in model.modules()),
        boundary_bytes=int(median(flowing)) // _TRIED_SAMPLES if flowing else None,
    )


def _kept_bytes(task: Task, model: nn.Module, batch: Batch) -> int:
    """Return what is kept for the backward pass beside the parameters, some of it for each sample and some once."""
    own = {tensor.data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in own:
            kept[tensor.data_ptr()] = size_of(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss_of(task, model(batch.inputs), batch.targets)
    return sum(kept.values())

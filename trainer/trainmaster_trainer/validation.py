"""Validation tries a model on the task's validation samples, shared among ranks, each sample exactly once.

A rank's part is cut into batches of the size of its share of a training batch. Its sums are float64 and are added up in
the order of the parts, so the figures are those of one rank but for the last digits of single outputs, however the
samples divide. The random numbers that samples are made with are the same in every evaluation.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from typing_extensions import override

from trainmaster_trainer import randomness
from trainmaster_trainer.answers import figures_of, loss_of
from trainmaster_trainer.data import SampleOrder, Share
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.making import VALIDATION, Maker, as_dataset, check_has_all
from trainmaster_trainer.metric_names import VALIDATION_LOSS, check_same_names
from trainmaster_trainer.model_guard import ForwardState, eval_mode
from trainmaster_trainer.permutation import Indices
from trainmaster_trainer.samples import own_collate
from trainmaster_trainer.settings import Settings
from trainmaster_trainer.strategies.outside_changes import prints
from trainmaster_trainer.structure import to_device
from trainmaster_trainer.task import Task

Sums = dict[str, tuple[float, float]]  # by name: a sum, and over how much it is one


@dataclass(frozen=True)
class InOrder(SampleOrder):
    """InOrder takes the samples as they come: batch `step` of a share of all of them, counted from 1."""

    @override
    def share(self, step: int, share: Share) -> Indices:
        first, end = share.bounds(self.samples)
        begin = first + (step - 1) * self.batch_size
        return np.arange(begin, min(begin + self.batch_size, end))

    def batches(self, share: Share) -> int:
        """Return how many batches a share has."""
        first, end = share.bounds(self.samples)
        return -(-(end - first) // self.batch_size)


class Evaluator:
    """Evaluator evaluates a model: on the validation samples, where the task has some, and by its own evaluate().

    `trying` is told with which batch it begins, counted from 1, and 0 when it is through with them.
    """

    def __init__(
        self, settings: Settings, task: Task, device: torch.device, trying: Callable[[int], None] = lambda _: None
    ) -> None:
        self._plan, self._task, self._device, self._trying = settings.plan, task, device, trying
        self._dataset: Any = None
        self._count = 0
        self._is_open = False

    def check(self) -> None:
        """Check what the task has to evaluate, before the first step.

        Raises:
            ConfigurationError: its samples are none, or cannot be had by number; or evaluations are asked for, and it
                has nothing to evaluate.
        """
        self._open()
        kind = type(self._task)
        is_asked = self._plan.evaluate_every is not None
        if is_asked and self._dataset is None and kind.evaluate is Task.evaluate:
            raise ConfigurationError(
                f"spec.training.evaluateEverySteps: {kind.__name__} has nothing to evaluate. Let its "
                "validation_dataset() return samples, or write its evaluate(self, model), or remove the field."
            )

    def _open(self) -> None:
        if not self._is_open:
            before = randomness.Generators.now()
            randomness.seed_alike(self._plan.seed)  # the samples may be drawn
            samples, self._is_open = self._task.validation_dataset(), True
            before.put_back()
            if samples is not None:
                self._dataset, self._count = as_dataset(samples, VALIDATION)

    def sums(self, model: nn.Module, share: Share) -> list[Sums]:
        """Return the sums over each part of a share; none where the task has no validation samples."""
        self._open()
        if self._dataset is None:
            return []
        share_size = max(1, self._plan.global_batch_size // share.of)
        size = min(self._plan.micro_batch_size or share_size, share_size)
        order = InOrder(self._count, size, self._plan.seed)
        maker = Maker(self._dataset, order, own_collate(self._task), VALIDATION)
        begun = itertools.count(1)
        with eval_mode(model), torch.no_grad():
            found = [self._part(model, maker, order, part, begun) for part in share.each()]
        self._trying(0)
        return found

    def _part(self, model: nn.Module, maker: Maker, order: InOrder, part: Share, begun: Iterator[int]) -> Sums:
        sums: Sums = {}
        for number in range(1, order.batches(part) + 1):
            self._trying(next(begun))
            inputs, targets = maker.make(number, part)
            count = len(order.share(number, part))
            loss = loss_of(self._task, model(to_device(inputs, self._device)), to_device(targets, self._device))
            if loss.count is None or loss.metrics:
                check_has_all((inputs, targets), count)
            check_same_names(sums.keys() - {VALIDATION_LOSS} if sums else None, loss.metrics)
            samples = float(count) if loss.count is None else float(loss.count)
            total = float(loss.value) * (count if loss.count is None else 1)
            found = {VALIDATION_LOSS: (total, samples)}
            found |= {name: (float(value) * count, count) for name, value in loss.metrics.items()}
            sums = _added(sums, found)
        return sums

    def own(self, model: nn.Module) -> dict[str, float]:
        """Return the figures of the task's own evaluate()."""
        return figures_of(self._task, model)

    def together(self, parts: Iterable[Sums], own: dict[str, float]) -> dict[str, float]:
        """Return the figures: means of the sums of all parts, in this order, and the task's own.

        Raises:
            ConfigurationError: parts have sums of different names, or a name is that of two figures.
        """
        total: Sums = {}
        for part in filter(None, parts):
            check_same_names(total.keys() - {VALIDATION_LOSS} if total else None, part.keys() - {VALIDATION_LOSS})
            total = _added(total, part)
        means = {name: value / samples if samples else math.nan for name, (value, samples) in total.items()}
        if twice := sorted(means.keys() & own.keys()):
            raise ConfigurationError(
                f"spec.training.task: evaluate() of {type(self._task).__name__} gives {', '.join(twice)}, as do the "
                f"validation samples ({VALIDATION_LOSS}, and the metrics by their names). Choose another name."
            )
        return means | own

    @contextmanager
    def untouched(self, model: nn.Module) -> Iterator[None]:
        """Check that what is within leaves the model's parameters as they are, and put its buffers back.

        After the last step, when nothing comes that would be harmed, this does nothing.

        Raises:
            ConfigurationError: names a parameter that was changed.
        """
        if self._plan.evaluate_every is None:
            yield
            return
        inside, before = ForwardState(model), _prints(model)
        yield
        inside.put_back()
        after = _prints(model)
        changed = [name for name, number in before.items() if after.get(name) != number]
        if changed:
            raise ConfigurationError(
                f"spec.training.task: the evaluation changes the parameter {changed[0]} of the model, which goes on to "
                "be trained. Let evaluate() change a copy, as copy.deepcopy(model) makes one."
            )


def _prints(model: nn.Module) -> dict[str, int]:
    named = dict(model.named_parameters())
    return prints({name: one.cpu() if one.device.type == "xla" else one for name, one in named.items()})


def _added(one: Sums, other: Sums) -> Sums:
    nothing = (0.0, 0.0)
    return {
        name: (one.get(name, nothing)[0] + value, one.get(name, nothing)[1] + samples)
        for name, (value, samples) in other.items()
    }

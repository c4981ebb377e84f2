"""Numerics is how a step computes: precision and parts, the scale of its loss, the greatest length of its gradient.

    precision            the forward pass under torch's autocast in BF16 or FP16 (Micikevicius et al., "Mixed precision
                         training", ICLR 2018). Parameters, gradients and moments stay as the task made them, and what
                         the model gives is FP32 again before the loss and the figures of merit look at it
    loss scale           with FP16 alone, whose smallest number is 6e-8: gradients are computed of the loss times a
                         scale, and divided by it before the optimizer sees them. A step whose gradients overflow is
                         not taken, and the scale is halved; after 2,000 steps without one it is doubled. A loss that
                         is no number is left out of such a step's, as long as the model is sound. (LocalSGD,
                         ParameterServer and Gossip have no FP16, and there such a loss ends the attempt)
    max gradient norm    a longer gradient is shortened to this length (Pascanu et al., "On the difficulty of training
                         recurrent neural networks", ICML 2013); the length is that of the whole model's gradient for
                         the whole batch, wherever its parts are
    micro-batch size     a rank's share of the batch is computed in parts of about so many samples, whose gradients add
                         up to that of the share: activations of one part at a time are in memory. A layer that looks
                         at its whole batch, such as BatchNorm, sees a part

All ranks of a group come to the same verdict, since all know the same length. The scale outlives the process like an
optimizer's moments (`checkpoint/state.py`).

A strategy calls `take_step` in place of the optimizer's step.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer
from trainmaster.wire.training import TrainingPlan

from trainmaster_trainer.answers import take_step
from trainmaster_trainer.counted_loss import Loss, factor_of
from trainmaster_trainer.data import Batch
from trainmaster_trainer.errors import NonFiniteLossError
from trainmaster_trainer.metric_names import check_same_names
from trainmaster_trainer.structure import each_tensor

log = logging.getLogger(__name__)
FP16 = "FP16"
_DTYPES = {"BF16": torch.bfloat16, FP16: torch.float16}
_EPSILON = 1e-6  # as torch.nn.utils.clip_grad_norm_ has it
Quietly = Callable[[], AbstractContextManager[Any]]
Norm = Callable[[list[nn.Parameter]], Tensor]  # of the gradients of these parameters, and of those on other ranks


def norm_here(parameters: list[nn.Parameter]) -> Tensor:
    """Return the Euclidean length of these parameters' gradients, which are all here; a tensor without dimensions."""
    length: Tensor = get_total_norm([_numbers(parameter) for parameter in parameters])
    return length


def squares_here(parameter: nn.Parameter) -> Tensor:
    """Return the sum of the squares of a gradient, or of the part of it that is here, as float64."""
    length: Tensor = torch.linalg.vector_norm(_numbers(parameter))
    return length.double().square()


def _numbers(parameter: nn.Parameter) -> Tensor:
    """Return the numbers of a gradient that are here, to read or change: those of some rows, where it is sparse."""
    gradient = parameter.grad
    assert gradient is not None  # noqa: S101 (`settle` chose those that have one)
    if gradient.is_sparse:
        parameter.grad = gradient.coalesce()  # rows named twice count once, with their sum
        numbers: Tensor = parameter.grad.values()
        return numbers
    return gradient.to_local() if isinstance(gradient, DTensor) else gradient


class LossScale:
    """LossScale is the factor of the loss that keeps small gradients from being lost in 16 bits."""

    FIRST, LEAST, PATIENCE = 65536.0, 2.0**-14, 2000

    def __init__(self) -> None:
        self.value = self.FIRST
        self._good = 0  # steps since it changed
        self.refused = False  # the last step was not taken

    def judge(self, finite: bool) -> bool:
        """Note whether a step's gradients are finite. Return whether it may be taken.

        Raises:
            NonFiniteLossError: they overflow at any scale.
        """
        self.refused = not finite
        if finite:
            self._good += 1
            if self._good == self.PATIENCE:
                self.value, self._good = 2 * self.value, 0
            return True
        self.value, self._good = self.value / 2, 0
        log.info("Gradients overflowed in FP16: this step is not taken, and the loss scale is %g now.", self.value)
        if self.value < self.LEAST:
            raise NonFiniteLossError(
                "Gradients overflow in FP16, and they did so step after step though the loss scale was lowered to "
                f"{self.value:g}. Set spec.training.precision to BF16 or FP32, or look at these steps' samples."
            )
        return False

    def state(self) -> dict[str, float]:
        """Return what must outlive the process, as JSON."""
        return {"value": self.value, "good": self._good}

    def restore(self, state: dict[str, float]) -> None:
        """Take over what `state` returned."""
        self.value, self._good = float(state["value"]), int(state["good"])


class Numerics:
    """Numerics computes the steps of one training."""

    def __init__(
        self, precision: str | None = None, max_norm: float | None = None, micro_batch: int | None = None
    ) -> None:
        self.max_norm = max_norm
        self.micro_batch = micro_batch
        self.loss_scale = LossScale() if precision == FP16 else None
        self._dtype = _DTYPES[precision] if precision else None
        self._counted: Tensor | None = None  # here, in the step's backward passes so far
        self._factor: float | None = None  # of this step's gradients, which are those of a sum
        self._measured: dict[str, Tensor] = {}  # sums over samples, in the step's parts so far
        self._measured_samples = 0

    @classmethod
    def from_plan(cls, plan: TrainingPlan) -> Numerics:
        """Return the numerics that the YAML asks for."""
        return cls(plan.precision, plan.max_gradient_norm, plan.micro_batch_size)

    def attach(self, module: nn.Module, device: torch.device) -> None:
        """Let every call of the module compute in this precision, and give its outputs as FP32."""
        if self._dtype is None:
            return
        entered: list[ExitStack] = []

        def enter(_module: nn.Module, _inputs: Any) -> None:
            entered.append(ExitStack())
            entered[-1].enter_context(torch.autocast(device.type, dtype=self._dtype))

        def leave(_module: nn.Module, _inputs: Any, outputs: Any) -> Any:
            entered.pop().close()
            return each_tensor(outputs, self._widened)

        module.register_forward_pre_hook(enter)
        module.register_forward_hook(leave, always_call=True)

    def _widened(self, tensor: Tensor) -> Tensor:
        return tensor.float() if tensor.dtype == self._dtype else tensor

    def scaled(self, loss: Tensor) -> Tensor:
        """Return the loss times the loss scale, from which the backward pass begins."""
        return loss * self.loss_scale.value if self.loss_scale else loss

    def backward(
        self,
        batch: Batch,
        loss_of_part: Callable[[Batch], Loss],
        weight: float = 1.0,
        quietly: Quietly = nullcontext,
    ) -> Tensor:
        """Add up the gradients of `weight` times the batch's mean loss, part by part. Return this mean loss.

        Of a sum with a count it is the sum by the number of samples, until `over_counts`.
        `quietly` is around all parts but the last: gradients stay where they are.
        """
        *others, last = batch.parts(self.micro_batch)
        losses = []
        for part in others:
            with quietly():
                losses.append(self._backward(loss_of_part(part), weight, part.size, batch.size))
        loss = loss_of_part(last)
        batch.check_has_all(is_counted=loss.count is not None and not loss.metrics)
        losses.append(self._backward(loss, weight, last.size, batch.size))
        return torch.stack(losses).sum() if others else losses[0]

    def _backward(self, loss: Loss, weight: float, part: int, samples: int) -> Tensor:
        self.measure(loss.metrics, part)
        fraction = part / samples
        if loss.count is not None:
            fraction = 1 / samples
            self._counted = loss.count if self._counted is None else self._counted + loss.count
        self.scaled(loss.value * (weight * fraction)).backward()  # type: ignore[no-untyped-call]
        told: Tensor = loss.value.detach() * fraction
        return told

    def measure(self, metrics: Mapping[str, Tensor], samples: int) -> None:
        """Note the metrics of so many samples.

        Raises:
            ConfigurationError: they have other names than those of the parts before.
        """
        check_same_names(self._measured if self._measured_samples else None, metrics)
        for name, value in metrics.items():
            total = value * samples
            self._measured[name] = self._measured[name] + total if name in self._measured else total
        self._measured_samples += samples

    def take_measured(self) -> dict[str, Tensor]:
        """Return the metrics' means over the samples since the last call."""
        measured, samples = self._measured, max(1, self._measured_samples)
        self._measured, self._measured_samples = {}, 0
        return {name: total / samples for name, total in measured.items()}

    def over_counts(self, loss: Tensor, samples: int, total: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the loss that `backward` gave, by the count of the whole batch of so many samples where it is a sum.

        Called once between a step's backward pass and its `settle`, by all ranks together; `total` adds up over those
        with other samples. The loss is such that its mean over the ranks, by their samples, is that of the batch.

        Raises:
            ConfigurationError: the count is negative, or no number.
        """
        counted, self._counted, self._factor = self._counted, None, None
        if counted is None:
            return loss
        self._factor = factor_of(samples, total(counted))
        return loss * self._factor

    def take_step(self, optimizer: Optimizer, norm: Norm = norm_here) -> None:
        """Take the optimizer's step with the gradients of the scaled loss, or none where they are not finite.

        `norm` is given where other ranks hold other parameters; they all call it together.

        Raises:
            NonFiniteLossError: gradients are not finite at any loss scale.
        """
        parameters = (one for group in optimizer.param_groups for one in group["params"])
        if self.settle(parameters, norm):
            take_step(optimizer)

    def settle(self, parameters: Iterable[nn.Parameter], norm: Norm = norm_here) -> bool:
        """Undo the loss scale and shorten the gradients. Return whether a step may be taken with them.

        Raises:
            NonFiniteLossError: they are not finite at any loss scale.
        """
        having = [one for one in parameters if one.grad is not None]
        if self._factor is not None:  # a scale of the loss goes on to hold for what is divided here
            for parameter in having:
                _numbers(parameter).mul_(self._factor)
        if self.loss_scale is None and self.max_norm is None:
            return True
        length = norm(having)
        factor = torch.ones_like(length)
        if self.loss_scale:
            factor /= self.loss_scale.value
            if not self.loss_scale.judge(math.isfinite(length.item())):
                return False
        if self.max_norm is not None:
            factor *= (self.max_norm / (length * factor + _EPSILON)).clamp(max=1.0)
        for parameter in having:
            _numbers(parameter).mul_(factor)
        return True

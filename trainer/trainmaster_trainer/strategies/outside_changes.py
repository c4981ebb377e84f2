"""Notice parameters that change outside of the optimizer's step, where a strategy would lose or repeat the change.

A forward pass may move buffers, such as running means; every strategy carries them along. Some move parameters too:
the target network of MoCo (He et al., CVPR 2020) or BYOL follows the trained one, `nn.Embedding(max_norm=...)` shortens
the rows that it looks up. Ranks that each have all parameters and move them alike stay equal (`check_equal`). Where
others hold them, or a pass is made for something else than its step, the change would be lost or made twice without a
word (`OutsideChanges`).

Checks that read numbers run in so few steps that they cost nothing; `check_same_trained` runs in each, and reads none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from trainmaster_trainer.errors import ConfigurationError, CopiesDifferError

Named = Mapping[str, Tensor]
EARLY = 64  # steps after the start of a process within which copies are compared; rounding needs more to add up
TOLERANCE = 1e-4  # of a parameter, by which copies on unlike processors may differ; one digit, where digits are few
_OTHERS = "choose AllReduce or OneDevice"
_WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def is_looked_at(number: int) -> bool:
    """Return whether call `number` is checked: the 1st, 2nd, 4th, 8th and so on.

    Not the first alone: an average of weights that are still equal does not move yet.
    """
    return number & (number - 1) == 0


class OutsideChanges:
    """Steady refuses a module whose calls in training change `parameters()`; its error names `what`."""

    def __init__(self, what: str, module: nn.Module, parameters: Callable[[], Named]) -> None:
        self._what = what
        self._parameters = parameters
        self._calls = 0
        self._before: dict[str, int] | None = None
        module.register_forward_pre_hook(self._enter)
        # Before those that were there earlier: `fully_shard` drops with one of them what was gathered.
        module.register_forward_hook(self._leave, prepend=True)

    def _enter(self, module: nn.Module, _inputs: Any) -> None:
        self._before = None
        if module.training and torch.is_grad_enabled():
            self._calls += 1
            if is_looked_at(self._calls):
                self._before = prints(self._parameters())

    def _leave(self, _module: nn.Module, _inputs: Any, _outputs: Any) -> None:
        if self._before is not None:
            check_unchanged(self._what, self._before, prints(self._parameters()))
            self._before = None


def trained(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that get a gradient."""
    return [one for one in model.parameters() if one.requires_grad]


def check_same_trained(what: str, before: Sequence[nn.Parameter], model: nn.Module, *, may_rest: bool) -> None:
    """Check that the same parameters get a gradient as `before`; or fewer, if some `may_rest`.

    Raises:
        ConfigurationError: names a parameter that `what` would ignore, or would wait for.
    """
    now = trained(model)
    if list(map(id, now)) == list(map(id, before)):
        return
    changed = {*now} - {*before} if may_rest else {*before} ^ {*now}
    if not changed:
        return
    name = next(name for name, one in model.named_parameters() if one in changed)
    raise ConfigurationError(
        f"spec.training.task: requires_grad of the model's parameter {name} has changed since the first step, whose "
        f"trained parameters are those that {what} adds up gradients of. Leave requires_grad as model() sets it, and "
        "give what is to rest for a while a learning rate of 0, in a group of the optimizer of its own; or choose "
        "OneDevice or LocalSGD."
    )


def frozen(model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters that no optimizer steps."""
    return {name: one for name, one in model.named_parameters() if not one.requires_grad}


def prints(parameters: Named) -> dict[str, int]:
    """Return a number for each parameter that nearly always changes with it: the sum of its bits as whole numbers."""
    found = {}
    with torch.no_grad():
        for name, tensor in parameters.items():
            here = tensor.to_local() if isinstance(tensor, DTensor) else tensor.detach()
            numbers = torch.view_as_real(here) if here.is_complex() else here
            bits = numbers.view(_WHOLE[numbers.element_size()])
            found[name] = int(bits.sum(dtype=bits.dtype))  # which may wrap round; as fast as memory
    return found


def marks(parameters: Named) -> dict[str, int]:
    """Return numbers as `prints` does that also change when a parameter is written without a change of its values."""
    found = prints(parameters)
    written = {name: (one.data_ptr(), one._version) for name, one in parameters.items()}  # noqa: SLF001 (autograd's)
    return {name: hash((found[name], *written[name])) for name in found}


def check_unchanged(what: str, before: Mapping[str, int], after: Mapping[str, int], cure: str = _OTHERS) -> None:
    """Check that a forward pass has left the parameters as they were.

    Raises:
        ConfigurationError: names a parameter that it has changed, and why that does not go with `what`.
    """
    changed = [name for name, number in before.items() if after.get(name, number) != number]
    if changed:
        raise ConfigurationError(
            f"spec.training.task: the forward pass of the model changes its parameter {changed[0]}, as target "
            f"networks and nn.Embedding(max_norm=...) do. With {what} such a change would be lost, or made more than "
            f"once in a step. Keep what a forward pass changes in buffers, or {cure}."
        )


def check_equal(parameters: Named, device: torch.device) -> None:
    """Check that all ranks have the same parameters, except for rounding. All ranks call it together.

    Raises:
        CopiesDifferError: names one that differs. It may be the task's doing, or damage to one rank's memory.
    """
    names, tensors = list(parameters), [one.detach() for one in parameters.values()]
    sums, lengths = (
        torch.stack([measure(tensor).double() for tensor in _real(tensors)]).to(device)
        for measure in (torch.sum, torch.linalg.vector_norm)
    )
    broken = ~(sums.isfinite() & lengths.isfinite())  # on some ranks, perhaps: they compare with nothing
    figures = torch.stack([sums.where(~broken, 0.0), lengths.where(~broken, 0.0), broken.double()])
    least, most = figures.clone(), figures
    dist.all_reduce(least, dist.ReduceOp.MIN)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    tolerance = torch.tensor([_tolerance(tensor.dtype) for tensor in tensors], dtype=torch.float64, device=device)
    # What all ranks know, so that all raise.
    is_apart = (most[2] > least[2]) | ((most[2] == 0) & (most[0] - least[0] > tolerance * least[1]))
    if apart := is_apart.nonzero().flatten().tolist():
        raise CopiesDifferError(
            f"The ranks' copies of the parameter {names[apart[0]]} have become different, though the ranks took the "
            "same steps. If it happens again, spec.training.task does it: the forward pass changes the parameter by "
            "the samples that it sees, as nn.Embedding(max_norm=...) does, or the optimizer draws random numbers, "
            "which are other ones on each rank. Leave that out, or choose OneDevice, LocalSGD or Gossip. If it does "
            "not, a device or its memory was at fault."
        )


def _tolerance(dtype: torch.dtype) -> float:
    has_digits = dtype.is_floating_point or dtype.is_complex
    return max(TOLERANCE, torch.finfo(dtype).eps) if has_digits else TOLERANCE


def _real(tensors: Iterable[Tensor]) -> Iterable[Tensor]:
    for tensor in tensors:
        yield (torch.view_as_real(tensor) if tensor.is_complex() else tensor).float()

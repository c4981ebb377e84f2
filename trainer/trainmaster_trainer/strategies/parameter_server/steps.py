"""Take the steps of a server's optimizer: of all parameters as one where that can be, else of each, fused or not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from torch import Tensor, nn
from torch.optim import Optimizer

from trainmaster_trainer.flat_buffers import FlatLayout
from trainmaster_trainer.strategies.parameter_server.as_one import AsOne
from trainmaster_trainer.strategies.parameter_server.fused import Fused

Step = Callable[[Optimizer], None]


class Steps:
    """Steps takes the steps of an optimizer of `parameters`, which lie in `flat` as the layout says."""

    def __init__(
        self, optimizer: Optimizer, parameters: Mapping[str, nn.Parameter], layout: FlatLayout, flat: list[Tensor]
    ) -> None:
        self._optimizer, self._parameters, self._layout = optimizer, parameters, layout
        self._fused = Fused(optimizer)
        fits = self._fused.takes_all and AsOne.fits(optimizer, parameters, flat)
        self._as_one = AsOne(optimizer, parameters, layout, flat[0]) if fits else None
        self._seen: list[Tensor] | None = None
        self._views: dict[str, Tensor] = {}

    def take(self, gradients: list[Tensor], absent: Collection[str], step: Step) -> None:
        """Take a step by `step(optimizer)`. Gradients lie like the parameters; those named in `absent` have none."""
        if self._as_one and not absent and self._as_one.is_ready():
            step(self._as_one.optimizer(gradients[0]))
            self._as_one.share_out()
            return
        if self._as_one:
            self._as_one.part()
        for name, parameter in self._parameters.items():
            parameter.grad = None if name in absent else self._named(gradients)[name]
        with self._fused.steps():
            step(self._optimizer)

    def _named(self, gradients: list[Tensor]) -> dict[str, Tensor]:
        if gradients is not self._seen:  # with synchronous steps they are always in the same place
            self._seen, self._views = gradients, self._layout.views(gradients)
        return self._views

    def forget(self) -> None:
        """Drop the joined optimizer, as the optimizer has another state now."""
        if self._as_one:
            self._as_one.forget()

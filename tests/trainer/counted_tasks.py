"""A task whose loss is a mean over the tokens that count, of which samples have different numbers."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Optimizer
from trainmaster_trainer.task import Samples, Task
from typing_extensions import override

LENGTH, TOKENS, IGNORED = 12, 20, -100


class Tokens(Task):
    """The next number of a row, as far as the row goes. With `pair` False, the loss is torch's mean."""

    def __init__(self, pair: bool = True) -> None:
        self.pair = pair

    @override
    def model(self) -> nn.Module:
        return nn.Sequential(nn.Embedding(TOKENS, 8), nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, TOKENS))

    @override
    def dataset(self) -> Samples:
        generator = torch.Generator().manual_seed(0)
        rows = torch.randint(1, TOKENS, (64, LENGTH), generator=generator)
        lengths = torch.randint(0, LENGTH, (64,), generator=generator)  # some samples have nothing that counts
        following = ((rows + 1) % TOKENS).masked_fill(torch.arange(LENGTH)[None] >= lengths[:, None], IGNORED)
        return rows, following

    @override
    def loss(self, outputs: Any, targets: Any) -> Tensor | tuple[Tensor, Tensor]:
        told = outputs.flatten(0, 1), targets.flatten()
        if not self.pair:
            return cross_entropy(*told, ignore_index=IGNORED)
        return cross_entropy(*told, ignore_index=IGNORED, reduction="sum"), (targets != IGNORED).sum()

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> Optimizer:
        return SGD(parameters, lr=0.5)


class Split(Tokens):
    """Of which Tensor can split the layers."""

    @override
    def tensor_plan(self, model: nn.Module) -> dict[str, ParallelStyle]:
        return {"1": ColwiseParallel(), "3": RowwiseParallel()}

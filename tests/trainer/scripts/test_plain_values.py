"""What may differ between ranks in an optimizer's plain values, and what not."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from trainmaster_trainer.checkpoint import trees
from trainmaster_trainer.scripts.plain_values import digest_of


def digest(loss: float, rate: float = 0.1) -> str:
    """Of an LBFGS whose closure has given this loss, as that of one rank's samples."""
    parameter = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.LBFGS([parameter], lr=rate, max_iter=1)

    def closure() -> Tensor:
        parameter.grad = torch.ones(1)  # the mean over all ranks
        return torch.tensor(loss)

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    assert optimizer.state_dict()["state"][0]["prev_loss"] == loss
    return digest_of(trees.Writer("optimizer", "optimizer", as_bytes=False).tree(optimizer.state_dict()))


def test_a_note_of_a_ranks_own_loss_is_no_difference() -> None:
    assert digest(1.0) == digest(2.0)
    assert digest(1.0) != digest(1.0, rate=0.2)

"""Rates that differ between ranks are told before a checkpoint has rank 0's for all of them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from trainmaster_trainer.checkpoint import trees
from trainmaster_trainer.scripts.plain_values import digest_of

from tests.trainer.ranks import NewJob

TOLD = "optimizer.state_dict()['param_groups'][0]['lr'] is 0.5 on rank 0 and 0.05 on rank 1"


@pytest.mark.parametrize("averaged", [False, True])
def test_rates_of_a_divided_model_are_equal_on_all_ranks(new_job: NewJob, averaged: bool) -> None:
    """Each rank has parts of its own, so its weights do not tell; and after a step more the rates are equal again."""
    job = new_job("job", task=None, command=("python", "script.py"), steps=0, global_batch_size=0, checkpoint_every=1)
    for when, *said in job.call(2, "plateau_scripts:plateau", averaged=averaged):
        assert when == ("the end" if averaged else "step 3")
        assert all(TOLD in one and "averaged over all ranks" in one for one in said)


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

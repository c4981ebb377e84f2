"""Rates that differ between ranks are told before a checkpoint has rank 0's for all of them."""

from __future__ import annotations

import pytest

from tests.trainer.ranks import NewJob

TOLD = "optimizer.state_dict()['param_groups'][0]['lr'] is 0.5 on rank 0 and 0.05 on rank 1"


@pytest.mark.parametrize("averaged", [False, True])
def test_rates_of_a_divided_model_are_equal_on_all_ranks(new_job: NewJob, averaged: bool) -> None:
    """Each rank has parts of its own, so its weights do not tell; and after a step more the rates are equal again."""
    job = new_job("job", task=None, command=("python", "script.py"), steps=0, global_batch_size=0, checkpoint_every=1)
    for when, *said in job.call(2, "plateau_scripts:plateau", averaged=averaged):
        assert when == ("the end" if averaged else "step 3")
        assert all(TOLD in one and "averaged over all ranks" in one for one in said)

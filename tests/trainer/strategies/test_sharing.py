"""Buffers and extra state, which each rank moves by its own samples, are the first one's on all ranks."""

from __future__ import annotations

import pytest
from trainmaster_trainer.checkpoint.load import read

from tests.trainer.ranks import NewJob, Options

STRATEGIES: dict[str, tuple[Options, int]] = {
    "AllReduce": ({"strategy": "AllReduce"}, 1),
    "Mirrored": ({"strategy": "Mirrored"}, 2),
    "CentralStorage": ({"strategy": "CentralStorage"}, 2),
    "FullySharded": ({"strategy": "FullySharded"}, 1),
    "reproducible": ({"strategy": "AllReduce", "reproducible": True}, 1),
    "Mesh": ({"strategy": "Mesh", "strategy_options": {"data": 2}}, 1),
}


OTHERS = ("uint64", "bool", "complex64", "float8_e4m3fn")


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, "int16") for name in STRATEGIES), *(("AllReduce", dtype) for dtype in OTHERS)]
)
def test_buffers_may_be_of_any_dtype_that_a_checkpoint_holds(new_job: NewJob, name: str, dtype: str) -> None:
    strategy, inside = STRATEGIES[name]
    plan: Options = {
        "task": "late_tasks:WithCounter",
        "arguments": {"dtype": dtype},
        "global_batch_size": 16,
        **strategy,
    }
    whole = new_job("whole", **plan).run(2, ranks_per_pod=inside)
    job = new_job("parts", **plan).but(steps=4).run(2, ranks_per_pod=inside)
    job = job.but(steps=6).run(2, attempt=2, ranks_per_pod=inside)
    assert job.losses() == whole.losses()
    assert read(job.checkpoints(), 6).state.tensors["model/2.count"].bool().any()


@pytest.mark.parametrize("name", ["AllReduce", "Mirrored"])
def test_extra_state_is_the_same_on_all_ranks_as_after_a_restart(new_job: NewJob, name: str) -> None:
    strategy, inside = STRATEGIES[name]
    plan: Options = {"task": "late_tasks:WithMemory", **strategy}
    whole = new_job("whole", **plan).run(2, ranks_per_pod=inside)
    job = new_job("parts", **plan).but(steps=4).run(2, ranks_per_pod=inside)
    job = job.but(steps=6).run(2, attempt=2, ranks_per_pod=inside)
    assert job.losses() == whole.losses()
    assert job.manifest(6)["model_sha256"] == whole.manifest(6)["model_sha256"]

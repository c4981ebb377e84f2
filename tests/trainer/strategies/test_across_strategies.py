"""One checkpoint for all strategies: whoever wrote it, any other goes on as if nothing had changed."""

import pytest

from tests.trainer.ranks import NewJob, Options

TASK = {"task": "split_tasks:TwoGroups", "global_batch_size": 30, "checkpoint_every": 2}
Leg = tuple[str, Options, int]  # strategy, options, ranks

CHAINS: dict[str, list[Leg]] = {
    "sharded, one, all-reduce": [("FullySharded", {}, 3), ("OneDevice", {}, 1), ("AllReduce", {}, 2)],
    "pipeline, all-reduce, one": [("Pipeline", {}, 3), ("AllReduce", {}, 2), ("OneDevice", {}, 1)],
    "sharded, one, tensor, mesh": [
        ("FullySharded", {}, 3),
        ("OneDevice", {}, 1),
        ("Tensor", {}, 2),
        ("Mesh", {"sharded": 2, "tensor": 2}, 4),
        ("OneDevice", {}, 1),
        ("Mesh", {"pipeline": 2, "data": 2}, 4),
        ("FullySharded", {}, 2),
    ],
    "all-reduce, sharded, one": [("AllReduce", {}, 2), ("FullySharded", {}, 4), ("OneDevice", {}, 1)],
}


@pytest.mark.parametrize(
    ("chain", "optimizer", "shared"),
    [
        *((chain, "AdamW", True) for chain in CHAINS),
        *((chain, "Adagrad", True) for chain in list(CHAINS)[:1]),
        *((chain, "AdamW", False) for chain in list(CHAINS)[:1]),
    ],
)
def test_the_next_loss_is_what_it_would_have_been(new_job: NewJob, chain: str, optimizer: str, shared: bool) -> None:
    """Also from folders of the workers' own, where each gets all of it."""
    task = {**TASK, "arguments": {"noise": False, "optimizer": optimizer}}
    legs = CHAINS[chain]
    expected = new_job("one", strategy="OneDevice", **task).but(steps=2 * len(legs)).run(1)
    job = new_job("chain", **task).but(checkpoint_shared=shared)
    for number, (strategy, options, world) in enumerate(legs, start=1):
        job = job.but(strategy=strategy, strategy_options=options, steps=2 * number).run(world, attempt=number)
    assert job.losses() == pytest.approx(expected.losses(), rel=2e-5)


def test_the_same_weights_have_the_same_hash_whoever_writes_them(new_job: NewJob) -> None:
    still = {**TASK, "arguments": {"noise": False, "learning_rate": 0.0}, "steps": 1, "checkpoint_every": 1}
    hashes = set()
    for strategy, options, world in (leg for legs in CHAINS.values() for leg in legs):
        job = new_job(f"{strategy}-{len(str(options))}-{world}", strategy=strategy, strategy_options=options, **still)
        if not job.folder.exists():
            hashes.add(job.run(world).manifest(1)["model_sha256"])
    assert len(hashes) == 1

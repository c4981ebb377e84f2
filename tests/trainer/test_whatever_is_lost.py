"""Whatever is lost at whatever step, the model at the end is that of the run that nobody disturbed.

Pods have folders of their own for checkpoints, so a lost pod takes its snapshots and its checkpoints along.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace

import pytest

from tests.trainer.ranks import Job, NewJob, Options

STEPS = 13
PLAN: Options = {
    "task": "drawing_tasks:Drawing",
    "arguments": {"seconds": 0.01, "running_means": True},
    "global_batch_size": 17,
    "steps": STEPS,
    "checkpoint_every": 4,
    "memory_every": 1,
    "checkpoint_shared": False,
}
WITHOUT_MEANS: Options = {"arguments": {"seconds": 0.01}}


@dataclass(frozen=True)
class Way:
    """A way to train, in `pods` of `ranks` each."""

    strategy: str
    pods: int = 2
    ranks: int = 1
    options: Options = field(default_factory=dict)
    plan: Options = field(default_factory=dict)

    def __str__(self) -> str:
        settings = {**self.options, **{name: value for name, value in self.plan.items() if name != "arguments"}}
        return "-".join(
            [self.strategy, f"{self.pods}x{self.ranks}", *(f"{name}={settings[name]}" for name in settings)]
        )

    def job(self, new_job: NewJob, name: str) -> Job:
        """Return a job that trains so."""
        job = new_job(name, strategy=self.strategy, strategy_options=self.options, **{**PLAN, **self.plan})
        return replace(job, memory=True)


WAYS = [
    Way("OneDevice", pods=1),
    Way("Mirrored", pods=1, ranks=2),
    Way("CentralStorage", pods=1, ranks=2),
    Way("AllReduce", pods=3),
    Way("AllReduce", ranks=2, options={"algorithm": "Hierarchical"}),
    Way("AllReduce", options={"algorithm": "Ring"}, plan={"micro_batch_size": 2, **WITHOUT_MEANS}),
    Way("AllReduce", plan={"precision": "FP16", "max_gradient_norm": 0.5}),
    Way("AllReduce", plan={"reproducible": True}),
    Way("AllReduce", options={"compression": "INT8"}),
    Way("FullySharded"),
    Way("FullySharded", ranks=2),
    Way("Pipeline", plan=WITHOUT_MEANS),
    Way("Tensor", plan=WITHOUT_MEANS),
    Way("Mesh", ranks=2, options={"data": 2, "tensor": 2}, plan=WITHOUT_MEANS),
    Way("Mesh", ranks=2, options={"pipeline": 2, "sharded": 2}, plan=WITHOUT_MEANS),
]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_the_model_is_that_of_a_calm_run(new_job: NewJob, way: Way) -> None:
    """A pod is lost before the first checkpoint, then a rank, and then two pods before the same checkpoint."""
    world, last = way.pods * way.ranks, way.pods - 1
    calm = way.job(new_job, "calm").run(world, ranks_per_pod=way.ranks)
    job = way.job(new_job, "disturbed")
    for attempt, (step, lost) in enumerate([(2, [0]), (6, []), (9, [last]), (10, [0])], start=1):
        running = job.start(world, attempt, ranks_per_pod=way.ranks)
        running.reach(step)
        running.kill()
        for pod in lost:
            shutil.rmtree(job.folder / f"memory-{pod}")
            shutil.rmtree(job.checkpoints(pod))
    job.run(world, attempt=5, ranks_per_pod=way.ranks)
    hashes = {job.manifest(STEPS, pod)["model_sha256"] for pod in range(way.pods)}
    assert hashes == {calm.manifest(STEPS)["model_sha256"]}
    assert [line["step"] for line in job.lines() if "loss" in line] == list(range(1, STEPS + 1))
    assert job.result() == calm.result(), "figures may draw, too"

"""Whatever is lost at whatever step, the model at the end is that of the run that nobody disturbed.

Pods have folders of their own for checkpoints, so a lost pod takes its snapshots and its checkpoints along.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, field, replace

import pytest
from trainmaster.wire.strategies import OWN_REMAINDERS

from tests.trainer.crew import NewCrew
from tests.trainer.ranks import PATIENCE, Job, NewJob, Options, Running

STEPS = 17
READERS = (0, 1, 0, 4, 1, 2)  # data workers of each rank, by attempt
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

    def resumes_at(self, done: list[int], lost: list[int]) -> range:
        """Return the steps that the next attempt may go on from, where ranks have done so many and pods are lost.

        It loses none that all ranks have done, and a rank may have done one more than it has told. LocalSGD keeps
        those at which ranks meet. A pod that is alone takes all along, and so does one whose ranks have what no other
        has copies of, but for the checkpoints.
        """
        if len(lost) == self.pods:
            return range(1)
        own = self.strategy == "LocalSGD" or self.options.get("compression") in OWN_REMAINDERS
        every = self.options.get("every", 1)
        return range(0 if own and lost else min(done) - min(done) % every, max(done) + 2)


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
    Way("AllReduce", options={"compression": "TopK"}),
    Way("AllReduce", pods=3, options={"compression": "PowerSGD"}),
    Way("LocalSGD", options={"every": 3, "outer": "Nesterov"}),
    Way("LocalSGD", pods=3, options={"every": 2, "outer": "Average"}),
    Way("FullySharded", pods=3),
    Way("FullySharded", plan={"task": "drawing_tasks:WithNoisySteps"}),
    Way("Pipeline", plan={"arguments": {"seconds": 0.01, "mask": True}}),
    Way("Tensor", plan=WITHOUT_MEANS),
    Way("Mesh", ranks=2, options={"data": 2, "tensor": 2}, plan=WITHOUT_MEANS),
    Way("Mesh", ranks=2, options={"pipeline": 2, "sharded": 2}, plan=WITHOUT_MEANS),
]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_the_model_is_that_of_a_calm_run(new_job: NewJob, way: Way) -> None:
    """A pod is lost before the first checkpoint, then a rank, and then two pods before the same checkpoint.

    The calm run reads its samples in the ranks, the other one with another number of data workers after each loss.
    """
    world, last = way.pods * way.ranks, way.pods - 1
    calm = way.job(new_job, "calm").but(data_workers=0).run(world, ranks_per_pod=way.ranks)
    job = way.job(new_job, "disturbed")
    done = range(1)
    for attempt, (step, lost) in enumerate([(2, [0]), (6, []), (9, [last]), (10, [0])], start=1):
        running = job.but(data_workers=READERS[attempt]).start(world, attempt, ranks_per_pod=way.ranks)
        # A pod that is new has nothing in memory before its first step.
        running.reach(min(max(step, done[-1] + 1), STEPS))
        running.kill()
        check_resumed(running, done)
        done = way.resumes_at([page.read().step for page in running.pages], lost)
        for pod in lost:
            shutil.rmtree(job.folder / f"memory-{pod}")
            shutil.rmtree(job.checkpoints(pod))
    running = job.but(data_workers=READERS[5]).start(world, attempt=5, ranks_per_pod=way.ranks)
    assert running.wait() == [0] * world, running.output()
    check_resumed(running, done)
    hashes = {job.manifest(STEPS, pod)["model_sha256"] for pod in range(way.pods)}
    assert hashes == {calm.manifest(STEPS)["model_sha256"]}
    check_losses(job, calm)
    assert job.result() == calm.result(), "figures may draw, too"


def check_resumed(running: Running, done: range) -> None:
    """All ranks have gone on from the same step, which is one of these."""
    (step,) = {page.read().resumed_step for page in running.pages}
    assert step in done, running.output()


def check_losses(job: Job, calm: Job) -> None:
    """Each step has one line, with the calm run's loss, unless the line says that it is a mean over fewer samples."""
    expected = calm.losses()
    for line, loss in zip([line for line in job.lines() if "loss" in line], expected, strict=True):
        assert line["loss"] == loss or 0 < line["samples"] < job.plan.global_batch_size, line
        assert "told_before" not in line or line["told_before"] != line["loss"]
    job.losses()


@pytest.mark.parametrize(
    "way", [Way("FullySharded"), Way("AllReduce", options={"compression": "TopK"}), Way("LocalSGD")], ids=str
)
def test_a_replaced_pod_gets_the_checkpoint_before_the_next_one_is_due(new_job: NewJob, way: Way) -> None:
    """So that the pod that had it may be lost as well."""
    calm = way.job(new_job, "calm").but(steps=6).run(2)
    job = way.job(new_job, "disturbed").but(steps=6, memory_every=0, arguments={**PLAN["arguments"], "seconds": 0.5})
    lost_after(job, 1, pod=0)
    lost_after(job, 2, pod=1)
    running = job.start(2, 3)
    assert running.wait() == [0, 0], running.output()
    assert [page.read().resumed_step for page in running.pages] == [4, 4]
    assert job.manifest(6)["model_sha256"] == calm.manifest(6)["model_sha256"]


def lost_after(job: Job, attempt: int, pod: int) -> None:
    """Train until both pods have the checkpoint of step 4; then lose one of them."""
    running = job.start(2, attempt)
    for other in (0, 1):
        wait_for_checkpoint(job, other, running)
    running.kill()
    shutil.rmtree(job.checkpoints(pod))


def wait_for_checkpoint(job: Job, pod: int, running: Running) -> None:
    """Return when a pod has the checkpoint of step 4: a folder has no bell, so it is looked at."""
    deadline = time.monotonic() + PATIENCE
    while not (job.checkpoints(pod) / "step-00000004").exists():
        assert time.monotonic() < deadline, running.output()
        time.sleep(0.002)


def test_a_loss_that_leaves_out_parameters_now_and_then_may_do_so_after_a_restart(new_job: NewJob) -> None:
    """With this seed the loss of step 1 does, that of step 2, the first one after a restart, does not, and 3 does."""
    plan: Options = {"task": "drawing_tasks:WithADroppedLayer", "seed": 9}
    calm = new_job("calm", **plan).but(steps=9).run(1)
    job = new_job("disturbed", **plan).but(steps=1).run(1).but(steps=9).run(1, attempt=2)
    assert job.losses() == calm.losses()
    assert job.manifest(9)["model_sha256"] == calm.manifest(9)["model_sha256"]


@pytest.mark.parametrize("servers", [1, 2])
def test_so_is_that_of_synchronous_parameter_servers_whose_optimizer_draws(new_crew: NewCrew, servers: int) -> None:
    plan: Options = {
        "task": "drawing_tasks:WithNoisySteps",
        "arguments": {"seconds": 0.004, "running_means": True},
        "global_batch_size": 12,
        "steps": 40,
        "checkpoint_every": 10,
        "strategy_options": {"update": "Sync"},
    }
    calm = new_crew(2, servers, "calm", **plan).start().finish()
    crew = new_crew(2, servers, "dying", **plan).start()
    for step, dying in ((5, 1), (15, 2), (25, 0)):
        crew.reach(step)
        if dying < 2 or servers > 1:  # a server alone has no copy, and is the operator's business
            crew.kill(dying)
            crew.again(dying)
    job = crew.finish()
    assert job.manifest(40)["model_sha256"] == calm.manifest(40)["model_sha256"]
    assert job.losses() == calm.losses()
    assert job.result() == calm.result(), "whoever says how good it is draws the same"

"""Random lives: from one seed a cluster, jobs, and troubles; lived through, and judged. A seed gives the same life."""

# ruff: noqa: S311  a seed that is known is the point

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from trainmaster.api.job import TrainingJob
from trainmaster.core.failures import budgets, classes
from trainmaster.queueing import Key

from tests.builders import JobBuilder, a_job
from tests.platforms import clock
from tests.platforms.clock import StuckError
from tests.platforms.training import Plan
from tests.simulation.members import gossiping, with_servers
from tests.simulation.troubles import START_SECONDS, TROUBLES
from tests.simulation.world import Faults, World

TROUBLE_SECONDS = 3.0  # from one to the next, on average
AMPLE = 45  # restarts: more than all troubles of a life together may cost
LONELY = 10_000_000  # lives from this seed on are of jobs whose members come and go one by one


@dataclass
class Life:
    """One seed's story."""

    seed: int
    jobs: list[JobBuilder] = field(default_factory=list)
    troubles: int = 0
    survivable: bool = True

    @classmethod
    def of(cls, seed: int) -> Life:
        """Who lives, and how hard."""
        random = Random(seed)
        survivable = random.random() < 0.8
        budget = AMPLE if survivable else random.randint(0, 2)
        count = random.choice([1, 1, 1, 2, 3])
        if seed >= LONELY:
            jobs = [_a_lonely_job(random, f"job-{number}", budget) for number in range(count)]
        else:
            jobs = [
                _a_job(random, f"job-{number}", budget, Random(f"extras of job {number} of {seed}"))
                for number in range(count)
            ]
        return cls(seed, jobs, random.randint(0, 8), survivable)

    def live(self) -> tuple[World, list[str]]:
        """The world afterwards, and what was wrong; nothing, as a rule."""
        random = Random(self.seed + 1)
        plan = Plan(random.choice([40, 100, 200]), random.choice([5, 10]), random.choice([0.05, 0.1, 0.3]))
        world = World(self.seed, *self.jobs, plan=plan, faults=_faults(random))
        world.watch.all_are_heard = False
        nodes = Random(f"silence of {self.seed}")  # of its own: what else happens stays as it was
        world.nodes.weather.give_up_node = nodes.choice([15.0, 60.0])
        world.plan.silence_seconds = nodes.choice([20.0, 120.0])
        costs: Counter[Key] = Counter()
        try:
            clock.run(world.run(lambda world: self._trouble(world, random, costs)))
        except (AssertionError, StuckError) as error:
            world.watch.violated(f"it did not come to its end: {error}")
        return world, self._judge(world, costs)

    async def _trouble(self, world: World, random: Random, costs: Counter[Key]) -> None:
        for _ in range(self.troubles):
            await asyncio.sleep(random.expovariate(1 / TROUBLE_SECONDS))
            living = [key for key, job in world.server.jobs.items() if not job.status.finished]
            if not living:
                return
            key = random.choice(living)
            (trouble,) = random.choices(TROUBLES, [trouble.weight for trouble in TROUBLES])
            world.watch.history.append(f"{asyncio.get_running_loop().time():.1f} {key}: {trouble.name}")
            cost = trouble.happens(world, key)
            if cost is None:
                continue
            world.injected[trouble.name] += 1
            # A node is everybody's.
            for job in living if trouble.name.startswith("a node") else [key]:
                costs[job] += cost

    def _judge(self, world: World, costs: Counter[Key]) -> list[str]:
        found = list(world.watch.violations)
        for key, job in world.watch.jobs.items():
            status = job.status
            counted = [line for line in status.restarts if line.failure_class not in classes.FREE]
            if status.reason == "DeadlineExceeded" and counted and counted[-1].failure_class in classes.SYMPTOMS:
                counted.pop()  # the time was up before its cause was heard
            if status.phase != "Succeeded" and status.reason not in self._reasons(job):
                found.append(f"{key} {status.phase}: {status.message}")
            if len(counted) > costs[key]:
                found.append(f"{key} counted {[line.evidence for line in counted]}; at most {costs[key]} were its own")
            stopped = [line for line in status.restarts if line.decision == "Stop"]
            if len(status.restarts) != status.restart_count + len(stopped):
                found.append(f"{key} has {len(status.restarts)} lines for {status.restart_count} restarts")
            if status.phase == "Succeeded" and world.jobs[key].storage.step != world.plan.steps:
                found.append(f"{key} succeeded at step {world.jobs[key].storage.step}")
        return found

    def _reasons(self, job: TrainingJob) -> set[str]:
        """Why such a job may fail; that it was neither too early nor too late is looked at elsewhere."""
        budget = set() if self.survivable else {budgets.EXHAUSTED}
        return budget | ({"DeadlineExceeded"} if job.spec.active_deadline_seconds else set())


def _a_job(random: Random, name: str, budget: int, extras: Random) -> JobBuilder:
    workers, gpus = random.randint(1, 4), random.choice([0, 0, 2])
    job = a_job().named(name).with_workers(workers, gpus=gpus).where(**_extras(extras, workers))
    return job.with_failure_policy(maxRestarts=budget, startSeconds=START_SECONDS)


def _extras(random: Random, workers: int) -> dict[str, object]:
    """What a job may have besides; most have nothing."""
    chosen: dict[str, object] = {"scheduling": {"spares": random.choice([0, 0, 0, 1, 2])}}
    if workers > 1 and random.random() < 0.3:
        chosen["elasticity"] = {"minReplicas": random.randint(1, workers - 1), "maxReplicas": workers}
    if random.random() < 0.1:
        chosen["activeDeadlineSeconds"] = random.randint(10, 90)
    if random.random() < 0.2:
        chosen["ttlSecondsAfterFinished"] = random.choice([0, 5, 30])
    return chosen


def _a_lonely_job(random: Random, name: str, budget: int) -> JobBuilder:
    servers, workers = random.randint(1, 3), random.randint(1, 3)
    job = random.choice([with_servers(servers).with_workers(workers), gossiping(workers + 1)]).named(name)
    return job.with_failure_policy(maxRestarts=budget, startSeconds=START_SECONDS)


def _faults(random: Random) -> Faults:
    return Faults(
        unavailable=random.choice([0.0, 0.1, 0.2, 0.4]),
        reply_lost=random.choice([0.0, 0.1, 0.2, 0.4]),
        beat_lost=random.choice([0.0, 0.1, 0.3, 0.5]),
        beat_repeated=random.choice([0.0, 0.2, 0.6]),
        event_repeated=random.choice([0.0, 0.2, 0.6]),
        watch_broken=random.choice([0.0, 0.0, 0.02]),
        latency=(0.001, random.choice([0.005, 0.02, 0.3])),
        lag=random.choice([0.0, 0.03, 0.3, 1.0]),
        restart_seconds=random.choice([0.5, 2.0, 20.0]),
    )

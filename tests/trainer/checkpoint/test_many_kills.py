"""One training, killed many times at any moment: while it starts, loads, trains or saves. The end is the same.

`make soak` kills it a hundred times, and then asks that enough of the kills met each phase.
"""

import os
import random
import signal
import time
from collections import Counter
from dataclasses import replace

import pytest
from trainmaster.cli.audit import audit

from tests.trainer.ranks import Job, NewJob, Running

AFTER = 20  # steps that are left when the last kill comes
PLAN = {"global_batch_size": 7, "arguments": {"dropout": 0.2}}
TIERS = {"checkpoint_every": 4, "checkpoint_keep": 2, "memory_every": 1}
OF_EACH = {"start": 5, "training": 5, "save": 5}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("kills", "steps", "of_each"),
    [(10, 80, {"start": 1, "training": 1}), pytest.param(100, 320, OF_EACH, marks=pytest.mark.soak)],
)
def test_killed_at_any_moment_it_ends_in_the_same_bits(
    new_job: NewJob, kills: int, steps: int, of_each: dict[str, int]
) -> None:
    undisturbed = new_job("undisturbed", **PLAN, steps=steps, checkpoint_every=steps).run(2)
    job = replace(new_job("killed", **PLAN, **TIERS, steps=steps), memory=True)
    chance = random.Random(100)  # noqa: S311 (no secret)
    met: Counter[str] = Counter()
    starting = 0.1  # seconds, of the last start that got so far
    for attempt in range(1, kills + 1):
        began = time.monotonic()
        running = job.start(2, attempt)
        if chance.random() < 0.5:
            time.sleep(chance.uniform(0, starting))
        else:
            running.reach(max(1, attempt * (steps - AFTER) // kills))
            starting = time.monotonic() - began
            time.sleep(chance.uniform(0, 0.01))
        met[kill(job, running, attempt, chance)] += 1
    job.run(2, attempt=kills + 1)
    assert all(met[phase] >= least for phase, least in of_each.items()), f"the kills must have met all phases: {met}"
    assert job.losses() == undisturbed.losses()
    assert job.manifest(steps)["model_sha256"] == undisturbed.manifest(steps)["model_sha256"]
    assert audit(str(job.folder)) == 0


def kill(job: Job, running: Running, attempt: int, chance: random.Random) -> str:
    """SIGKILL to one rank, and a moment later to the other, as an agent does; in which phase it was."""
    victim = chance.randrange(2)
    os.kill(running.pids[victim], signal.SIGKILL)
    time.sleep(chance.uniform(0, 0.005))
    running.kill()
    if running.pages[victim].read().step == 0:
        return "start"
    unfinished = list(job.checkpoints().glob(f".saving-*-attempt-{attempt}-*"))
    return "save" if unfinished else "training"

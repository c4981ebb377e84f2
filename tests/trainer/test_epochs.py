"""Epochs in place of steps, and samples of every usual kind."""

import pytest

from tests.trainer.crew import NewCrew
from tests.trainer.ranks import NewJob, Options
from tests.trainer.small_tasks import SAMPLES

EPOCHS: Options = {"steps": 0, "epochs": 3, "checkpoint_every": 100}
STEPS = -(-3 * SAMPLES // 10)


def test_epochs_are_as_many_steps_as_their_samples_need(new_job: NewJob) -> None:
    """The same numbers as with that many steps, with a learning rate that follows the fraction, and after a kill."""
    task = {"task": "drawing_tasks:Drawing", "arguments": {"seconds": 0.02}}
    by_steps = new_job("steps", **task, steps=STEPS).run(2)
    job = new_job("epochs", **{**task, **EPOCHS})
    running = job.start(2)
    running.reach(4)
    assert {page.read().total_steps for page in running.pages} == {STEPS}
    running.kill()
    job.run(2, attempt=2)
    assert job.losses() == by_steps.losses()
    assert job.result()["step"] == STEPS


@pytest.mark.parametrize("batch", [SAMPLES + 1, 3 * SAMPLES, 4 * SAMPLES])
def test_a_dataset_may_be_smaller_than_a_batch(new_job: NewJob, batch: int) -> None:
    job = new_job(**{**EPOCHS, "global_batch_size": batch}).run(1)
    assert len(job.losses()) == -(-3 * SAMPLES // batch)


def test_members_know_the_steps_of_epochs(new_crew: NewCrew) -> None:
    job = new_crew(2, strategy="Gossip", **EPOCHS).start().finish()
    assert job.result()["step"] == STEPS

"""What a script's state does not have is named: optimizers, and a last step that is not saved."""

from __future__ import annotations

import re

import pytest
from trainmaster_trainer.checkpoint.layout import saved_steps

from tests.trainer.ranks import NewJob


def test_an_optimizer_that_is_not_kept_is_named_once(new_job: NewJob) -> None:
    """After a restart it would begin anew, and the model would be another one. Who keeps nothing loses nothing."""
    job = new_job("job", task=None, command=("python", "script.py"), steps=0, global_batch_size=0)
    running = job.calling("unkept_scripts:late").start(1)
    assert running.wait() == [0], running.output()
    assert re.findall(r"an optimizer \((\w+)\) takes steps", running.output()) == ["RMSprop"]
    assert "none of model, optimizer, schedule: after a restart it would begin anew" in running.output()


@pytest.mark.parametrize(("said", "steps"), [(False, 0), (True, 0), (True, 9)])
def test_a_script_that_ends_sooner_than_announced(new_job: NewJob, said: bool, steps: int) -> None:
    """Its last step is saved if it says so, else it is told that it is not: export would give an older model."""
    job = new_job(
        "job", task=None, command=("python", "script.py"), steps=steps, global_batch_size=0, checkpoint_every=100
    )
    running = job.calling("unkept_scripts:early", said=said).start(2)
    assert running.wait() == [0, 0], running.output()
    assert saved_steps(job.checkpoints()) == ([4] if said else [])
    told = "the script ends after step 4, which is not saved. Say how many steps there are"
    assert (told in running.output()) != said

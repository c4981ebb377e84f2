"""Optimizers that a script's state does not have are named."""

from __future__ import annotations

import re

from tests.trainer.ranks import NewJob


def test_an_optimizer_that_is_not_kept_is_named_once(new_job: NewJob) -> None:
    """After a restart it would begin anew, and the model would be another one. Who keeps nothing loses nothing."""
    job = new_job("job", task=None, command=("python", "script.py"), steps=0, global_batch_size=0)
    running = job.calling("unkept_scripts:late").start(1)
    assert running.wait() == [0], running.output()
    assert re.findall(r"an optimizer \((\w+)\) takes steps", running.output()) == ["RMSprop"]
    assert "none of model, optimizer, schedule: after a restart it would begin anew" in running.output()

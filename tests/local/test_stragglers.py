"""A rank that works longer for its steps than the others is named while they wait for it."""

import re
import shutil

from tests.local.command import TASKS, Command, a_job


def test_the_slow_rank_is_named_and_nobody_is_restarted(command: Command) -> None:
    shutil.copy(TASKS / "stuck.py", command.folder)
    job = a_job(steps=120, workers=3, arguments={"seconds": 0.05})
    job["spec"]["training"]["task"] = "stuck:Stuck"
    job["spec"]["training"]["globalBatchSize"] = 9
    assert command.start(job, "--fault", "slow:worker/1@step=2", "--output", "text").end() == 0
    assert re.search(
        r"worker-1 rank 1( on \S+)? works 0\.\d+ s for a step, the median rank 0\.\d+ s: the others wait", command.text
    )
    assert command.status["restartCount"] == 0
    (told,) = [one for one in command.status["conditions"] if one["type"] == "Straggling"]
    assert told["status"] == "False", "the end of the job ends it"

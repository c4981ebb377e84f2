"""What torch has beside DDP, and DeepSpeed: RPC, raw collectives, FSDP2 and ZeRO, in real groups that lose a process.

Each script prints WRONG unless its weights are those of one process that has all rows. Libraries that bring a loop of
their own are in test_adapters.py.
"""

from __future__ import annotations

import pytest

from tests.frameworks.jobs import a_job, line_of_the_ledger, python, said, until
from tests.local.command import Command


@pytest.mark.parametrize(
    ("script", "workers", "right"),
    [
        ("rpc_servers.py", 3, ["from=20 pushes=40"]),
        ("rpc_pipeline.py", 3, ["from=20 stages=2"]),
        ("averaging.py", 3, ["from=20 total=6"] * 3),
        ("fsdp2_sgd.py", 2, ["from=20 here=45 of=81", "from=20 here=36 of=81"]),
    ],
)
def test_a_group_of_torchs_own_goes_on_after_a_death(
    command: Command, script: str, workers: int, right: list[str]
) -> None:
    assert command.start(a_job("Torch", ["python", script], workers, DIE_IN_ATTEMPT="1")).end() == 0
    assert said(command, "RIGHT") == right
    line = line_of_the_ledger(command)
    assert (line["exit"], line["replica"]) == ("SIGKILL", f"worker-{workers - 1} rank {workers - 1}")
    until(lambda: not command.processes())


def test_deepspeed_divides_the_optimizer_among_processes(command: Command) -> None:
    """By its launcher, in whose place the agents start the script."""
    launcher = python("deepspeed").replace("/python", "/deepspeed")
    script = [launcher, "--no_local_rank", "deepspeed_zero.py"]
    job = a_job("Torch", script, DIE_IN_ATTEMPT="1", DS_ACCELERATOR="cpu")
    assert command.start(job).end(500) == 0
    assert said(command, "RIGHT") == ["from=20 stage=2 processes=2"] * 2
    assert line_of_the_ledger(command)["exit"] == "SIGKILL"

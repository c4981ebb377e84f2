"""Members that come and go one by one, run as a user runs them: what dies comes back alone, the others train on."""

from __future__ import annotations

import collections
import json
import shutil
import signal
import time
from typing import Any

from tests.local.command import PATIENCE, TASKS, Command, a_job, kill

STEPS, HELD = 30, 20


def a_crew(command: Command, servers: int) -> dict[str, Any]:
    shutil.copy(TASKS / "crew.py", command.folder)
    return a_job(
        strategy={"type": "ParameterServer"},
        parameterServers={"replicas": servers},
        training={"command": ["python", "crew.py", str(STEPS), str(HELD)], "steps": STEPS},
        failurePolicy={"hangSeconds": 600},
    )


def starts(command: Command) -> dict[str, list[str]]:
    """Who was started, by the attempt of each start."""
    found: dict[str, list[str]] = collections.defaultdict(list)
    for line in (command.folder / "starts.jsonl").read_text().splitlines():
        found[json.loads(line)["who"]].append(json.loads(line)["attempt"])
    return dict(found)


def test_a_worker_a_server_and_an_agent_come_back_alone(command: Command) -> None:
    command.make_gate()
    command.start(a_crew(command, servers=2))
    command.until_step(HELD - 1)
    kill(command.rank_pid(1), signal.SIGKILL)
    command.until_event("MemberRestarted")
    kill(command.rank_pid(3), signal.SIGKILL)
    command.until_event("MemberRestarted")
    kill(command.agents()[1], signal.SIGKILL)
    command.until_event("ReplicaReplaced")
    command.open_gate()
    assert command.end() == 0, command.stderr
    status = command.status
    assert (status["phase"], status["attempt"]) == ("Succeeded", 1)
    assert status["restartCount"] in (2, 3), "who dies before the first one trains again died of the same"
    assert all("the others train on" in line["why"] for line in status["restarts"])
    again = {who: len(attempts) for who, attempts in starts(command).items()}
    assert again.pop("worker-0") == again.pop("parameterServer-0") == 1, "nobody disturbed them"
    assert sum(again.values()) >= 4
    assert [(command.folder / f"parameterServer-{index}.saved").exists() for index in (0, 1)] == [True, True]
    assert int((command.folder / "parameterServer-0.count").read_text()) >= 2 * STEPS


def test_when_the_only_server_dies_all_start_again(command: Command) -> None:
    command.make_gate()
    command.start(a_crew(command, servers=1))
    command.until_step(HELD - 1)
    kill(command.rank_pid(2), signal.SIGKILL)
    command.until_event("Restarting")
    command.open_gate()
    assert command.end() == 0, command.stderr
    assert command.status["attempt"] == 2
    assert starts(command) == {who: ["1", "2"] for who in ("worker-0", "worker-1", "parameterServer-0")}


def until_here(command: Command, *ranks: int) -> None:
    """Until these ranks have made their task: the workers then go as far as the gate."""
    command.until(lambda line: line.get("progress", {}).get("phase") == "Running")
    until = time.monotonic() + PATIENCE
    files = [command.folder / f"rank-{rank}-1.txt" for rank in ranks]
    while not all(file.exists() and file.stat().st_size for file in files):  # it is empty while it is written
        assert time.monotonic() < until, "a rank has not begun"
        time.sleep(0.05)


def test_parameter_servers_bear_the_loss_of_a_worker_a_server_and_an_agent(command: Command) -> None:
    """The real strategy: each share of the samples is trained once, whoever dies."""
    command.make_gate()
    job = a_job(
        steps=60,
        strategy={"type": "ParameterServer"},
        parameterServers={"replicas": 2},
        arguments={"hold_at": 10},
    )
    command.start(job)
    until_here(command, 0, 1, 2, 3)
    kill(command.rank_pid(1), signal.SIGKILL)
    command.until_event("MemberRestarted")
    kill(command.rank_pid(3), signal.SIGKILL)
    command.until_event("MemberRestarted")
    kill(command.agents()[1], signal.SIGKILL)
    command.until_event("ReplicaReplaced")
    command.open_gate()
    assert command.end() == 0, command.stderr
    status = command.status
    assert (status["phase"], status["attempt"]) == ("Succeeded", 1)
    assert status["restartCount"] in (2, 3), "who dies before the first one trains again died of the same"
    assert (status["progress"]["step"], status["checkpoint"]["step"]) == (60, 60)


def test_the_only_parameter_server_comes_back_from_the_checkpoint(command: Command) -> None:
    command.make_gate()
    job = a_job(steps=60, strategy={"type": "ParameterServer"}, arguments={"hold_at": 15})
    command.start(job)
    until_here(command, 0, 1, 2)
    kill(command.rank_pid(2), signal.SIGKILL)
    command.until_event("Restarting")
    command.open_gate()
    assert command.end() == 0, command.stderr
    status = command.status
    assert (status["attempt"], status["progress"]["step"], status["checkpoint"]["step"]) == (2, 60, 60)
    assert status["parameterServers"]["desired"] == 1


def test_gossip_bears_the_loss_of_a_worker_and_an_agent(command: Command) -> None:
    command.make_gate()
    job = a_job(steps=40, workers=3, strategy={"type": "Gossip"}, arguments={"hold_at": 10})
    command.start(job)
    until_here(command, 0, 1, 2)
    kill(command.rank_pid(1), signal.SIGKILL)
    command.until_event("MemberRestarted")
    kill(command.agents()[2], signal.SIGKILL)
    command.until_event("ReplicaReplaced")
    command.open_gate()
    assert command.end() == 0, command.stderr
    status = command.status
    assert (status["phase"], status["attempt"], status["restartCount"]) == ("Succeeded", 1, 2)

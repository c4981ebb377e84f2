"""The store at which ranks meet: that of the next attempt is served before anybody needs it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from trainmaster.wire.agent_states import AgentState
from trainmaster_trainer.agent import process

from tests.trainer.agent.conftest import MakeAgent
from tests.trainer.agent.intake import Intake
from tests.trainer.agent.machine import AgentProcess, Witness, ours, wait_gone

W0 = ("worker", 0)


def stores() -> set[int]:
    """The pids of all stores that serve."""
    return {pid for pid, name in ours().items() if name == "tm-store"}


def wait_for_stores(count: int) -> set[int]:
    """Until there are so many."""
    until = time.monotonic() + 100
    while len(found := stores()) != count:
        assert time.monotonic() < until, f"{len(found)} stores"
        time.sleep(0.05)
    return found


def train(agent: MakeAgent, intake: Intake) -> tuple[AgentProcess, int, int]:
    """Start an attempt that lasts; its agent, and the stores of it and of the next one."""
    one = agent("python", "SCRIPTS/ddp.py", "100000", "0.01", ranks=2)  # who is alone opens its own store
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 2)])
    first, second = sorted(
        wait_for_stores(2), key=lambda pid: int(process.stat(pid)[19])
    )  # in the order of their starts
    return one, first, second


def test_the_next_attempt_finds_its_store_waiting(agent: MakeAgent, intake: Intake, witness: Witness) -> None:
    _, first, second = train(agent, intake)
    said, _ = witness.wait(2, what="step")
    os.kill(said["pid"], signal.SIGKILL)
    intake.wait_state(AgentState.FAILED, 1, W0)
    intake.run(2, [(W0, 2)])
    witness.wait(4, what="step")
    assert wait_gone(first)
    assert second in wait_for_stores(2), "it served attempt 2, and there is one for the next again"


def test_a_store_that_dies_before_its_time_is_replaced(agent: MakeAgent, intake: Intake, witness: Witness) -> None:
    _, _, second = train(agent, intake)
    os.kill(second, signal.SIGKILL)
    assert wait_gone(second)
    while Path(f"/proc/{second}").exists():  # its parent tells of deaths in the order in which it has seen them
        time.sleep(0.01)
    said, _ = witness.wait(2, what="step")
    os.kill(said["pid"], signal.SIGKILL)
    intake.wait_state(AgentState.FAILED, 1, W0)
    intake.run(2, [(W0, 2)])
    witness.wait(4, what="step")


def test_none_waits_longer_than_its_agent(agent: MakeAgent, intake: Intake) -> None:
    one, *both = train(agent, intake)
    one.end()
    assert all(wait_gone(pid) for pid in both)

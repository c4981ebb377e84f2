"""Members that come and go one by one: sockets handed over, rosters replaced, lonely starts. Real agents."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
from pathlib import Path

import pytest
from trainmaster.wire import codec, names
from trainmaster.wire.agent_states import AgentState
from trainmaster.wire.messages import Roster
from trainmaster.wire.training import TrainingPlan

from tests.trainer.agent.conftest import MakeAgent
from tests.trainer.agent.intake import Intake, Key
from tests.trainer.agent.machine import SCRIPTS, AgentProcess, Witness

W0, W1, S0 = ("worker", 0), ("worker", 1), ("parameterServer", 0)


def a_member(agent: MakeAgent, key: Key, *command: str, **variables: str) -> AgentProcess:
    plan = TrainingPlan("ParameterServer", command=command or ("python", str(SCRIPTS / "member.py")))
    return agent(role=key[0], index=key[1], **{names.ENV_TRAINING: codec.encode(plan).decode()}, **variables)


def order(intake: Intake, roster: Roster, *keys: Key) -> Roster:
    for key in keys:
        intake.order(key, intake.run_orders(roster))
    return roster


def begin(intake: Intake, *keys: Key) -> Roster:
    """All of them at once, as a first start."""
    intake.wait_state(AgentState.WAITING, 0, *keys)
    ports = {key: intake.newest[key].offer.ports for key in keys}
    return order(intake, intake.independent(1, dict.fromkeys(keys, 0), ports), *keys)


def again(intake: Intake, roster: Roster, key: Key) -> Roster:
    """One member's next start, at its new ports."""
    members = tuple(
        dataclasses.replace(one, start=(one.start or 0) + 1, ports=intake.newest[key].offer.ports)
        if (one.role, one.index) == key
        else one
        for one in roster.members
    )
    return dataclasses.replace(roster, members=members)


def told(intake: Intake, key: Key) -> int | None:
    """Of which start the newest exit report speaks."""
    report = intake.newest[key].exit
    return report.start if report is not None else None


def reach(port: int) -> tuple[int, int]:
    """(rank, pid) of who listens there."""
    with socket.create_connection(("127.0.0.1", port), timeout=100) as line:
        rank, pid = line.recv(100).split()
    return int(rank), int(pid)


def test_each_rank_listens_where_the_roster_says(agent: MakeAgent, intake: Intake, witness: Witness) -> None:
    for key in (W0, W1, S0):
        a_member(agent, key)
    roster = begin(intake, W0, W1, S0)
    said = witness.wait(3, what="roster")
    assert {one["port"] for one in said} == {member.ports[0] for member in roster.members}
    assert all(one["members"] == {"worker-0": 0, "worker-1": 0, "parameterServer-0": 0} for one in said)
    pids = {one["rank"]: one["pid"] for one in said}
    for member in roster.members:
        assert reach(member.ports[0]) == (member.first_rank, pids[member.first_rank])
    (beat,) = intake.wait_state(AgentState.RUNNING, 1, W1)
    assert (beat.start, beat.rendezvous) == (0, dataclasses.replace(roster.rendezvous, ports=roster.members[1].ports))
    assert beat.offer.ports != roster.members[1].ports, "each socket is handed over once"


def test_two_ranks_in_one_replica_have_a_socket_each(agent: MakeAgent, intake: Intake, witness: Witness) -> None:
    a_member(agent, W0, **{names.ENV_RANKS: "2"})
    intake.wait_state(AgentState.WAITING, 0, W0)
    roster = intake.independent(1, {W0: 0}, {W0: intake.newest[W0].offer.ports})
    roster = dataclasses.replace(roster, members=(dataclasses.replace(roster.members[0], ranks=2),))
    order(intake, roster, W0)
    witness.wait(2, what="roster")
    assert [reach(port)[0] for port in roster.members[0].ports] == [0, 1]


def test_a_lonely_start_disturbs_nobody(agent: MakeAgent, intake: Intake, witness: Witness) -> None:
    for key in (W0, S0):
        a_member(agent, key)
    first = begin(intake, W0, S0)
    pids = {one["rank"]: one["pid"] for one in witness.wait(2, what="roster")}
    os.kill(pids[0], signal.SIGKILL)
    (beat,) = intake.wait_state(AgentState.FAILED, 1, W0)
    assert beat.exit is not None
    assert (beat.start, beat.exit.start, beat.exit.signal) == (0, 0, "SIGKILL")
    with pytest.raises(OSError):  # noqa: PT011 refused: nobody holds a dead rank's port open
        reach(first.members[0].ports[0])
    second = order(intake, again(intake, first, W0), W0, S0)
    witness.wait(2, what="roster", members={"worker-0": 1, "parameterServer-0": 0})
    assert reach(second.members[0].ports[0])[1] != pids[0]
    assert reach(second.members[1].ports[0]) == (1, pids[1]), "the server has not been started again"
    assert second.rendezvous == first.rendezvous
    os.kill(reach(second.members[0].ports[0])[1], signal.SIGKILL)
    intake.wait(lambda: told(intake, W0) == 1, "the second death, told")


def test_who_has_ended_is_not_started_for_others_sake(agent: MakeAgent, intake: Intake, witness: Witness) -> None:
    """A finished worker that reads of a new server must stay finished; a dead one waits for its own line."""
    a_member(agent, W0, "python", "-c", "pass")
    a_member(agent, W1, "python", "-c", "raise SystemExit(3)")
    a_member(agent, S0)
    first = begin(intake, W0, W1, S0)
    intake.wait_state(AgentState.FINISHED, 1, W0)
    intake.wait_state(AgentState.FAILED, 1, W1)
    (server,) = witness.wait(1, what="roster")
    os.kill(server["pid"], signal.SIGKILL)
    intake.wait_state(AgentState.FAILED, 1, S0)
    second = order(intake, again(intake, first, S0), W0, W1, S0)
    for key, state in ((W0, AgentState.FINISHED), (W1, AgentState.FAILED), (S0, AgentState.RUNNING)):
        intake.wait(lambda key=key: intake.newest[key].roster_digest == second.digest, f"{key} to know")  # type: ignore[misc]
        assert intake.newest[key].state == state


def test_who_is_not_named_waits_until_it_is(agent: MakeAgent, intake: Intake, witness: Witness) -> None:
    for key in (W0, W1):
        a_member(agent, key)
    intake.wait_state(AgentState.WAITING, 0, W0, W1)
    first = order(intake, intake.independent(1, {W0: 0}, {W0: intake.newest[W0].offer.ports}), W0, W1)
    (beat,) = intake.wait_state(AgentState.WAITING, 1, W1)
    both = intake.independent(1, {W0: 0, W1: 0}, {W0: first.members[0].ports, W1: beat.offer.ports})
    second = dataclasses.replace(both, rendezvous=first.rendezvous)
    order(intake, second, W0, W1)
    said = witness.wait(2, what="roster", members={"worker-0": 0, "worker-1": 0})
    assert reach(second.members[1].ports[0])[0] == 1
    assert {one["key"] for one in said} == {first.rendezvous.key}


def test_ports_that_are_not_offered_any_more_are_refused(agent: MakeAgent, intake: Intake, witness: Witness) -> None:
    a_member(agent, W0)
    first = begin(intake, W0)
    (said,) = witness.wait(1, what="roster")
    os.kill(said["pid"], signal.SIGKILL)
    intake.wait_state(AgentState.FAILED, 1, W0)
    stale = dataclasses.replace(first, members=(dataclasses.replace(first.members[0], start=1),))
    order(intake, stale, W0)
    intake.wait(lambda: told(intake, W0) == 1, "the refusal")
    report = intake.newest[W0].exit
    assert report is not None
    assert report.error is not None
    assert report.error.type == "StartFailed"


def test_a_command_and_a_fresh_interpreter_inherit_it_too(
    agent: MakeAgent, intake: Intake, witness: Witness, tmp_path: Path
) -> None:
    """Where the warm parent has threads it spawns; any other command replaces the process."""
    a_member(agent, W0, "python", "-X", "utf8", str(SCRIPTS / "member.py"))
    thread = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    (tmp_path / "threaded.py").write_text(thread)
    path = os.pathsep.join([str(tmp_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    a_member(agent, W1, **{names.ENV_WARM_SOCKET: "", names.ENV_PRELOAD: "threaded", "PYTHONPATH": path})
    roster = begin(intake, W0, W1)
    witness.wait(2, what="roster", fresh=True)
    assert [reach(member.ports[0])[0] for member in roster.members] == [0, 1]

"""The warm parent: shared, own, killed, bare, with threads."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from trainmaster.wire import names
from trainmaster.wire.agent_states import AgentState
from trainmaster_trainer.agent import parent_watch, process, stacks
from trainmaster_trainer.agent.channel import Channel
from trainmaster_trainer.agent.reactor import Reactor

from tests.trainer.agent.conftest import MakeAgent
from tests.trainer.agent.intake import Intake
from tests.trainer.agent.machine import SCRIPTS, SharedParent, Witness, ours, wait_gone

W0, W1 = ("worker", 0), ("worker", 1)


def parent_of(agent_pid: int) -> int:
    """The warm parent that an agent has started."""
    (child,) = Path(f"/proc/{agent_pid}/task/{agent_pid}/children").read_text().split()
    return int(child)


def signal_when_idle(parent: int, number: int) -> None:
    """Signal it when it waits for requests: by then it has told the agent of each rank that it has started."""
    while stacks.state(parent) != "S":
        time.sleep(0.002)
    os.kill(parent, number)


def own(folder: Path, torch: str = "raise ModuleNotFoundError('no torch in this image')") -> dict[str, str]:
    """Variables of an agent that starts a parent of its own, in an image without torch: that takes no time."""
    (folder / "torch.py").write_text(torch)
    return {names.ENV_WARM_SOCKET: "", "PYTHONPATH": str(folder)}


# In an image whose torch only a rank finds, where it says that it begins and then sleeps.
ASLEEP_IN_A_RANK = f"""
import os, sys, time
if "RANK" not in os.environ:
    raise ModuleNotFoundError("no torch in this image")
sys.path.append({str(SCRIPTS)!r})
from witness import say
say("begin")
time.sleep(1000)
"""


@pytest.mark.parametrize("runs", ["a script", "a task"])
def test_an_own_parent_that_is_killed(
    agent: MakeAgent, intake: Intake, witness: Witness, tmp_path: Path, runs: str
) -> None:
    """Its ranks die with it, the operator is told why, and the next attempt runs from a new one."""
    if runs == "a script":
        one = agent("python", "SCRIPTS/sleeper.py", **own(tmp_path))
    else:
        one = agent(task="a:B", **own(tmp_path, ASLEEP_IN_A_RANK))
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 1)])
    (said,) = witness.wait(what="begin")
    signal_when_idle(parent_of(one.pid), signal.SIGKILL)
    (heartbeat,) = intake.wait_state(AgentState.FAILED, 1, W0)
    assert heartbeat.exit is not None
    assert heartbeat.exit.error is not None
    assert (heartbeat.exit.signal, heartbeat.exit.error.type) == ("SIGKILL", "WarmParentLost")
    assert wait_gone(said["pid"])
    intake.run(2, [(W0, 1)])
    witness.wait(2, what="begin")
    intake.wait_state(AgentState.RUNNING, 2, W0)
    intake.wait(lambda: intake.newest[W0].warm, "a word of the new one")


@pytest.mark.parametrize("runs", ["a script", "a task"])
def test_a_rank_that_is_killed_is_told_of_at_once(
    agent: MakeAgent, intake: Intake, witness: Witness, tmp_path: Path, runs: str
) -> None:
    """Not when the kernel has given its memory back, and its parent has seen that: this one sees nothing."""
    if runs == "a script":
        one = agent("python", "SCRIPTS/sleeper.py", ranks=2, **own(tmp_path))
    else:
        one = agent(task="a:B", ranks=2, **own(tmp_path, ASLEEP_IN_A_RANK))
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 2)])
    victim, survivor = (said["pid"] for said in sorted(witness.wait(2, what="begin"), key=lambda said: -said["rank"]))
    parent = parent_of(one.pid)
    signal_when_idle(parent, signal.SIGSTOP)
    os.kill(victim, signal.SIGKILL)
    (heartbeat,) = intake.wait_state(AgentState.FAILED, 1, W0)
    assert heartbeat.exit is not None
    assert (heartbeat.exit.rank, heartbeat.exit.signal, heartbeat.exit.error) == (1, "SIGKILL", None)
    while process.end_of(survivor) is None and Path(f"/proc/{survivor}").exists():
        time.sleep(0.01)
    intake.run(2, [(W0, 2)])
    process.kill(parent, signal.SIGCONT)  # the agent may have given it up
    witness.wait(4, what="begin")
    (heartbeat,) = intake.wait_state(AgentState.RUNNING, 2, W0)
    assert heartbeat.exit is not None
    assert (heartbeat.exit.rank, heartbeat.exit.signal, heartbeat.exit.error) == (1, "SIGKILL", None)


@pytest.mark.parametrize("moment", ["while a rank runs", "while the parent imports", "while the parent is stopped"])
def test_an_agent_that_is_killed_leaves_nothing(agent: MakeAgent, intake: Intake, tmp_path: Path, moment: str) -> None:
    """Nor what its ranks had started, whose end the kernel does not see to."""
    imports = "import time; time.sleep(1000)" if moment == "while the parent imports" else "raise ModuleNotFoundError"
    command = f"sleep 1000 & echo $! > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/child; wait"
    one = agent("bash", "-c", command, **own(tmp_path, torch=imports))
    intake.wait_state(AgentState.WAITING, 0, W0)
    left = [parent_of(one.pid)]
    if moment != "while the parent imports":
        intake.run(1, [(W0, 1)])
        while not (tmp_path / "child").exists():
            time.sleep(0.01)
        left.append(int((tmp_path / "child").read_text()))
    if moment == "while the parent is stopped":
        os.kill(left[0], signal.SIGSTOP)
    os.kill(one.pid, signal.SIGKILL)
    one.wait()
    assert all(wait_gone(pid) for pid in left)


# Start a shared warm parent as `trainmaster run` does, tell its pid and wait to be killed.
STARTER = """
import os, subprocess, sys, time
environment = {**os.environ, "TRAINMASTER_PARENT_PID": str(os.getpid())}
warm = [sys.executable, "-m", "trainmaster_trainer.agent.warm", "--socket", sys.argv[1]]
print(subprocess.Popen(warm, env=environment).pid, flush=True)
time.sleep(1000)
"""


def test_a_shared_parent_that_is_stopped_while_it_imports_ends_with_who_started_it(tmp_path: Path) -> None:
    python_path = own(tmp_path, torch="import time; time.sleep(1000)")["PYTHONPATH"]
    command = [sys.executable, "-c", STARTER, str(tmp_path / "socket")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": python_path}
    ) as starter:
        assert starter.stdout is not None
        warm = int(starter.stdout.readline())
        with socket.socket(socket.AF_UNIX) as probe:
            while probe.connect_ex(str(tmp_path / "socket")):
                time.sleep(0.01)
        os.kill(warm, signal.SIGSTOP)
        starter.kill()
        assert wait_gone(warm)


@pytest.mark.parametrize("moment", ["with a rank that then ends", "before it is to start one"])
def test_a_parent_that_is_stopped_is_given_up(
    agent: MakeAgent, intake: Intake, witness: Witness, tmp_path: Path, moment: str
) -> None:
    """Nobody tells of its ranks' ends any more, nor starts one."""
    one = agent("python", "SCRIPTS/sleeper.py", **own(tmp_path))
    intake.wait(lambda: W0 in intake.newest and intake.newest[W0].warm, "a warm parent")
    parent = parent_of(one.pid)
    if moment == "before it is to start one":
        os.kill(parent, signal.SIGSTOP)
        intake.run(1, [(W0, 1)])
        witness.wait(what="begin")
    else:
        intake.run(1, [(W0, 1)])
        (said,) = witness.wait(what="begin")
        signal_when_idle(parent, signal.SIGSTOP)
        os.kill(said["pid"], signal.SIGKILL)
        intake.wait_state(AgentState.FAILED, 1, W0)
        intake.run(2, [(W0, 1)])
        witness.wait(2, what="begin")
    assert "the warm parent is stopped (SIGSTOP)" in one.text
    assert wait_gone(parent)


def test_a_shared_parent_that_is_stopped_while_it_imports_is_replaced(
    agent: MakeAgent, intake: Intake, tmp_path: Path
) -> None:
    """It cannot say its pid before it has imported; the socket tells it."""
    (tmp_path / "shared").mkdir()
    variables = own(tmp_path / "shared", torch="import time; time.sleep(1000)")
    shared = SharedParent(tmp_path, PYTHONPATH=variables["PYTHONPATH"])
    with socket.socket(socket.AF_UNIX) as probe:
        while probe.connect_ex(str(shared.path)):
            time.sleep(0.01)
    shared.process.send_signal(signal.SIGSTOP)
    one = agent("python", "SCRIPTS/sleeper.py", **own(tmp_path) | {names.ENV_WARM_SOCKET: str(shared.path)})
    intake.wait(lambda: W0 in intake.newest and intake.newest[W0].warm, "a warm parent")
    assert shared.process.wait(200) == -signal.SIGKILL
    assert "the warm parent is stopped (SIGSTOP)" in one.text


def test_a_parent_that_sleeps_in_an_import_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parent_watch, "_LOOK_SECONDS", 0.01)
    reactor, wrong = Reactor(), list[str]()

    def give_up(why: str) -> None:
        wrong.append(why)
        reactor.stop()

    one = parent_watch.Pulse(reactor, give_up)
    one.begin()
    with subprocess.Popen(["/bin/sleep", "1000"]) as child:
        one.is_of(child.pid)
        reactor.run()
        child.kill()
    assert wrong == ["sleeps in an import"]


@pytest.mark.parametrize("says", ["nothing", "that it has started one"])
def test_a_parent_that_owes_something_is_given_up(monkeypatch: pytest.MonkeyPatch, says: str) -> None:
    """An answer, or word of a child that has ended."""
    monkeypatch.setattr(parent_watch, "_LOOK_SECONDS", 0.01)
    child = subprocess.Popen(["/bin/true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie from here on
    reactor, wrong = Reactor(), list[str]()

    def give_up(why: str) -> None:
        wrong.append(why)
        reactor.stop()

    one = parent_watch.Pulse(reactor, give_up)
    one.begin()
    ours, theirs = socket.socketpair()
    one.ask(Channel(ours), {"start": "rank", "id": 1}, [])
    if says != "nothing":
        one.heard({"started": 1, "pid": child.pid})
    reactor.run()
    child.wait()
    for end in (ours, theirs):
        end.close()
    assert wrong == ["does not answer"]


def test_a_parent_killed_before_it_is_ready_costs_no_attempt(
    agent: MakeAgent, intake: Intake, witness: Witness, tmp_path: Path
) -> None:
    slow = f"import os, time\nwhile not os.path.exists({str(tmp_path / 'go')!r}):\n    time.sleep(0.01)"
    one = agent("python", "SCRIPTS/sleeper.py", **own(tmp_path, torch=slow))
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 1)])
    intake.wait_state(AgentState.RUNNING, 1, W0)
    os.kill(parent_of(one.pid), signal.SIGKILL)
    (tmp_path / "go").touch()
    witness.wait(what="begin")
    (heartbeat,) = intake.wait_state(AgentState.RUNNING, 1, W0)
    assert heartbeat.exit is None


def test_a_shared_parent_that_is_not_there(agent: MakeAgent, intake: Intake, witness: Witness, tmp_path: Path) -> None:
    one = agent("bash", "-c", "exit 3", **own(tmp_path) | {names.ENV_WARM_SOCKET: str(tmp_path / "nobody")})
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 1)])
    intake.wait_state(AgentState.FAILED, 1, W0)
    assert "starting an own one" in one.text


def test_one_agents_end_is_nothing_to_the_other(
    agent: MakeAgent, intake: Intake, witness: Witness, shared_parent: SharedParent
) -> None:
    agents = [agent("python", "SCRIPTS/sleeper.py", index=index) for index in (0, 1)]
    intake.wait_state(AgentState.WAITING, 0, W0, W1)
    intake.run(1, [(W0, 1), (W1, 1)])
    said = {one["rank"]: one["pid"] for one in witness.wait(2, what="begin")}
    agents[0].end()
    assert wait_gone(said[0], 0)
    assert not wait_gone(said[1], 0)
    assert shared_parent.process.poll() is None


def is_child(pid: int, parent: int) -> bool:
    """Whether `pid` was started by `parent`."""
    try:
        return f"\nPPid:\t{parent}\n" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_children_stand_by(agent: MakeAgent, intake: Intake, witness: Witness, tmp_path: Path) -> None:
    """A start is a message to a process that is there already."""
    one = agent("python", "SCRIPTS/sleeper.py", ranks=2, **own(tmp_path))
    intake.wait(lambda: W0 in intake.newest and intake.newest[W0].warm, "a warm parent")
    parent = parent_of(one.pid)
    # A fork in another process is no event that could be awaited.
    while len(waiting := {pid for pid, name in ours().items() if name == "tm-standby" and is_child(pid, parent)}) < 2:
        time.sleep(0.01)
    intake.run(1, [(W0, 2)])
    assert {said["pid"] for said in witness.wait(2, what="begin")} <= waiting


def test_a_parent_with_threads_spawns(agent: MakeAgent, intake: Intake, witness: Witness, tmp_path: Path) -> None:
    """A module that starts a thread at import makes forks unsafe; it costs time, not correctness."""
    (tmp_path / "threaded.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    agent("python", "SCRIPTS/tell.py", **own(tmp_path) | {names.ENV_PRELOAD: "threaded"})
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 1)])
    (world,) = witness.wait(what="world")
    assert (world["threads"], world["session"], world["main"]) == (1, True, True)
    intake.wait_state(AgentState.FINISHED, 1, W0)


@pytest.mark.slow
def test_where_the_agent_cannot_serve_the_store_rank_0_does(
    agent: MakeAgent, intake: Intake, witness: Witness, tmp_path: Path
) -> None:
    """Threads in the parent: no fork, no store, ranks that import torch themselves; and yet they find one another."""
    (tmp_path / "threaded.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    more = {names.ENV_WARM_SOCKET: "", names.ENV_PRELOAD: "threaded", "PYTHONPATH": str(tmp_path)}
    agent("python", "SCRIPTS/ddp.py", "3", "0", ranks=2, **more)
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 2)])
    assert [said["total"] for said in witness.wait(2, what="end")] == [2, 2]
    intake.wait_state(AgentState.FINISHED, 1, W0)


@pytest.mark.slow
def test_a_thread_that_outlives_the_program_does_not_end_it_badly(agent: MakeAgent, intake: Intake) -> None:
    """Also where the rank has a Python of its own, whose end would abort the process: `terminate called ...`."""
    agent("python", "-X", "utf8", "SCRIPTS/outlived.py")
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 1)])
    intake.wait_state(AgentState.FINISHED, 1, W0)


def test_a_parent_that_dies_of_its_imports_is_followed_by_a_bare_one(
    agent: MakeAgent, intake: Intake, witness: Witness, tmp_path: Path
) -> None:
    deadly = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"
    agent("python", "SCRIPTS/sleeper.py", **own(tmp_path, torch=deadly))
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 1)])
    witness.wait(what="begin")
    (heartbeat,) = intake.wait_state(AgentState.RUNNING, 1, W0)
    assert heartbeat.exit is None


def test_without_torch(agent: MakeAgent, intake: Intake, witness: Witness, tmp_path: Path) -> None:
    agent("python", "SCRIPTS/tell.py", **own(tmp_path))
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 1)])
    (world,) = witness.wait(what="world")
    assert world["environment"]["TORCHELASTIC_USE_AGENT_STORE"] == "False", "rank 0 opens what store it likes"
    intake.wait_state(AgentState.FINISHED, 1, W0)


def test_a_parent_that_cannot_even_begin_ends_the_agent(agent: MakeAgent, intake: Intake, tmp_path: Path) -> None:
    """A broken image: the replica ends with a code and a word of its own, and the operator decides."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nif 'trainmaster_trainer.agent.warm' in sys.orig_argv: os._exit(3)\n"
    )
    one = agent("python", "SCRIPTS/sleeper.py", **own(tmp_path))
    assert one.wait() == names.EXIT_NO_WARM_PARENT
    assert "has died 6 times at its start" in one.text

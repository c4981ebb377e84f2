"""What a rank finds when it starts: real agents, real warm parent, real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from trainmaster.wire import codec, messages, names
from trainmaster.wire.agent_states import AgentState
from trainmaster.wire.manifest import Cursor, Manifest
from trainmaster.wire.messages import Roster
from trainmaster.wire.training import TrainingPlan

from tests.trainer.agent.conftest import MakeAgent
from tests.trainer.agent.intake import Intake
from tests.trainer.agent.machine import SCRIPTS, Witness

W0, W1 = ("worker", 0), ("worker", 1)


def test_a_script_finds_what_python_would_give_it(
    agent: MakeAgent, intake: Intake, witness: Witness, tmp_path: Path
) -> None:
    one = agent("python", "SCRIPTS/tell.py", str(tmp_path / "open"), "--flag")
    intake.wait_state(AgentState.WAITING, 0, W0)
    roster = intake.run(1, [(W0, 1)])
    (world,) = witness.wait(what="world")
    intake.wait_state(AgentState.FINISHED, 1, W0)
    script = str(SCRIPTS / "tell.py")
    assert (world["name"], world["file"], world["arguments"][0]) == ("__main__", script, script)
    assert world["arguments"][1:] == [str(tmp_path / "open"), "--flag"]
    assert (world["path"], world["main"], world["stdin"], world["session"]) == (str(SCRIPTS), True, "", True)
    assert world["descriptors"][:3] == [0, 1, 2]
    # Beside these its progress page, as page and as lifeline, and what the interpreter has open just then.
    assert len(world["descriptors"]) <= 8, "a rank holds others' descriptors open"
    assert (tmp_path / "open").read_text() == "never closed", "what was left open is written all the same"
    given = world["environment"]
    assert given["GLOO_SOCKET_IFNAME"] == "lo"
    assert Path(given[names.ENV_CHECKPOINTS]).is_dir(), "nobody else makes it on a claim of a cluster"
    assert int(given["MASTER_PORT"]) == roster.rendezvous.port
    assert names.ENV_TOKEN_FILE not in given
    assert codec.decode(Roster, Path(given[names.ENV_ROSTER]).read_bytes()) == roster
    one.end()
    assert "last word" in one.text


def test_a_module_is_run_as_python_m_does(agent: MakeAgent, intake: Intake, witness: Witness) -> None:
    plan = TrainingPlan(
        "AllReduce", command=("python3", "-u", "-m", "package.train", "x"), working_directory=str(SCRIPTS)
    )
    agent(**{names.ENV_TRAINING: codec.encode(plan).decode()})
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 1)])
    (module,) = witness.wait(what="module")
    assert (module["name"], module["spec"], module["path"]) == ("__main__", "package.train", str(SCRIPTS))
    assert module["arguments"] == [str(SCRIPTS / "package/train.py"), "x"]


def test_torchrun_is_done_by_the_agent(agent: MakeAgent, intake: Intake, witness: Witness) -> None:
    one = agent("torchrun", "--nproc-per-node", "1", "--standalone", "SCRIPTS/tell.py")
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 1)])
    witness.wait(what="world")
    intake.wait_state(AgentState.FINISHED, 1, W0)
    one.end()
    assert "torchrun is not needed here" in one.text


def test_any_other_command_replaces_the_process(agent: MakeAgent, intake: Intake, tmp_path: Path) -> None:
    one = agent("bash", "-c", f"echo $RANK of $WORLD_SIZE, pid $$ > {tmp_path}/out; exit 7")
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 1)])
    (heartbeat,) = intake.wait_state(AgentState.FAILED, 1, W0)
    assert (tmp_path / "out").read_text().startswith("0 of 1, pid ")
    assert heartbeat.exit is not None
    assert (heartbeat.exit.exit_code, heartbeat.exit.error) == (7, None)
    one.end()


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (("python", "SCRIPTS/missing.py"), "the script cannot be read: No such file or directory: "),
        (("python", "-m", "package.missing"), "there is no module named package.missing"),
        (("missing-command",), "the command cannot be run: No such file or directory: missing-command"),
        (("torchrun", "--nproc-per-node=gpu", "SCRIPTS/tell.py"), "--nproc-per-node=gpu finds no GPU here: set "),
        ((), "training has neither a task nor a command"),
    ],
)
def test_what_is_not_there_is_said_clearly(
    agent: MakeAgent, intake: Intake, command: tuple[str, ...], text: str
) -> None:
    one = agent(*command, CUDA_VISIBLE_DEVICES="")
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 1)])
    (heartbeat,) = intake.wait_state(AgentState.FAILED, 1, W0)
    assert heartbeat.exit is not None
    assert heartbeat.exit.error is not None
    assert heartbeat.exit.exit_code == names.EXIT_BAD_CONFIGURATION
    assert text in heartbeat.exit.error.message
    one.end()
    assert text in one.text
    assert "Traceback" not in one.text


def test_a_working_directory_that_is_not_there(agent: MakeAgent, intake: Intake) -> None:
    plan = TrainingPlan("AllReduce", command=("python", "x.py"), working_directory="/nowhere")
    agent(**{names.ENV_TRAINING: codec.encode(plan).decode()})
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 1)])
    (heartbeat,) = intake.wait_state(AgentState.FAILED, 1, W0)
    assert heartbeat.exit is not None
    assert heartbeat.exit.error is not None
    assert heartbeat.exit.error.message == "workingDirectory: No such file or directory: /nowhere"


def test_ddp_of_two_ranks_in_one_agent(agent: MakeAgent, intake: Intake, witness: Witness) -> None:
    one = agent("python", "SCRIPTS/ddp.py", "3", "0", ranks=2)
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 2)])
    assert [said["total"] for said in witness.wait(2, what="end")] == [2, 2]
    (heartbeat,) = intake.wait_state(AgentState.FINISHED, 1, W0)
    assert heartbeat.exit is None
    one.end()
    assert "[worker/0 rank 1]" not in one.text, "nothing to complain of"


def test_ddp_over_two_agents(agent: MakeAgent, intake: Intake, witness: Witness) -> None:
    for index in (0, 1):
        agent("python", "SCRIPTS/ddp.py", "3", "0", index=index)
    intake.wait_state(AgentState.WAITING, 0, W0, W1)
    intake.run(1, [(W0, 1), (W1, 1)])
    assert {said["rank"]: said["total"] for said in witness.wait(2, what="end")} == {0: 2, 1: 2}
    first, second = intake.wait_state(AgentState.FINISHED, 1, W0, W1)
    assert first.roster_digest == second.roster_digest
    assert first.rendezvous == second.rendezvous
    assert first.offer != first.rendezvous, "each offer is taken once"


def test_a_meeting_point_that_is_not_ours_is_refused(agent: MakeAgent, intake: Intake) -> None:
    """Orders that name an offer of an agent that has died would have the ranks wait for minutes."""
    agent("python", "SCRIPTS/ddp.py", "3", "0")
    (heartbeat,) = intake.wait_state(AgentState.WAITING, 0, W0)
    roster = intake.roster(1, [(W0, 1)], messages.Rendezvous(heartbeat.offer.port, "an older key"))
    intake.order(W0, intake.run_orders(roster))
    (heartbeat,) = intake.wait_state(AgentState.FAILED, 1, W0)
    assert heartbeat.exit is not None
    assert heartbeat.exit.error is not None
    assert heartbeat.exit.error.type == "StartFailed"


def test_lines_of_two_ranks_are_marked(agent: MakeAgent, intake: Intake, witness: Witness) -> None:
    one = agent("python", "SCRIPTS/tell.py", ranks=2)
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 2)])
    witness.wait(2, what="world")
    intake.wait_state(AgentState.FINISHED, 1, W0)
    one.end()
    assert {line for line in one.text.splitlines() if "last word" in line} == {
        "[worker/0 rank 0] last word",
        "[worker/0 rank 1] last word",
    }


def test_progress_travels_with_the_heartbeats(agent: MakeAgent, intake: Intake, tmp_path: Path) -> None:
    script = tmp_path / "progress.py"
    script.write_text(
        "import os, signal\n"
        "from trainmaster.wire.progress_page import ProgressFile, ProgressPage\n"
        f"page = ProgressFile(os.environ['{names.ENV_PROGRESS_FILE}'])\n"
        "page.write(ProgressPage(41, 0.25, 100.0, 0.01, 1.0, 'save', 40))\n"
        "signal.pause()\n"
    )
    (tmp_path / "checkpoints/step-00000040").mkdir(parents=True)
    manifest = Manifest(40, 1, 1, "AllReduce", Cursor(40, 160, 4, 1), 1.5, "abc", ())
    (tmp_path / "checkpoints/step-00000040/manifest.json").write_bytes(manifest.encode())
    intake.hold_seconds = 0.1
    agent("python", str(script))
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 1)])
    intake.wait(lambda: any(rank.step for rank in intake.newest[W0].ranks) and bool(intake.newest[W0].checkpoint), "it")
    heartbeat = intake.newest[W0]
    assert heartbeat.ranks == (messages.RankProgress(0, 41, "save", 0.25, 100.0, 0.01, attempt=1, start=0),)
    assert heartbeat.checkpoint == messages.CheckpointRecord(40, 1.5, "abc")


def test_forked_ranks_draw_different_random_numbers(
    agent: MakeAgent, intake: Intake, witness: Witness, tmp_path: Path
) -> None:
    script = tmp_path / "draw.py"
    script.write_text(
        f"import sys; sys.path.append({str(SCRIPTS)!r})\n"
        "import random, numpy\nfrom witness import say\n"
        "say('drew', random=random.random(), numpy=numpy.random.random())\n"
    )
    agent("python", str(script), ranks=2)
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 2)])
    one, other = witness.wait(2, what="drew")
    assert one["random"] != other["random"]
    assert one["numpy"] != other["numpy"]


def test_scripts_may_start_processes_of_their_own(
    agent: MakeAgent, intake: Intake, witness: Witness, tmp_path: Path
) -> None:
    """Multiprocessing imports the script again in its children: they must find it by the path that was given."""
    (tmp_path / "pool.py").write_text(
        f"import sys; sys.path.append({str(SCRIPTS)!r})\n"
        "import multiprocessing\nfrom witness import say\n"
        "def double(number): return 2 * number\n"
        "if __name__ == '__main__':\n"
        "    for method in ('spawn', 'forkserver', 'fork'):\n"
        "        with multiprocessing.get_context(method).Pool(1) as pool:\n"
        "            say('pool', method=method, doubled=pool.map(double, [1, 2]))\n"
    )
    plan = TrainingPlan("AllReduce", command=("python", "pool.py"), working_directory=str(tmp_path))
    agent(**{names.ENV_TRAINING: codec.encode(plan).decode()})
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 1)])
    for method in ("spawn", "forkserver", "fork"):
        (said,) = witness.wait(what="pool", method=method)
        assert said["doubled"] == [2, 4]
    intake.wait_state(AgentState.FINISHED, 1, W0)


def test_an_idle_agent_is_small(agent: MakeAgent, intake: Intake) -> None:
    one = agent("python", "SCRIPTS/tell.py")
    intake.wait_state(AgentState.WAITING, 0, W0)
    status = Path(f"/proc/{one.pid}/status").read_text()
    resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    assert resident < 26_000, f"{resident} kB"

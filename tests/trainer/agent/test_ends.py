"""How ranks and agents come to their ends: real processes, real signals."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trainmaster.wire import names
from trainmaster.wire.agent_states import AgentState, Verb
from trainmaster.wire.messages import ExitReport, Heartbeat, Orders
from trainmaster.wire.training import TrainingPlan

from tests.trainer.agent.conftest import MakeAgent
from tests.trainer.agent.intake import Intake
from tests.trainer.agent.machine import SCRIPTS, AgentProcess, SharedParent, Witness, wait_gone

W0, W1 = ("worker", 0), ("worker", 1)


def run_to_the_end(agent: MakeAgent, intake: Intake, *command: str, ranks: int = 1) -> tuple[AgentProcess, ExitReport]:
    """The exit report of a run that fails."""
    one = agent(*command, ranks=ranks)
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, ranks)])
    (heartbeat,) = intake.wait_state(AgentState.FAILED, 1, W0)
    assert heartbeat.exit is not None
    return one, heartbeat.exit


def test_a_script_that_raises(agent: MakeAgent, intake: Intake) -> None:
    one, report = run_to_the_end(agent, intake, "python", "SCRIPTS/fail.py", "raise")
    assert (report.exit_code, report.signal, report.out_of_memory) == (1, None, False)
    assert report.error is not None
    assert (report.error.type, report.error.message) == ("ValueError", "no good")
    assert re.fullmatch(r".*/fail\.py:\d+ in fail", report.error.frame)
    assert abs(report.error.time - time.time()) < 60
    one.end()
    trace = one.text[one.text.index("Traceback") :].splitlines()
    assert re.search(r'fail\.py", line \d+, in <module>$', trace[1]), (
        "it begins in the user's script, as with python itself"
    )
    assert "ValueError: no good" in trace


SOON = "from trainmaster_trainer.agent import __main__, reporter; reporter.GONE_SECONDS = 1.0; exit(__main__.main())"


def test_an_agent_whose_job_is_deleted_without_it_ends(
    tmp_path: Path, intake: Intake, shared_parent: SharedParent
) -> None:
    """By `kubectl delete --cascade=orphan`. Its ranks get their time to save."""
    one = AgentProcess(tmp_path, intake, TrainingPlan("AllReduce", command=("python", f"{SCRIPTS}/sleeper.py")))
    one.command = (sys.executable, "-c", SOON)
    one.start(**{names.ENV_WARM_SOCKET: str(shared_parent.path)})
    try:
        intake.wait_state(AgentState.WAITING, 0, W0)
        intake.run(1, [(W0, 1)])
        intake.wait_state(AgentState.RUNNING, 1, W0)
        intake.refusal = (410, "the TrainingJob default/test is deleted")
        assert one.wait() == names.EXIT_JOB_GONE
    finally:
        one.end()
    assert "Leaving, attempt 1: the operator refused the heartbeat: 410" in one.text


def test_a_limit_for_hangs_that_is_changed_while_a_job_runs(agent: MakeAgent, intake: Intake, witness: Witness) -> None:
    """`hangSeconds` may be corrected when it turns out to be wrong; the orders bring it."""
    agent("python", "SCRIPTS/sleeper.py")
    intake.wait_state(AgentState.WAITING, 0, W0)
    roster = intake.run(1, [(W0, 1)], hang_seconds=86_400.0)
    (said,) = witness.wait(what="begin")
    os.kill(said["pid"], signal.SIGSTOP)
    with intake.changed:
        intake.orders[W0] = intake.run_orders(roster, hang_seconds=1.0)
        intake.changed.notify_all()
    (heartbeat,) = intake.wait_state(AgentState.FAILED, 1, W0)
    assert heartbeat.exit is not None
    assert heartbeat.exit.hung


def test_a_wrong_configuration_is_said_without_a_traceback(agent: MakeAgent, intake: Intake) -> None:
    one, report = run_to_the_end(agent, intake, "python", "SCRIPTS/fail.py", "configuration")
    assert report.exit_code == names.EXIT_BAD_CONFIGURATION
    assert report.error is not None
    assert report.error.message == "steps must be positive"
    one.end()
    assert "steps must be positive" in one.text
    assert "Traceback" not in one.text


def test_a_save_that_failed_is_said_in_a_line(agent: MakeAgent, intake: Intake) -> None:
    one, report = run_to_the_end(agent, intake, "python", "SCRIPTS/fail.py", "save")
    assert report.exit_code == 1
    assert report.error is not None
    assert (report.error.type, report.error.message[:18]) == ("SaveFailedError", "rank 0: [Errno 28]")
    one.end()
    assert "trainmaster: SaveFailedError: rank 0: [Errno 28] No space left on device\n" in one.text
    assert "Traceback" not in one.text


@pytest.mark.parametrize(
    ("way", "code", "name"),
    [("3", 3, None), ("SIG11", None, "SIGSEGV"), ("SIG9", None, "SIGKILL"), ("SIG40", None, "SIG40")],
)
def test_other_ends(agent: MakeAgent, intake: Intake, way: str, code: int | None, name: str | None) -> None:
    _, report = run_to_the_end(agent, intake, "python", "SCRIPTS/fail.py", way)
    assert replace(report, said="") == ExitReport(attempt=1, rank=0, step=0, exit_code=code, signal=name)
    assert report.said.startswith("Fatal Python error: Segmentation fault" if name == "SIGSEGV" else "")


def test_a_script_that_says_why_it_ends(agent: MakeAgent, intake: Intake) -> None:
    _, report = run_to_the_end(agent, intake, "python", "SCRIPTS/fail.py", "message")
    assert (report.exit_code, report.signal) == (1, None)
    assert report.error is not None
    assert (report.error.type, report.error.message) == ("SystemExit", "a reason for people")
    assert re.fullmatch(r".*/fail\.py:\d+ in fail", report.error.frame)


def test_the_standard_error_of_a_program_that_is_no_python_file_is_its_evidence(
    agent: MakeAgent, intake: Intake
) -> None:
    agent("sh", "-c", "echo fine; echo one >&2; echo clear message >&2; exit 3")
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 1)])
    (heartbeat,) = intake.wait_state(AgentState.FAILED, 1, W0)
    assert heartbeat.exit is not None
    assert (heartbeat.exit.exit_code, heartbeat.exit.said, heartbeat.exit.error) == (3, "one\nclear message", None)


def test_exit_code_zero_and_threads_that_are_still_busy(agent: MakeAgent, intake: Intake, witness: Witness) -> None:
    agent("python", "SCRIPTS/fail.py", "thread")
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 1)])
    witness.wait(what="thread")
    intake.wait_state(AgentState.FINISHED, 1, W0)


def test_one_rank_that_fails_ends_the_other(agent: MakeAgent, intake: Intake) -> None:
    _, report = run_to_the_end(agent, intake, "python", "SCRIPTS/fail.py", "second", ranks=2)
    assert report.rank == 1
    assert report.error is not None
    assert report.error.message == "rank one"


def restart_on_failure(intake: Intake, agents: list[tuple[tuple[str, int], int]]) -> None:
    """Have the intake order the next attempt as soon as a failure is reported."""
    ordered = {1}

    def react(heartbeat: Heartbeat) -> None:
        if heartbeat.state == AgentState.FAILED and heartbeat.attempt + 1 not in ordered:
            ordered.add(heartbeat.attempt + 1)
            intake.run(heartbeat.attempt + 1, agents, grace_seconds=0.0)

    intake.react = react


def forked_by(witness: Witness, restart: int) -> set[int]:
    """The parents of the ranks that run since this restart."""
    pids = [said["pid"] for said in witness.find(what="begin", restart=restart)]
    return {int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) for pid in pids}


def kill_and_time(intake: Intake, witness: Witness, attempt: int) -> dict[str, float]:
    """SIGKILL a rank of `attempt`; milliseconds to each phase of the next one."""
    victim = witness.find(what="begin", restart=attempt - 1)[-1]["pid"]
    killed = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    steps = witness.wait(2 * (attempt + 1), what="step")[-2:]
    begins = witness.find(what="begin", restart=attempt)
    reported = intake.first_time(lambda it: (it.state, it.attempt) == (AgentState.FAILED, attempt))
    phases = {
        "reported": reported,
        "began": max(said["time"] for said in begins),
        "first step": max(said["time"] for said in steps),
    }
    return {name: round((when - killed) * 1e3, 1) for name, when in phases.items()}


def test_a_killed_rank_and_back_at_work(
    agent: MakeAgent, intake: Intake, witness: Witness, record_property: Any
) -> None:
    agent("python", "SCRIPTS/ddp.py", "100000", "0.01", ranks=2)
    intake.wait_state(AgentState.WAITING, 0, W0)
    restart_on_failure(intake, [(W0, 2)])
    intake.run(1, [(W0, 2)])
    witness.wait(2, what="step")
    warm = forked_by(witness, restart=0)
    times = [kill_and_time(intake, witness, attempt) for attempt in (1, 2, 3)]
    print("\nSIGKILL to the first DDP step of both ranks, in ms:", *times, sep="\n  ")  # noqa: T201 the figures
    record_property("restart_ms", times)
    assert forked_by(witness, restart=3) == warm, "ranks come from the process that has imported everything"
    (heartbeat,) = intake.wait_state(AgentState.RUNNING, 4, W0)
    assert heartbeat.exit is not None
    assert (heartbeat.exit.attempt, heartbeat.exit.signal, heartbeat.exit.error) == (3, "SIGKILL", None)


def test_a_killed_rank_of_two_agents(agent: MakeAgent, intake: Intake, witness: Witness) -> None:
    for index in (0, 1):
        agent("python", "SCRIPTS/ddp.py", "100000", "0.01", index=index)
    intake.wait_state(AgentState.WAITING, 0, W0, W1)
    restart_on_failure(intake, [(W0, 1), (W1, 1)])
    intake.run(1, [(W0, 1), (W1, 1)])
    witness.wait(2, what="step")
    kill_and_time(intake, witness, 1)
    intake.wait_state(AgentState.RUNNING, 2, W0, W1)


def test_ranks_that_wait_for_the_figures_of_one_that_has_vanished_follow_orders(
    agent: MakeAgent, intake: Intake, witness: Witness
) -> None:
    """By itself the wait lasts a day; the operator replaces who has vanished, and its orders end it."""
    agent("python", "SCRIPTS/awaiting.py", ranks=2)
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 2)])
    waiting = [said["pid"] for said in witness.wait(2, what="begin")]
    intake.run(2, [(W0, 2)])
    assert all(wait_gone(pid) for pid in waiting)
    witness.wait(2, what="begin", restart=1)


def test_wait_ends_ranks_and_run_brings_them_back(agent: MakeAgent, intake: Intake, witness: Witness) -> None:
    agent("python", "SCRIPTS/sleeper.py")
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 1)])
    (first,) = witness.wait(what="begin")
    intake.order(W0, intake.wait_orders(2))
    (heartbeat,) = intake.wait_state(AgentState.WAITING, 2, W0)
    assert heartbeat.exit is None, "ended by orders is no failure"
    assert wait_gone(first["pid"], 0)
    intake.run(2, [(W0, 1)])
    witness.wait(2, what="begin")
    intake.wait_state(AgentState.RUNNING, 2, W0)


def test_a_rank_that_saves_when_told_to_end(agent: MakeAgent, intake: Intake, witness: Witness) -> None:
    agent("python", "SCRIPTS/sleeper.py", "saving")
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 1)])
    witness.wait(what="begin")
    intake.order(W0, Orders(Verb.WAIT, 2, "suspended", grace_seconds=20.0))
    witness.wait(what="saved")
    intake.wait_state(AgentState.WAITING, 2, W0)


def test_a_rank_that_will_not_end_is_killed(agent: MakeAgent, intake: Intake, witness: Witness) -> None:
    agent("python", "SCRIPTS/sleeper.py", "stubborn")
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 1)])
    witness.wait(what="begin")
    intake.order(W0, Orders(Verb.WAIT, 2, "", grace_seconds=0.1))
    intake.wait_state(AgentState.WAITING, 2, W0)


def test_what_a_killed_rank_had_started_ends_with_it(agent: MakeAgent, intake: Intake, tmp_path: Any) -> None:
    """Left-over processes would keep the dead rank's sockets open, and its peers waiting."""
    one, report = run_to_the_end(agent, intake, "bash", "-c", f"sleep 1000 & echo $! > {tmp_path}/child; kill -9 $$")
    assert report.signal == "SIGKILL"
    assert wait_gone(int((tmp_path / "child").read_text()))
    one.end()


def test_what_a_rank_had_started_does_not_outlive_it(agent: MakeAgent, intake: Intake, tmp_path: Any) -> None:
    """Also where the rank ended well: then the log says so, since that may have been the training."""
    one = agent("bash", "-c", f"sleep 1000 & echo $! > {tmp_path}/child")
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 1)])
    intake.wait_state(AgentState.FINISHED, 1, W0)
    assert wait_gone(int((tmp_path / "child").read_text()))
    one.end()
    assert "rank 0 has ended with 0, and nothing waits for what it had started: " in one.text


SPAWNED = "import multiprocessing.resource_tracker as t, os; t.ensure_running(); os._exit(0)"


def test_what_left_its_session_is_told_and_a_tracker_is_not(agent: MakeAgent, intake: Intake, tmp_path: Any) -> None:
    one = agent("sh", "-c", f"setsid sleep 1000 & echo $! > {tmp_path}/child; {sys.executable} -c '{SPAWNED}'")
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 1)])
    intake.wait_state(AgentState.FINISHED, 1, W0)
    one.end()
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
    assert re.findall("nothing waits for .*: (.*?)[.] If", one.text) == ["sleep 1000"]


@pytest.mark.parametrize("way", ["dies", "by orders", "with its agent"])
def test_shared_memory_of_a_killed_rank_goes(agent: MakeAgent, intake: Intake, witness: Witness, way: str) -> None:
    """Python's resource tracker sees to it; all else that the rank had started is killed with it."""
    one = agent("python", "SCRIPTS/shared.py", way)
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 1)])
    (said,) = witness.wait(what="begin")
    if way == "by orders":
        intake.order(W0, Orders(Verb.WAIT, 2, "", grace_seconds=0.0))
    elif way == "with its agent":
        os.kill(one.pid, signal.SIGKILL)
        one.wait()
    assert wait_gone(said["child"])
    assert wait_gone(said["tracker"])
    assert not Path("/dev/shm", said["memory"]).exists()  # noqa: S108 where Python puts it


def test_sigterm_to_the_agent(agent: MakeAgent, intake: Intake, witness: Witness) -> None:
    one = agent("python", "SCRIPTS/sleeper.py", "saving")
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 1)])
    witness.wait(what="begin")
    os.kill(one.pid, signal.SIGTERM)
    witness.wait(what="saved")
    assert one.wait() == names.EXIT_TERMINATED
    intake.wait_state(AgentState.LEAVING, 1, W0)


def test_sigterm_to_the_agent_and_a_rank_that_will_not_end(agent: MakeAgent, intake: Intake, witness: Witness) -> None:
    one = agent("python", "SCRIPTS/sleeper.py", "stubborn", **{names.ENV_GRACE: "0.2"})
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 1)])
    (said,) = witness.wait(what="begin")
    os.kill(one.pid, signal.SIGTERM)
    assert one.wait() == names.EXIT_TERMINATED
    assert wait_gone(said["pid"], 0)


def test_exit_orders(agent: MakeAgent, intake: Intake, witness: Witness) -> None:
    one = agent("python", "SCRIPTS/sleeper.py")
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 1)])
    witness.wait(what="begin")
    intake.order(W0, Orders(Verb.EXIT, 1, "the job has ended", exit_code=5))
    assert one.wait() == 5


def test_a_killed_agent_takes_its_ranks_along(agent: MakeAgent, intake: Intake, witness: Witness) -> None:
    one = agent("python", "SCRIPTS/sleeper.py", "stubborn")
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 1)])
    (said,) = witness.wait(what="begin")
    os.kill(one.pid, signal.SIGKILL)
    assert wait_gone(said["pid"])
    one.wait()


def test_an_agent_whose_owner_has_gone_ends(agent: MakeAgent, intake: Intake, witness: Witness) -> None:
    owner = os.posix_spawn("/bin/sleep", ["sleep", "1000"], os.environ)
    one = agent("python", "SCRIPTS/sleeper.py", **{names.ENV_PARENT_PID: str(owner)})
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 1)])
    (said,) = witness.wait(what="begin")
    os.kill(owner, signal.SIGKILL)
    os.waitpid(owner, 0)
    assert one.wait() == names.EXIT_TERMINATED
    assert wait_gone(said["pid"], 0)


def test_an_agent_that_waits_for_a_rank_to_save_does_so_no_longer_without_its_owner(
    agent: MakeAgent, intake: Intake, witness: Witness
) -> None:
    owner = os.posix_spawn("/bin/sleep", ["sleep", "1000"], os.environ)
    variables = {names.ENV_PARENT_PID: str(owner), names.ENV_GRACE: "1000"}
    one = agent("python", "SCRIPTS/sleeper.py", "stubborn", **variables)
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 1)])
    (said,) = witness.wait(what="begin")
    os.kill(one.pid, signal.SIGTERM)
    intake.wait_state(AgentState.LEAVING, 1, W0)
    os.kill(owner, signal.SIGKILL)
    os.waitpid(owner, 0)
    assert one.wait() == names.EXIT_TERMINATED
    assert wait_gone(said["pid"], 0)


def test_training_goes_on_while_the_operator_is_away(agent: MakeAgent, intake: Intake, witness: Witness) -> None:
    one = agent("python", "SCRIPTS/ddp.py", "60", "0.02")
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 1)])
    witness.wait(what="step")
    intake.close()
    witness.wait(what="end")
    back = Intake(port=intake.port, token=intake.token)
    try:
        back.orders = intake.orders
        (heartbeat,) = back.wait_state(AgentState.FINISHED, 1, W0)
        assert heartbeat.exit is None
        one.end()
    finally:
        back.close()
    assert len([line for line in one.text.splitlines() if "away" in line]) <= 3

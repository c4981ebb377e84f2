"""Members that come and go one by one: who is lost or dies starts again alone, and the others notice a line only."""

from __future__ import annotations

import dataclasses

import pytest
from trainmaster.wire import names
from trainmaster.wire.agent_states import Verb
from trainmaster.wire.messages import CheckpointRecord

from tests.builders import TASK, a_job, an_error, deleting, ended, evicted, saying
from tests.core.members_stage import SCRIPT, Members, a_parameter_server_job

SERVER = "parameterServer-0"


def test_the_first_start_is_that_of_a_group() -> None:
    stage = a_parameter_server_job(workers=2, servers=2)
    assert stage.status.phase == "Running"
    assert stage.status.starts == {"worker-0": 0, "worker-1": 0, "parameterServer-0": 0, "parameterServer-1": 0}
    roster = stage.roster()
    assert roster.independent
    assert roster.rendezvous.ports == ()
    assert [(one.role, one.index, one.first_rank, one.ranks) for one in roster.members] == [
        ("worker", 0, 0, 1),
        ("worker", 1, 1, 1),
        ("parameterServer", 0, 2, 1),
        ("parameterServer", 1, 3, 1),
    ]
    assert len({one.ports for one in roster.members}) == 4
    assert (stage.status.parameter_servers or stage.status.replicas).summary == "2/2"  # type: ignore[union-attr]


def test_nobody_starts_before_all_are_there() -> None:
    stage = Members(a_job().where(strategy={"type": "Gossip"}, training=SCRIPT).with_workers(3))
    stage.settle().call_in("worker-0", "worker-1")
    assert {orders.verb for orders in stage.offer().orders.values()} == {Verb.WAIT}
    stage.call_in()
    assert stage.offer().follow().status.phase == "Running"


def test_a_worker_that_dies_starts_again_alone() -> None:
    stage = a_parameter_server_job(servers=2)
    before = stage.roster()
    stage.dies("worker-1")
    status = stage.status
    assert (status.phase, status.attempt, status.starts["worker-1"], status.restart_count) == ("Running", 1, 1, 1)
    (line,) = status.restarts
    assert (line.failure_class, line.decision, line.steps_lost) == ("Signal", "Restart", 0)
    assert "the others train on" in line.why
    assert line.seconds_lost is None
    after = stage.roster()
    changed = [old.index for old, new in zip(before.members, after.members, strict=True) if old != new]
    assert changed == [1]
    assert after.rendezvous == before.rendezvous
    new = stage.line("worker-1")
    assert new is not None
    assert (new.start, new.incarnation) == (1, 0)
    stage.wait(3)
    stage.follow()
    assert stage.status.restarts[0].seconds_lost == 3
    assert [event.reason for event in stage.events][-1] == "MemberRestarted"


def test_that_a_worker_takes_along_what_compression_left_out_is_said() -> None:
    stage = a_parameter_server_job(strategy={"type": "ParameterServer", "compression": "TopK"}, training=TASK)
    assert "What compression TopK had left out" in stage.dies("worker-1").status.restarts[-1].why


def test_a_death_is_counted_once_until_it_dies_again() -> None:
    stage = a_parameter_server_job(servers=2)
    stage.dies("worker-1")
    stage.wait(60)
    assert stage.status.restart_count == 1, "its agent has not taken the orders yet"
    stage.follow().dies("worker-1")
    assert (stage.status.restart_count, stage.status.starts["worker-1"]) == (2, 2)


@pytest.mark.parametrize("how", [deleting, evicted, ended], ids=lambda how: how.__name__)
def test_a_lost_pod_is_replaced_and_joins(how: object) -> None:
    stage = a_parameter_server_job(workers=3)
    stage.change("worker-1", how)  # type: ignore[arg-type]
    assert stage.status.incarnations == {"worker-1": 1}
    assert stage.line("worker-1") is None
    assert stage.status.attempt == 1
    stage.call_in()
    stage.offer()
    new = stage.line("worker-1")
    assert new is not None
    assert (new.incarnation, new.first_rank) == (1, 1)
    assert stage.orders_of("worker-1").verb == Verb.RUN
    stage.follow()
    assert stage.status.restarts[0].seconds_lost is not None
    assert stage.status.restart_count == 1


def test_a_pod_that_vanished_is_replaced_too() -> None:
    stage = a_parameter_server_job(workers=3)
    stage.vanish("worker-2")
    assert stage.status.incarnations == {"worker-2": 1}
    assert stage.status.restarts[0].failure_class == "ReplicaDeleted"


def test_the_first_worker_may_go_and_the_key_stays() -> None:
    stage = a_parameter_server_job()
    key = stage.roster().rendezvous.key
    stage.change("worker-0", deleting)
    stage.call_in()
    stage.offer()
    assert stage.roster().rendezvous.key == key
    assert stage.replica("worker-0").incarnation == 1


def test_all_servers_lost_at_once_is_a_new_attempt() -> None:
    stage = a_parameter_server_job(servers=2)
    stage.dies(SERVER)
    assert (stage.status.attempt, stage.status.starts[SERVER]) == (1, 1)
    stage.change("parameterServer-1", deleting)
    assert stage.status.attempt == 2, "the other one has nothing to start from yet"
    assert stage.status.starts == {}
    assert stage.orders_of("worker-0").verb == Verb.WAIT


def test_the_only_server_lost_is_a_new_attempt_and_a_worker_is_none() -> None:
    stage = a_parameter_server_job()
    stage.dies("worker-0").follow()
    assert stage.status.attempt == 1
    stage.dies(SERVER)
    assert stage.status.attempt == 2


def test_before_all_have_begun_they_are_a_group() -> None:
    stage = Members(a_job().where(strategy={"type": "Gossip"}, training=SCRIPT).with_workers(2))
    stage.settle().call_in()
    stage.offer().follow("worker-0")
    assert stage.status.phase == "Starting"
    stage.dies("worker-0")
    assert stage.status.attempt == 2


def test_scaling_adds_and_removes_members_without_a_new_attempt() -> None:
    stage = a_parameter_server_job(workers=2)
    stage.scale(3)
    assert (stage.status.attempt, stage.status.phase, stage.line("worker-2")) == (1, "Running", None)
    stage.call_in()
    stage.offer()
    added = stage.line("worker-2")
    assert added is not None
    assert added.first_rank == 3, "after the server: nobody's rank changes"
    stage.follow()
    stage.scale(1)
    assert [one.index for one in stage.roster().members] == [0, 0]
    assert sorted(stage.status.starts) == [SERVER, "worker-0"]
    assert stage.status.restart_count == 0
    stage.scale(2)
    assert stage.replica("worker-1").incarnation == 1, "another one, not the one that was sent away"


def test_other_servers_are_a_new_attempt() -> None:
    stage = a_parameter_server_job()
    assert stage.job.spec.parameter_servers
    stage.respec(parameter_servers=stage.job.spec.parameter_servers.model_copy(update={"replicas": 2}))
    assert (stage.status.attempt, stage.status.phase) == (2, "Resizing")


def test_a_new_operator_tells_nobody_that_others_have_gone() -> None:
    stage = a_parameter_server_job(workers=3)
    words = {name: replica.heartbeat for name, replica in stage.replicas.items()}
    stage.operator_restarts()
    for name in [*words][:-1]:
        beat = words[name]
        assert beat
        stage.replicas[name] = saying(stage.replicas[name], beat)
    stage.settle()
    assert {orders.verb for orders in stage.orders.values()} == {Verb.WAIT}
    stage.wait(31)
    there = [one for one in stage.roster().members if one.address]
    assert len(there) == 3, "who does not speak for so long is left out"
    assert stage.status.restart_count == 0


def test_a_new_operator_counts_its_own_time_and_not_that_of_who_is_missing() -> None:
    stage = a_parameter_server_job(workers=3)
    stage.change("worker-2", evicted).wait(60)
    words = {name: replica.heartbeat for name, replica in stage.replicas.items()}
    stage.operator_restarts()
    first = stage.replica("worker-0")
    beat = words[first.name]
    assert beat
    stage.change("worker-0", lambda replica: saying(replica, beat))
    assert {orders.verb for orders in stage.orders.values()} == {Verb.WAIT}
    stage.wait(31)
    assert [one.index for one in stage.roster().members if one.address] == [0], "who is silent for so long is left out"


def test_the_budget_and_repeats_are_those_of_groups() -> None:
    stage = a_parameter_server_job(failurePolicy={"maxRestarts": 2})
    for number in (1, 2):
        stage.dies("worker-0").follow()
        assert stage.status.restart_count == number
    stage.dies("worker-0")
    assert (stage.status.phase, stage.status.reason) == ("Failed", "RestartsExhausted")


def test_an_error_that_no_restart_would_mend_ends_the_job() -> None:
    stage = a_parameter_server_job()
    report = dataclasses.replace(an_error("no such layer"), exit_code=names.EXIT_BAD_CONFIGURATION)
    stage.dies("worker-0", exit_code=78, signal=None, error=report.error)
    assert (stage.status.phase, stage.status.reason) == ("Failed", "BadConfiguration")


def test_who_ended_because_another_did_is_counted_too() -> None:
    """Where members live alone nobody's error is an echo: nobody is waited for, and the second like it is its own."""
    stage = a_parameter_server_job(failurePolicy={"maxRestarts": 1})
    error = an_error("Connection reset by peer", kind="RuntimeError").error
    stage.dies("worker-0", signal=None, exit_code=1, error=error).follow()
    assert stage.status.restart_count == 1
    stage.dies("worker-1", signal=None, exit_code=1, error=error)
    assert stage.status.phase == "Failed"


def test_when_all_workers_have_finished_servers_get_time_to_save() -> None:
    stage = a_parameter_server_job()
    stage.finish("worker-0", "worker-1")
    assert stage.status.phase == "Succeeded"
    assert (stage.orders_of(SERVER).verb, stage.orders_of(SERVER).grace_seconds) == (Verb.EXIT, 20)


def test_servers_are_one_where_nobody_says_how_many() -> None:
    stage = Members(a_job().where(strategy={"type": "ParameterServer"}, training=SCRIPT).with_workers(2))
    stage.settle()
    assert [name for name in stage.created if "parameterserver" in name] == ["digits-parameterserver-0-0"]


@pytest.mark.parametrize("lost", ["parameterServer-0", "parameterServer-1"])
def test_a_server_that_is_away_keeps_its_place_among_the_servers(lost: str) -> None:
    stage = a_parameter_server_job(servers=2)
    before = [(one.role, one.index, one.first_rank) for one in stage.roster().members]
    stage.change(lost, evicted)
    assert [(one.role, one.index, one.first_rank) for one in stage.roster().members] == before
    away = stage.line(lost)
    assert away is not None
    assert (away.address, away.ports) == ("", ())
    assert stage.roster().world_size == 4
    stage.call_in(lost)
    stage.offer().follow()
    back = stage.line(lost)
    assert back is not None
    assert (back.address, len(back.ports), back.incarnation) == (stage.replica(lost).address, 1, 1)


def test_a_server_whose_next_start_is_put_off_is_told_to_wait_and_keeps_its_line() -> None:
    stage = a_parameter_server_job(servers=2)
    error = an_error("no process could be started", kind="StartFailed").error
    for _ in range(2):  # the second time, some seconds have to pass
        stage.follow().dies("parameterServer-1", signal=None, exit_code=1, error=error)
    line = stage.line("parameterServer-1")
    assert stage.orders_of("parameterServer-1").verb == Verb.WAIT
    assert line is not None
    assert line.address == ""


@pytest.mark.parametrize("kind", ["ParameterServer", "Gossip"])
def test_a_task_whose_steps_are_all_done_waits_for_nobody_who_has_not_begun(kind: str) -> None:
    stage = Members(a_job().where(strategy={"type": kind}, training=TASK).with_workers(3))
    stage.settle().call_in()
    stage.offer().follow()
    stage.change("worker-2", evicted)
    stage.finish("worker-0")
    assert not stage.status.finished, "worker-1 may be about to save"
    stage.finish("worker-1")
    assert stage.status.phase == "Succeeded"


def test_a_script_of_ones_own_is_waited_for_on_every_worker() -> None:
    stage = a_parameter_server_job(workers=3)
    stage.change("worker-2", evicted)
    stage.finish("worker-0", "worker-1")
    assert not stage.status.finished


def test_who_has_finished_does_not_stand_for_who_still_trains() -> None:
    stage = a_parameter_server_job(workers=2, training=TASK)
    stage.finish("worker-0").wait(10)
    stage.vanish("worker-0").wait(10)
    assert not stage.status.finished
    stage.finish("worker-1")
    assert stage.status.phase == "Succeeded"


@pytest.mark.parametrize("servers", [1, 2])
def test_a_loss_that_is_nan_takes_all_back_to_an_older_checkpoint(servers: int) -> None:
    """Whoever is left has what the one that noticed it had sent out."""
    stage = a_parameter_server_job(servers=servers)
    record = CheckpointRecord(50, 0.0, "abc")
    stage.say("parameterServer-0", lambda beat: dataclasses.replace(beat, checkpoint=record)).wait(20)
    error = an_error("the loss of step 51 is nan", step=51, kind="NonFiniteLossError").error
    stage.dies("parameterServer-0", signal=None, exit_code=1, error=error, step=51)
    assert stage.status.attempt == 2
    assert "older checkpoint than that of step 50" in stage.status.restarts[-1].why
    stage.call_in()
    assert stage.offer().roster().resume_before == 50
    stage.follow(step=21, resumed_step=20).wait(3)
    (line,) = stage.status.restarts
    assert (line.step, line.steps_lost, line.seconds_lost) == (51, 31, 0)
    assert "It went on from step 20." in line.why

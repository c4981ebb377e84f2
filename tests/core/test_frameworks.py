"""Groups of other frameworks: ports of the roster, and errors that only their output tells."""

from __future__ import annotations

import dataclasses
from functools import partial

from trainmaster.api.job_states import Phase
from trainmaster.cli.job_logs import place_of_rank
from trainmaster.core.failures import classes, tracebacks
from trainmaster.core.failures.failures import of_rank
from trainmaster.core.replica_environment import training_plan
from trainmaster.wire.agent_states import Verb
from trainmaster.wire.messages import ExitReport, Heartbeat

from tests.builders import JobBuilder, a_job, a_replica, a_slot
from tests.core.stage import Stage


def a_script(framework: str, workers: int = 2) -> JobBuilder:
    """A job of a script."""
    training = {"command": ["python", "train.py"], "framework": framework}
    return a_job().where(training=training).with_workers(workers)


def offer_ports(stage: Stage, *keys: str) -> Stage:
    """These agents offer a port besides, as those of a framework do."""
    for key in keys:
        stage.say(key, partial(_with_port, 50000 + stage.replica(key).index))
    return stage


def _with_port(port: int, beat: Heartbeat) -> Heartbeat:
    return dataclasses.replace(beat, offer=dataclasses.replace(beat.offer, ports=(port,)))


def test_each_rank_has_a_port_and_nobody_begins_before_all_have() -> None:
    stage = offer_ports(Stage(a_script("JAX")).settle().call_in(), "worker-0")
    assert {orders.verb for orders in stage.orders.values()} == {Verb.WAIT}
    offer_ports(stage, "worker-1")
    roster = stage.orders[stage.replica("worker-0").uid].roster
    assert roster
    assert [member.ports for member in roster.members] == [(50000,), (50001,)]
    assert not roster.independent


def test_a_group_of_torch_has_no_ports() -> None:
    stage = offer_ports(Stage(a_script("Torch")).settle().call_in(), "worker-0", "worker-1")
    roster = stage.orders[stage.replica("worker-0").uid].roster
    assert roster
    assert [member.ports for member in roster.members] == [(), ()]


def test_all_workers_of_a_group_must_finish() -> None:
    stage = offer_ports(Stage(a_script("XGBoost")).settle().call_in(), "worker-0", "worker-1").obey()
    assert stage.finish("worker-0").status.phase == Phase.RUNNING
    assert stage.finish().status.phase == Phase.SUCCEEDED


def chief_and_servers() -> Stage:
    """TensorFlow's ParameterServer, all of which has begun."""
    job = a_script("TensorFlow").where(strategy={"type": "ParameterServer"}, parameterServers={"replicas": 1})
    stage = Stage(job).settle().call_in()
    assert not stage.job.spec.independent
    return offer_ports(stage, "worker-0", "worker-1", "parameterServer-0").obey()


def test_the_job_ends_with_the_chief_and_the_others_are_told_to_leave() -> None:
    stage = chief_and_servers()
    assert stage.finish("worker-1").status.phase != Phase.SUCCEEDED, "a worker that ends early decides nothing"
    stage.finish("worker-0")
    assert stage.status.phase == Phase.SUCCEEDED
    assert {orders.verb for orders in stage.orders.values()} == {Verb.EXIT}


def test_a_chief_that_fails_while_servers_live_begins_anew_and_never_succeeds() -> None:
    stage = chief_and_servers().rank_dies("worker-0", ExitReport(1, 0, 0, exit_code=3))
    assert (stage.status.attempt, stage.status.restart_count) == (2, 1)


def test_a_server_that_dies_takes_the_whole_group_along() -> None:
    stage = chief_and_servers().rank_dies("parameterServer-0", ExitReport(1, 2, 0, signal="SIGKILL"))
    assert (stage.status.attempt, stage.status.restart_count) == (2, 1)


def test_one_process_drives_all_devices_of_a_replica() -> None:
    ranks = {
        name: a_script(name).with_workers(2, gpus=4).build().spec.world_size for name in ("JAX", "MPI", "TensorFlow")
    }
    assert ranks == {"JAX": 8, "MPI": 2, "TensorFlow": 2}
    job = a_script("MPI").with_workers(2, gpus=4)
    assert place_of_rank({"metadata": job.metadata, "spec": job.spec}, 1).index == 1
    plan = training_plan(a_script("MPI").with_workers(2, gpus=4).build())
    assert (plan.framework, plan.slots) == ("MPI", 4)
    assert training_plan(a_script("MPI").with_workers(2, cpu="3500m").build()).slots == 3


SAID = """a line before
Traceback (most recent call last):
  File "/venv/lib/other.py", line 2, in main
    run()
  File "/code/train.py", line 7, in run
    import jax
{error}
--------------------
For simplicity, JAX has removed its internal frames from the traceback.
"""


def report(error: str, **more: object) -> ExitReport:
    """The end of a rank that printed this traceback."""
    return dataclasses.replace(ExitReport(1, 0, 0, exit_code=1, said=SAID.format(error=error)), **more)  # type: ignore[arg-type]


def class_and_evidence(end: ExitReport) -> tuple[str, str]:
    """What the core makes of it."""
    failure = of_rank(a_slot(a_replica()), end)
    return failure.failure_class, failure.evidence


def test_the_error_of_another_interpreter_is_read_from_its_traceback() -> None:
    kind, evidence = class_and_evidence(report("ModuleNotFoundError: No module named 'jax'"))
    assert kind == classes.CONFIGURATION
    assert evidence.startswith("ModuleNotFoundError: No module named 'jax' (/code/train.py:7 in run); ")
    assert "spec.training.packages" in evidence


def test_known_messages_of_frameworks_say_that_a_peer_was_lost() -> None:
    errors = (
        "jaxlib._jax.XlaRuntimeError: UNAVAILABLE: Connection reset by peer",
        "xgboost.core.XGBoostError: [12:00:00] collective.cc:12: Connection refused",
        "lightgbm.basic.LightGBMError: Socket recv error, Connection reset by peer (code: 104)",
        "horovod.common.exceptions.HorovodInternalError: Horovod has been shut down",
        "Exception: The current node timed out during startup. This could happen because some of the raylet failed",
    )
    assert {class_and_evidence(report(error))[0] for error in errors} == {classes.PEER_LOST}


def test_the_rulers_of_a_launcher_are_no_evidence() -> None:
    said = "-----\nprterun noticed that process rank 1 exited on\nsignal 9 (Killed).\n-----\n"
    _, evidence = class_and_evidence(ExitReport(1, 0, 0, exit_code=137, said=said))
    assert evidence.endswith(": signal 9 (Killed). (before that: prterun noticed that process rank 1 exited on)")


def test_what_is_no_traceback_stays_what_it_is() -> None:
    assert tracebacks.read("Segmentation fault") is None
    assert tracebacks.read("Traceback (most recent call last):\n  File") is None
    kind, _ = class_and_evidence(report("ValueError: no", exit_code=None, signal="SIGSEGV"))
    assert kind == classes.CRASH, "what the agent knows for certain goes before what was printed"

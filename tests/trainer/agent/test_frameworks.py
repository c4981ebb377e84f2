"""What adapters say to a rank: pure functions of its position. Real frameworks are in tests/frameworks."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from trainmaster.wire import names
from trainmaster.wire.messages import Member, Rendezvous, Roster
from trainmaster.wire.training import TrainingPlan
from trainmaster_trainer.agent import frameworks, sagemaker_container
from trainmaster_trainer.agent.frameworks.position import Instructions, position_of
from trainmaster_trainer.agent.main_module import BadConfigurationError

# Two replicas of two ranks each, of which the second is reached by IPv6.
MEMBERS = (
    Member(names.WORKER, 0, 0, "10.0.0.1", 0, 2, (5001, 5002)),
    Member(names.WORKER, 1, 0, "fd00::2", 2, 2, (6001, 6002)),
)
TWO = (
    Member(names.WORKER, 0, 0, "10.0.0.1", 0, 1, (5001,)),
    Member(names.WORKER, 1, 0, "10.0.0.2", 1, 1, (6001,)),
)


def told(
    framework: str, rank: int, members: tuple[Member, ...] = MEMBERS, env: dict[str, str] | None = None, **plan: Any
) -> Instructions:
    """What the adapter says to this rank."""
    roster = Roster(3, members, "10.0.0.1", Rendezvous(4000, "key"))
    environment = {"RANK": str(rank), names.ENV_ERROR_FILE: "/scratch/attempt-3/rank.error.json", **(env or {})}
    whole = TrainingPlan(**{"strategy": "AllReduce", "command": ("/venv/bin/python", "a.py"), **plan})
    return frameworks.instructions(framework, position_of(whole, roster, environment))


def test_jax_is_told_the_coordinator_and_its_place_on_the_machine() -> None:
    variables = told("JAX", 3).variables
    assert variables["JAX_COORDINATOR_ADDRESS"] == "10.0.0.1:5001"
    assert variables["OMPI_COMM_WORLD_SIZE"] == "4"
    assert (variables["OMPI_COMM_WORLD_RANK"], variables["OMPI_COMM_WORLD_LOCAL_RANK"]) == ("3", "1")


def test_lightgbm_has_all_machines_and_its_own_port() -> None:
    variables = told("LightGBM", 2).variables
    assert variables["LIGHTGBM_MACHINES"] == "10.0.0.1:5001,10.0.0.1:5002,[fd00::2]:6001,[fd00::2]:6002"
    assert variables["LIGHTGBM_LOCAL_LISTEN_PORT"] == "6001"


def test_the_tracker_runs_beside_rank_0_only_and_all_await_it() -> None:
    first, last = told("XGBoost", 0), told("XGBoost", 3)
    (tracker,) = first.companions
    assert tracker.command[0] == "/venv/bin/python"
    assert tracker.command[-3:] == ("10.0.0.1", "5001", "4")
    assert last.companions == ()
    assert first.awaits == last.awaits == tracker.title
    assert first.variables["DMLC_TASK_ID"] < told("XGBoost", 2).variables["DMLC_TASK_ID"]


def test_tensorflows_workers_are_told_all_of_them_and_their_own_place() -> None:
    config = json.loads(told("TensorFlow", 1, TWO).variables["TF_CONFIG"])
    assert config == {"cluster": {"worker": ["10.0.0.1:5001", "10.0.0.2:6001"]}, "task": {"type": "worker", "index": 1}}
    alone = told("TensorFlow", 0, TWO[:1], strategy="Mirrored")
    assert "TF_CONFIG" not in alone.variables


def test_tensorflows_first_worker_is_the_chief_of_servers() -> None:
    members = (*TWO, Member(names.PARAMETER_SERVER, 0, 0, "10.0.0.9", 2, 1, (9001,)))
    tasks = [
        json.loads(told("TensorFlow", rank, members, strategy="ParameterServer").variables["TF_CONFIG"])["task"]
        for rank in range(3)
    ]
    assert tasks == [{"type": name, "index": 0} for name in ("chief", "worker", "ps")]


def test_a_variable_that_stops_tensorflows_servers_is_refused() -> None:
    with pytest.raises(BadConfigurationError, match=r"workers\.env: TF_NUM_INTEROP_THREADS=1 .*: remove it"):
        told("TensorFlow", 0, TWO, {"TF_NUM_INTEROP_THREADS": "1"}, strategy="ParameterServer")


def test_only_the_first_worker_runs_mpirun_and_the_others_serve_it() -> None:
    first, second = told("MPI", 0, TWO, slots=4), told("MPI", 1, TWO, slots=4)
    assert first.command == ()
    assert first.files["hostfile"] == "worker-0 slots=4\nworker-1 slots=4\n"
    assert json.loads(first.files["hosts.json"])["worker-1"] == ["10.0.0.2", 6001]
    assert second.command[2:5] == ("serve", "10.0.0.2", "6001")
    assert "key" not in " ".join(second.command[:-1]), "the command line is for all to see"
    assert first.launches
    assert second.launches


@pytest.mark.parametrize("command", [("python", "a.py"), ("/opt/bin/torchrun", "a.py")])
def test_companions_run_by_our_interpreter_where_it_runs_the_script(command: tuple[str, ...]) -> None:
    (tracker,) = told("XGBoost", 0, command=command).companions
    assert tracker.command[0] == sys.executable


def test_a_framework_that_an_older_image_does_not_know_is_named() -> None:
    with pytest.raises(BadConfigurationError, match="does not know Fortran; use an image of the operator's version"):
        told("Fortran", 0)


def container(rank: int, members: tuple[Member, ...], **env: str) -> dict[str, Any]:
    """What the program that lays out SageMaker's folders is told."""
    files = told("SageMaker", rank, members, env, command=("train",), arguments={"lr": 0.1, "name": "a"}).files
    return dict(json.loads(files["container.json"]))


def test_sagemakers_hosts_are_in_the_order_of_their_names() -> None:
    """Eleven replicas of one machine: the names are those that resolve without DNS."""
    members = tuple(Member(names.WORKER, index, 0, "127.0.0.1", index, 1, (5000 + index,)) for index in range(11))
    resources = container(1, members)["resources"]
    assert resources["current_host"] == "127.0.0.2"
    assert resources["hosts"][:3] == ["127.0.0.1", "127.0.0.10", "127.0.0.11"]


def test_sagemakers_folders_are_its_own_in_a_pod_and_the_attempts_on_a_laptop() -> None:
    here = (Member(names.WORKER, 0, 0, "127.0.0.1", 0, 1, (5000,)),)
    pod, laptop = container(1, TWO), container(0, here)
    assert (pod["base"], laptop["base"]) == ("/opt/ml", "/scratch/attempt-3/framework-0/ml")
    assert container(0, here, SAGEMAKER_BASE_DIR="/data/ml")["base"] == "/data/ml"
    assert pod["hyperparameters"] == {"lr": "0.1", "name": "a"}


def test_one_folder_for_several_containers_is_refused() -> None:
    with pytest.raises(BadConfigurationError, match="SAGEMAKER_BASE_DIR is one folder for several workers"):
        container(0, (TWO[0], Member(names.WORKER, 1, 0, "10.0.0.1", 1, 1, (6001,))), SAGEMAKER_BASE_DIR="/data/ml")


TOOLKIT = 'ExecuteUserScriptError:\nExitCode {}\nErrorMessage "{}"\nCommand "python -- train.py --lr 2"'


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        ("Exception during training: no rows", ("SageMakerFailure", "Exception during training: no rows", 0)),
        ("Framework Error: \nTraceback:\n  at\nbotocore.NoRegionError: none\n", ("NoRegionError", "none", 0)),
        (TOOLKIT.format(1, "ValueError: bad rate\n "), ("ValueError", "bad rate", 1)),
        (TOOLKIT.format(-9, ""), ("", "", -9)),
    ],
)
def test_a_failure_of_sagemakers_is_read(text: str, failure: tuple[str, str, int]) -> None:
    assert sagemaker_container.read_failure(text) == failure


def test_horovods_ranks_are_told_their_slots() -> None:
    """Two replicas of two ranks: the last one is the second of the second."""
    variables = told("Horovod", 3).variables
    told_of_it = [variables[f"HOROVOD_{name}"] for name in ("LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")]
    assert told_of_it == ["1", "2", "1", "2"]
    (rendezvous,) = told("Horovod", 0).companions
    assert rendezvous.command[-3:] == ("10.0.0.1", "5001", "worker-0:2,worker-1:2")


def settings(rank: int, members: tuple[Member, ...]) -> dict[str, str]:
    """What is in Spark's file."""
    lines = told("Spark", rank, members, slots=2).files["conf/spark-defaults.conf"].splitlines()
    return dict(line.split(" ", 1) for line in lines)


def test_spark_has_a_master_beside_the_driver_and_workers_that_know_the_key() -> None:
    first, second = told("Spark", 0, TWO, slots=2), told("Spark", 1, TWO, slots=2)
    (master,) = first.companions
    assert master.command[-6:] == ("--host", "10.0.0.1", "--port", "5001", "--webui-port", "0")
    assert first.command == ()
    assert second.command[-1] == "spark://10.0.0.1:5001"
    assert "key" not in " ".join(second.command), "the command line is for all to see"
    assert settings(1, TWO)["spark.authenticate.secret"] == "key"
    assert settings(0, TWO)["spark.cores.max"] == "2"
    assert settings(0, TWO[:1])["spark.master"] == "local[2]"
    assert not told("Spark", 0, TWO[:1]).companions


def test_rays_nodes_have_addresses_of_their_own_on_one_machine() -> None:
    here = tuple(Member(names.WORKER, index, 0, "127.0.0.1", index, 1, (5000 + index,)) for index in range(2))
    first, second = told("Ray", 0, here, slots=2), told("Ray", 1, here, slots=2)
    assert first.variables["RAY_ADDRESS"] == second.variables["RAY_ADDRESS"] == "127.0.0.2:5000"
    (head,) = first.companions
    assert "--head" in head.command
    assert "key" not in " ".join([*head.command, *second.command]).replace("/key", "")
    assert first.temporary == second.temporary != ()

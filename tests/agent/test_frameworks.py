"""What adapters say to a rank: pure functions of its position. Real frameworks are in tests/frameworks."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from trainmaster.wire import names
from trainmaster.wire.messages import Member, Rendezvous, Roster
from trainmaster.wire.training import TrainingPlan
from trainmaster_trainer.agent import frameworks
from trainmaster_trainer.agent.frameworks.position import Instructions, position_of
from trainmaster_trainer.agent.main_module import BadConfigurationError

# Two replicas of two ranks each, of which the second is reached by IPv6.
MEMBERS = (
    Member(names.WORKER, 0, 0, "10.0.0.1", 0, 2, (5001, 5002)),
    Member(names.WORKER, 1, 0, "fd00::2", 2, 2, (6001, 6002)),
)


def told(framework: str, rank: int, members: tuple[Member, ...] = MEMBERS, **plan: Any) -> Instructions:
    """What the adapter says to this rank."""
    roster = Roster(3, members, "10.0.0.1", Rendezvous(4000, "key"))
    environment = {"RANK": str(rank), names.ENV_ERROR_FILE: "/scratch/attempt-3/rank.error.json"}
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


@pytest.mark.parametrize("command", [("python", "a.py"), ("/opt/bin/torchrun", "a.py")])
def test_companions_run_by_our_interpreter_where_it_runs_the_script(command: tuple[str, ...]) -> None:
    (tracker,) = told("XGBoost", 0, command=command).companions
    assert tracker.command[0] == sys.executable


def test_a_framework_that_an_older_image_does_not_know_is_named() -> None:
    with pytest.raises(BadConfigurationError, match="does not know Fortran; use an image of the operator's version"):
        told("Fortran", 0)

"""What the agents of both platforms are told: how many threads each rank computes with."""

import pytest
from trainmaster.core.replica_environment import agent_environment
from trainmaster.wire import names

from tests.builders import JobBuilder, a_job


def threads(job: JobBuilder, role: str = names.WORKER) -> str:
    return agent_environment(job.build(), role, 0, 0)[names.ENV_THREADS]


@pytest.mark.parametrize(
    ("cpu", "gpus", "expected"),
    [(8, 0, "8"), ("8", 4, "2"), ("3500m", 0, "3"), ("2.9", 0, "2"), ("500m", 0, "1"), (2, 8, "1"), ("1e3", 0, "1")],
)
def test_ranks_share_the_cores_that_the_spec_asks_for(cpu: int | str, gpus: int, expected: str) -> None:
    assert threads(a_job().with_workers(2, cpu=cpu, gpus=gpus)) == expected


def test_without_cores_in_the_spec_a_rank_has_one_thread() -> None:
    assert threads(a_job().with_workers(1)) == "1"


def test_reproducible_is_one_thread_at_any_world_size() -> None:
    assert threads(a_job().with_workers(1, cpu=8).where(reproducible=True)) == "1"


def test_each_role_has_its_own() -> None:
    job = a_job().with_workers(2, cpu=4).where(strategy={"type": "ParameterServer"}, parameterServers={"cpu": 2})
    assert (threads(job), threads(job, names.PARAMETER_SERVER)) == ("4", "2")

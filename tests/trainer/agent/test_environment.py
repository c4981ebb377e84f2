"""The variables of a rank, by the names that torchrun gave them."""

from __future__ import annotations

from dataclasses import replace

from trainmaster.wire import names
from trainmaster.wire.messages import Member, Rendezvous, Roster
from trainmaster_trainer.agent.environment import RankPlace, rank_environment
from trainmaster_trainer.agent.rendezvous import interface_of

SERVER = Member("parameterServer", 0, 0, "10.0.0.9", 0, 1)
FIRST = Member("worker", 0, 0, "10.0.0.1", 1, 2)
SECOND = Member("worker", 1, 0, "10.0.0.2", 3, 3)
ROSTER = Roster(4, (SERVER, FIRST, SECOND), "10.0.0.1", Rendezvous(1234, "key"))
PLACE = RankPlace("uid", 4, ROSTER, SECOND, 2, True, "eth0", "/progress", "/error", "/stacks", "/roster")


def test_as_torchrun_would() -> None:
    given = rank_environment({"PATH": "/bin"}, PLACE)
    assert given == {
        "PATH": "/bin",
        "RANK": "5",
        "WORLD_SIZE": "6",
        "LOCAL_RANK": "2",
        "LOCAL_WORLD_SIZE": "3",
        "GROUP_RANK": "2",
        "GROUP_WORLD_SIZE": "3",
        "ROLE_RANK": "4",
        "ROLE_WORLD_SIZE": "5",
        "ROLE_NAME": "worker",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "1234",
        "TORCHELASTIC_RUN_ID": "uid-4",
        "TORCHELASTIC_RESTART_COUNT": "3",
        "TORCHELASTIC_MAX_RESTARTS": "3",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_ERROR_FILE": "/error",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "eth0",
        "NCCL_SOCKET_IFNAME": "=eth0",
        "TRAINMASTER_ATTEMPT": "4",
        "TRAINMASTER_PROGRESS_FILE": "/progress",
        "TRAINMASTER_STACKS_FILE": "/stacks",
        "TRAINMASTER_ROSTER": "/roster",
        "TRAINMASTER_MEMORY": "",
        "TRAINMASTER_RESUME_BEFORE": "",
    }


def test_the_users_choices_stay() -> None:
    base = {"OMP_NUM_THREADS": "8", "GLOO_SOCKET_IFNAME": "ib0", "NCCL_DEBUG": "INFO", "CUDA_VISIBLE_DEVICES": "1"}
    given = rank_environment(base, PLACE)
    assert base.items() <= given.items()


def test_a_rank_computes_with_its_share_of_the_cores() -> None:
    given = rank_environment({names.ENV_THREADS: "4"}, PLACE)
    assert given["OMP_NUM_THREADS"] == "4"
    assert names.ENV_THREADS not in given
    assert rank_environment({names.ENV_THREADS: "4", "OMP_NUM_THREADS": "2"}, PLACE)["OMP_NUM_THREADS"] == "2"


def test_the_agents_secrets_stay_with_the_agent() -> None:
    base = {names.ENV_TOKEN_FILE: "/token", names.ENV_OPERATOR: "http://operator", names.ENV_TRAINING: "{}"}
    given = rank_environment(base, PLACE)
    assert names.ENV_TOKEN_FILE not in given
    assert names.ENV_OPERATOR not in given
    assert given[names.ENV_TRAINING] == "{}"


def test_what_cannot_be_found_out_is_not_set() -> None:
    given = rank_environment({}, replace(PLACE, interface=None, agent_store=False))
    assert "GLOO_SOCKET_IFNAME" not in given
    assert given["TORCHELASTIC_USE_AGENT_STORE"] == "False"


def test_interfaces() -> None:
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("127.0.0.77") == "lo"
    assert interface_of("192.0.2.1") is None
    assert interface_of("a-name") is None

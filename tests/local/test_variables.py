"""What a local agent gets of spec.workers.env."""

import os
from pathlib import Path

import pytest
from trainmaster.api.pods import EnvVar
from trainmaster.core.states.actions import CreateReplica
from trainmaster.local.variables import Site, agent_variables, plain_variables

from tests.builders import a_job


def test_what_comes_from_a_secret_is_left_as_the_shell_has_it() -> None:
    key = {"secretKeyRef": {"name": "hub", "key": "token"}}
    given = (EnvVar(name="PLAIN", value="1"), EnvVar(name="EMPTY"), EnvVar(name="HF_TOKEN", value_from=key))
    assert plain_variables(given) == {"PLAIN": "1", "EMPTY": ""}


def test_references_mean_what_they_mean_in_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same file has the same variables on both platforms."""
    monkeypatch.setenv("TOKEN", "of the shell")
    key = {"secretKeyRef": {"name": "hub", "key": "token"}}
    given = {
        "ROOT": "/data",
        "TRAIN": "$(ROOT)/train:$(LATER):$(HOME)",
        "LATER": "$$(ROOT) costs $$5 or $6 $(ROOT",
        "SHARD": "$(TRAINMASTER_INDEX)",
        "LOGIN": "$(TOKEN)",
    }
    env = [EnvVar(name="TOKEN", value_from=key), *(EnvVar(name=name, value=value) for name, value in given.items())]
    assert plain_variables(env, {"TRAINMASTER_INDEX": "3"}) == {
        "ROOT": "/data",
        "TRAIN": "/data/train:$(LATER):$(HOME)",
        "LATER": "$(ROOT) costs $5 or $6 $(ROOT",
        "SHARD": "3",
        "LOGIN": "of the shell",
    }


@pytest.mark.parametrize(("given", "first"), [("/mine", ["/mine"]), ("", [])])
def test_a_python_path_is_added(given: str, first: list[str], tmp_path: Path) -> None:
    """In its place alone, the folder of the YAML would not be looked into, nor the one that our own code is in."""
    job = a_job().with_workers(1, env=[{"name": "PYTHONPATH", "value": given}]).build()
    site = Site(tmp_path, tmp_path, tmp_path, tmp_path, tmp_path)
    variables = agent_variables(job, CreateReplica("worker", 0, 0), "uid", tmp_path, site)
    assert variables["PYTHONPATH"].split(os.pathsep)[: len(first) + 1] == [*first, str(tmp_path)]


@pytest.mark.parametrize("given", [None, "/mine"])
@pytest.mark.parametrize("shell", [None, "/shell"])
def test_a_script_has_the_python_path_that_python_would_have(
    given: str | None, shell: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own folder is first on sys.path anyway; a folder more could hide a module from it, or show it one."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if shell:
        monkeypatch.setenv("PYTHONPATH", shell)
    env = [] if given is None else [{"name": "PYTHONPATH", "value": given}]
    job = a_job().with_workers(1, env=env).where(training={"command": ["python", "t.py"]}).build()
    site = Site(tmp_path, tmp_path, tmp_path, tmp_path, tmp_path)
    variables = agent_variables(job, CreateReplica("worker", 0, 0), "uid", tmp_path, site)
    assert variables.get("PYTHONPATH") == (given or shell)

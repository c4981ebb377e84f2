"""Variables that would change how the agent starts reach it under other names, wherever the user writes them."""

import re
from typing import Any

import pytest
from trainmaster.cluster.variable_renaming import sheltered
from trainmaster.wire import codec, names
from trainmaster.wire.training import TrainingPlan

from tests.builders import a_job
from tests.cluster.test_manifests import the_pod, the_variables

AT_THE_START = (
    *("PATH", "HOME", "LD_PRELOAD", "LD_LIBRARY_PATH", "GLIBC_TUNABLES", "MALLOC_ARENA_MAX"),
    *("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONSAFEPATH", "PYTHONHASHSEED", "PYTHONWARNINGS"),
)


def test_a_command_is_no_text_in_which_the_kubelet_replaces_something() -> None:
    """It does in each value of `env`: a shell's own `$$` would be one `$`, and `$(NAME)` a variable of that name."""
    command = ["bash", "-c", "echo $$ $HOME $(hostname) $(TRAINMASTER_INDEX) > $$.pid"]
    pod = the_pod(a_job().with_workers(1).where(training={"command": command}))
    value = the_variables(pod)[names.ENV_TRAINING]
    found = re.sub(r"\$\$|\$\([^)]*\)", lambda it: "$" if it[0] == "$$" else "replaced", value)
    assert list(codec.decode(TrainingPlan, found).command) == command


@pytest.mark.parametrize("name", AT_THE_START)
@pytest.mark.parametrize("where", ["spec", "template"])
def test_what_a_process_reads_at_its_start_is_handed_over(name: str, where: str) -> None:
    """None is lost, and none has the name that the agent's own interpreter or loader would obey."""
    env = [{"name": name, "value": "/mine"}]
    template = {"spec": {"containers": [{"name": "trainer", "env": env}]}}
    variables = the_variables(
        the_pod(a_job().with_workers(1, **({"env": env} if where == "spec" else {"template": template})))
    )
    assert name not in variables
    assert variables[names.ENV_OF_THE_USER + name] == "/mine"


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "NCCL_DEBUG", "NVIDIA_VISIBLE_DEVICES", "HTTP_PROXY", "MY_PATH"])
def test_all_others_stay(name: str) -> None:
    """The container runtime reads some of them, and so do people in `kubectl describe pod`."""
    assert the_variables(the_pod(a_job().with_workers(1, env=[{"name": name, "value": "1"}])))[name] == "1"


REFERENCES: dict[str, tuple[list[Any], list[Any]]] = {
    "of a later one": (
        [{"name": "PYTHONPATH", "value": "/a"}, {"name": "B", "value": "$(PYTHONPATH)/b:$(C)"}],
        [
            {"name": "TRAINMASTER_ENV_PYTHONPATH", "value": "/a"},
            {"name": "B", "value": "$(TRAINMASTER_ENV_PYTHONPATH)/b:$(C)"},
        ],
    ),
    "to itself, which Kubernetes leaves as it is": (
        [{"name": "PATH", "value": "/a:$(PATH)"}],
        [{"name": "TRAINMASTER_ENV_PATH", "value": "/a:$(PATH)"}],
    ),
    "escaped": (
        [{"name": "PATH", "value": "/a"}, {"name": "B", "value": "$$(PATH) $$$(PATH)"}],
        [{"name": "TRAINMASTER_ENV_PATH", "value": "/a"}, {"name": "B", "value": "$$(PATH) $$$(TRAINMASTER_ENV_PATH)"}],
    ),
    "from a Secret": (
        [{"name": "LD_PRELOAD", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        [{"name": "TRAINMASTER_ENV_LD_PRELOAD", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
    ),
    "typing errors": (["A", {"key": "PATH"}, {"name": 5}], ["A", {"key": "PATH"}, {"name": 5}]),
}


@pytest.mark.parametrize(("given", "expected"), REFERENCES.values(), ids=REFERENCES.keys())
def test_references(given: list[Any], expected: list[Any]) -> None:
    assert sheltered(given) == expected


def test_no_default_of_ours_hides_what_comes_from_a_config_map() -> None:
    """A variable that is set by name goes before one from `envFrom`."""
    source = {"configMapRef": {"name": "settings"}}
    variables = the_variables(the_pod(a_job().with_workers(1, envFrom=[source])))
    assert [name for name in variables if not name.startswith("TRAINMASTER_")] == []

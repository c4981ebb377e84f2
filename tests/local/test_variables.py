"""What a local agent gets of spec.workers.env."""

from trainmaster.api.pods import EnvVar
from trainmaster.local.variables import plain_variables


def test_what_comes_from_a_secret_is_left_as_the_shell_has_it() -> None:
    key = {"secretKeyRef": {"name": "hub", "key": "token"}}
    given = (EnvVar(name="PLAIN", value="1"), EnvVar(name="EMPTY"), EnvVar(name="HF_TOKEN", value_from=key))
    assert plain_variables(given) == {"PLAIN": "1", "EMPTY": ""}

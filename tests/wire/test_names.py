"""Names that two processes must agree on."""

import pytest
from trainmaster.wire import names


@pytest.mark.parametrize(
    ("role", "expected"), [(names.WORKER, "digits-worker-3-1"), (names.PARAMETER_SERVER, "digits-parameterserver-3-1")]
)
def test_the_name_of_a_replica_is_a_legal_pod_name(role: str, expected: str) -> None:
    assert names.replica_name("digits", role, 3, 1) == expected


def test_names_of_replicas_do_not_meet() -> None:
    made = [names.replica_name("a", role, i, n) for role in names.ROLE_IN_NAMES for i in range(12) for n in range(12)]
    assert len(made) == len(set(made))


def test_every_signal_has_a_name() -> None:
    assert names.signal_name(9) == "SIGKILL"
    assert len({names.signal_name(number) for number in range(1, 65)}) == 64

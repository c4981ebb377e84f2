"""Whose fault a refused pod is: the author's, or that of what the namespace added."""

from typing import Any

import pytest
from trainmaster.cluster.client import StatusCause
from trainmaster.cluster.defaults import are_to_blame

ABOVE = 'Invalid value: "500m": must be less than or equal to cpu limit of 200m'
REQUESTS = StatusCause("spec.containers[0].resources.requests", "FieldValueInvalid", ABOVE)
BAD_LABEL = StatusCause("spec.nodeSelector[zone]", "FieldValueInvalid", "Invalid value")
ADDED = StatusCause("spec.containers[1].image", "FieldValueInvalid", "Invalid value: nonsense")


def a_pod(**resources: Any) -> dict[str, Any]:
    """A pod as we send it."""
    return {"spec": {"containers": [{"name": "trainer", "resources": resources}], "nodeSelector": {"zone": "-"}}}


@pytest.mark.parametrize(
    ("causes", "sent", "added"),
    [
        ((REQUESTS,), a_pod(requests={"cpu": "500m"}), True),
        ((REQUESTS,), a_pod(requests={"cpu": "500m"}, limits={"memory": "1Gi"}), True),
        ((REQUESTS,), a_pod(requests={"cpu": "500m"}, limits={"cpu": "200m"}), False),
        ((ADDED,), a_pod(), True),
        ((ADDED._replace(reason="FieldValueRequired"),), a_pod(), False),
        ((BAD_LABEL,), a_pod(), False),
        ((REQUESTS, BAD_LABEL), a_pod(requests={"cpu": "500m"}), False),
        ((StatusCause("", "", "no field"),), a_pod(), False),
        ((), a_pod(), False),
    ],
)
def test_only_what_was_added_is_the_namespaces(
    causes: tuple[StatusCause, ...], sent: dict[str, Any], added: bool
) -> None:
    assert are_to_blame(causes, sent) is added

"""Pods keep away from avoided nodes, whatever affinity the user wrote."""

from typing import Any

import pytest
from trainmaster.cluster import manifests
from trainmaster.cluster.affinity import keeping_away
from trainmaster.cluster.manifests import PodSettings

from tests.builders import NOON, a_job

AWAY = {"key": "metadata.name", "operator": "NotIn", "values": ["node-1"]}
ZONE = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
HERE = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}


def terms(spec: dict[str, Any]) -> Any:
    """The alternatives of a pod."""
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return required["nodeSelectorTerms"]


def with_terms(*given: Any) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(given)}}
    return {"affinity": {"nodeAffinity": required, "podAffinity": {"x": 1}}}


def test_a_pod_of_a_job_keeps_away() -> None:
    avoided = [{"node": node, "until": NOON.isoformat(), "lifted": node == "node-2"} for node in ("node-1", "node-2")]
    job = a_job().at("Restarting", avoidedNodes=avoided).build()
    pod = manifests.pod(job, "worker", 0, 1, PodSettings("http://operator", "image"))
    assert terms(pod["spec"]) == [{"matchFields": [AWAY]}]
    assert "affinity" not in manifests.pod(a_job().build(), "worker", 0, 0, PodSettings("http://o", "image"))["spec"]


def test_every_alternative_of_the_user_s_keeps_away() -> None:
    spec = keeping_away(with_terms(ZONE, HERE), ["node-1"])
    assert terms(spec) == [{**ZONE, "matchFields": [AWAY]}, {**HERE, "matchFields": [AWAY]}]
    assert spec["affinity"]["podAffinity"] == {"x": 1}
    assert terms(with_terms(ZONE)) == [ZONE], "what was given is not changed"


def test_several_nodes_are_several_requirements() -> None:
    (term,) = terms(keeping_away({}, ["node-1", "ip-10-0-0-7.ec2.internal"]))
    assert [away["values"] for away in term["matchFields"]] == [["node-1"], ["ip-10-0-0-7.ec2.internal"]]


@pytest.mark.parametrize(
    "affinity", ["x", {"nodeAffinity": "x"}, {"nodeAffinity": {"required": 1}}, with_terms("x")["affinity"]]
)
def test_nonsense_is_left_to_the_api_server(affinity: Any) -> None:
    assert keeping_away({"affinity": affinity}, ["node-1"])


@pytest.mark.parametrize("name", ["", "Node 1", "../x", "x" * 300, "a\n"])
def test_a_status_that_was_edited_by_hand_makes_no_pod_invalid(name: str) -> None:
    assert keeping_away({}, [name]) == {}

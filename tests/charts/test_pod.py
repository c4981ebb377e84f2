"""The operator's own Deployment and what stands around it: restricted, twice, found by its Service."""

from .tools import NAMESPACE, Object, of_kind, render, the

LEASE = f"--lease={NAMESPACE}/trainmaster"
METRICS = "--metrics=0.0.0.0:8083"


def _pod(*values: str) -> Object:
    template: Object = the(render(*values), "Deployment")["spec"]["template"]["spec"]
    return template


def test_there_is_a_standby_on_another_node() -> None:
    deployment, budget = the(render(), "Deployment")["spec"], the(render(), "PodDisruptionBudget")["spec"]
    assert deployment["replicas"] == 2
    assert deployment["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert deployment["template"]["spec"]["terminationGracePeriodSeconds"] <= 10
    labels = deployment["template"]["metadata"]["labels"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"]["matchLabels"].items() <= labels.items()
    (soft,) = _pod()["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert soft["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert soft["podAffinityTerm"]["labelSelector"]["matchLabels"].items() <= labels.items()


def test_one_alone_needs_no_budget_and_still_holds_the_lease() -> None:
    assert of_kind(render("replicas=1"), "PodDisruptionBudget") == []
    assert LEASE in _pod("replicas=1")["containers"][0]["args"]


def test_another_affinity_takes_the_place_of_ours() -> None:
    assert _pod('affinity={"nodeAffinity":{}}')["affinity"] == {"nodeAffinity": {}}


def test_the_pod_has_no_more_power_than_it_needs() -> None:
    pod = _pod()
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 65532
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert [volume for volume in pod["volumes"] if "emptyDir" not in volume] == []
    assert container["resources"]["limits"]["memory"]


def test_the_service_is_the_one_that_the_operator_looks_for() -> None:
    objects = render()
    service, pod = the(objects, "Service"), _pod()
    assert service["metadata"]["name"] == "trainmaster"  # gives the pod TRAINMASTER_SERVICE_HOST and _PORT
    assert pod["enableServiceLinks"] is True
    assert service["spec"]["ports"][0]["port"] == 8080
    assert service["spec"]["type"] == "ClusterIP"
    labels = the(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()


def test_only_the_operator_carries_its_token() -> None:
    account = the(render(), "ServiceAccount")
    assert (account["metadata"]["name"], account["automountServiceAccountToken"]) == ("trainmaster", False)
    assert _pod()["automountServiceAccountToken"] is True


def test_settings_reach_the_operator() -> None:
    values = (
        "image.trainer=mine/trainer:7",
        "image.agent=mine/agent:7",
        "image.pullPolicy=Never",
        "url=http://10.0.0.1:80",
        "logLevel=DEBUG",
    )
    (container,) = _pod(*values)["containers"]
    assert {one["name"]: one.get("value", one.get("valueFrom")) for one in container["env"]} == {
        "TRAINMASTER_POD": {"fieldRef": {"fieldPath": "metadata.name"}},
        "TRAINMASTER_TRAINER_IMAGE": "mine/trainer:7",
        "TRAINMASTER_AGENT_IMAGE": "mine/agent:7",
        "TRAINMASTER_TRAINER_PULL_POLICY": "Never",
        "TRAINMASTER_LOG_LEVEL": "DEBUG",
        "TRAINMASTER_URL": "http://10.0.0.1:80",
    }
    assert container["imagePullPolicy"] == "Never"


def test_on_a_node_that_does_not_answer_there_is_no_operator_for_long() -> None:
    for values in ((), ('tolerations=[{"key":"gpu","operator":"Exists"}]',)):
        given = {one["key"]: one.get("tolerationSeconds") for one in _pod(*values)["tolerations"]}
        lost = {"node.kubernetes.io/not-ready": 20, "node.kubernetes.io/unreachable": 20}
        assert given == (lost if not values else {**lost, "gpu": None})


def test_the_operator_is_told_its_namespaces() -> None:
    assert _pod()["containers"][0]["args"] == ["operator", LEASE, METRICS]
    assert _pod("scope=Namespaced")["containers"][0]["args"] == ["operator", LEASE, METRICS, f"--namespace={NAMESPACE}"]
    args = _pod('namespaces=["a","b"]')["containers"][0]["args"]
    assert args == ["operator", LEASE, METRICS, "--namespace=a", "--namespace=b"]


def test_the_network_policy_lets_in_only_the_pods_of_jobs() -> None:
    assert of_kind(render(), "NetworkPolicy") == []
    spec = the(render("networkPolicy.enabled=true"), "NetworkPolicy")["spec"]
    heartbeats, probes, _ = spec["ingress"]  # the last: test_monitoring.py
    peer, ours = heartbeats["from"]
    assert peer["podSelector"] == {"matchExpressions": [{"key": "trainmaster.dev/job", "operator": "Exists"}]}
    assert peer["namespaceSelector"] == {}
    test = next(one for one in render() if one["kind"] == "Pod")  # of `helm test`, in the operator's own namespace
    assert list(ours) == ["podSelector"]
    assert ours["podSelector"]["matchLabels"].items() <= test["metadata"]["labels"].items()
    assert probes["ports"] == [{"port": port, "protocol": "TCP"} for port in ("probes", "readiness")]
    assert [port["port"] for port in spec["egress"][0]["ports"]] == [53, 53, 443, 6443]

"""The operator's own Deployment and what stands around it: restricted, alone, found by its Service."""

from .tools import NAMESPACE, Object, of_kind, render, the


def _pod(*values: str) -> Object:
    template: Object = the(render(*values), "Deployment")["spec"]["template"]["spec"]
    return template


def test_two_operators_never_act_at_once() -> None:
    spec = the(render(), "Deployment")["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {"type": "Recreate"}
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] <= 10


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
    values = ("image.trainer=mine/trainer:7", "image.pullPolicy=Never", "url=http://10.0.0.1:80", "logLevel=DEBUG")
    (container,) = _pod(*values)["containers"]
    assert {one["name"]: one["value"] for one in container["env"]} == {
        "TRAINMASTER_TRAINER_IMAGE": "mine/trainer:7",
        "TRAINMASTER_TRAINER_PULL_POLICY": "Never",
        "TRAINMASTER_LOG_LEVEL": "DEBUG",
        "TRAINMASTER_URL": "http://10.0.0.1:80",
    }
    assert container["imagePullPolicy"] == "Never"


def test_the_operator_is_told_its_namespaces() -> None:
    assert _pod()["containers"][0]["args"] == ["operator"]
    assert _pod("scope=Namespaced")["containers"][0]["args"] == ["operator", f"--namespace={NAMESPACE}"]
    args = _pod('namespaces=["a","b"]')["containers"][0]["args"]
    assert args == ["operator", "--namespace=a", "--namespace=b"]


def test_the_network_policy_lets_in_only_the_pods_of_jobs() -> None:
    assert of_kind(render(), "NetworkPolicy") == []
    spec = the(render("networkPolicy.enabled=true"), "NetworkPolicy")["spec"]
    heartbeats, probes = spec["ingress"]
    (peer,) = heartbeats["from"]
    assert peer["podSelector"] == {"matchExpressions": [{"key": "trainmaster.dev/job", "operator": "Exists"}]}
    assert peer["namespaceSelector"] == {}
    assert probes["ports"] == [{"port": "probes", "protocol": "TCP"}]
    assert [port["port"] for port in spec["egress"][0]["ports"]] == [53, 53, 443, 6443]

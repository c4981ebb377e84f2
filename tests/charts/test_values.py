"""Helm accepts the chart, and says by name which value is wrong."""

import json
import tomllib

import pytest
import yaml
from trainmaster.cli.operator import pod_settings
from trainmaster.cluster.controller import Address

from .tools import CHART, ROOT, helm, render, settings, the


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert (chart["version"], chart["appVersion"]) == (version, version)


@pytest.mark.parametrize(
    "values",
    [
        [],
        ["scope=Namespaced"],
        ['namespaces=["a","b"]'],
        ["networkPolicy.enabled=true"],
        ["jobNetworkPolicy.enabled=true"],
    ],
)
def test_lint(values: list[str]) -> None:
    done = helm("lint", "--strict", str(CHART), *settings(values))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("replicas=0", "replicas"),
        ("scope=Everywhere", "scope"),
        ("image.operater=x", "operater"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
        ("image.operator=two words", "operator"),
        ('namespaces=["Upper"]', "namespaces"),
        ('namespaces=["a","a"]', "namespaces"),
        ("crds.install=maybe", "install"),
        ("crds.keep=true", "keep"),
        ("admissionPolicy.enabled=1", "enabled"),
        ('admissionPolicy.serviceAccounts=["it\'s"]', "serviceAccounts"),
        ("admissionPolicy.deniedNamespaces=kube-system", "deniedNamespaces"),
        ('admissionPolicy.capabilities=["SYS_ADMIN"]', "capabilities"),
        ('admissionPolicy.capabilities=["ALL"]', "capabilities"),
        ('admissionPolicy.sidecars=["trainer"]', "sidecars"),
        ('admissionPolicy.tokenAudiences=["it\'s"]', "tokenAudiences"),
        ('admissionPolicy.apiServerAudiences=[""]', "apiServerAudiences"),
        ("userRoles.install=1", "install"),
        ("logLevel=LOUD", "logLevel"),
        ('defaultStorage={"path":"/shared"}', "path"),
        ('defaultStorage={"persistentVolumeClaim":{}}', "claimName"),
        ('defaultStorage={"persistentVolumeClaim":{"claimName":"a"},"objectStore":{"url":"s3://b"}}', "defaultStorage"),
        ("defaultStorage.objectStore.url=bucket", "url"),
        ("url=trainmaster:8080", "url"),
        ("networkPolicy.apiServerPorts=[0]", "apiServerPorts"),
        ("resources.request.cpu=1", "request"),
        ('tolerations=[{"key":"gpu","operator":"Like"}]', "tolerations"),
        ('nodeSelector={"a":1}', "nodeSelector"),
        ("image.registry=https://x", "registry"),
        ('extraEnv=[{"name":"TRAINMASTER_URL","value":"x"}]', "extraEnv"),
        ('topologySpreadConstraints=[{"topologyKey":"zone"}]', "topologySpreadConstraints"),
    ],
)
def test_a_wrong_value_is_refused_by_name(value: str, named: str) -> None:
    done = helm("template", "trainmaster", str(CHART), *settings([value]))
    assert done.returncode != 0
    assert "values don't meet the specifications of the schema" in done.stderr
    assert named in done.stderr.split("schema")[-1]


def test_every_value_is_explained() -> None:
    lines = (CHART / "values.yaml").read_text().splitlines()
    keys = [number for number, line in enumerate(lines) if line and not line.startswith((" ", "#"))]
    bare = [lines[number] for number in keys if not lines[number - 1].lstrip().startswith("#")]
    blocks = [line for line in bare if line.endswith(":")]  # their members carry the comments
    assert set(bare) - set(blocks) == {"tolerations: []", "affinity: {}", "podLabels: {}"}  # one comment with the above


def test_the_images_follow_the_version_until_they_are_named() -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    container = the(render(), "Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == f"trainmaster/operator:{version}"
    for which in ("trainer", "agent"):
        name = f"TRAINMASTER_{which.upper()}_IMAGE"
        assert {"name": name, "value": f"trainmaster/{which}:{version}"} in container["env"]


def test_a_registry_is_put_before_the_images_that_are_not_named() -> None:
    digest = f"elsewhere.example.com/trainer@sha256:{'a' * 64}"
    objects = render("image.registry=registry.example.com/mirror", f"image.trainer={digest}")
    container = the(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    variables = {one["name"]: one.get("value") for one in container["env"]}
    assert container["image"].startswith("registry.example.com/mirror/trainmaster/operator:")
    assert variables["TRAINMASTER_AGENT_IMAGE"].startswith("registry.example.com/mirror/trainmaster/agent:")
    assert variables["TRAINMASTER_TRAINER_IMAGE"] == digest


def test_what_an_administrator_adds_is_in_the_pod() -> None:
    spread = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}
    objects = render(
        f"topologySpreadConstraints=[{json.dumps(spread)}]",
        'extraEnv=[{"name":"HTTPS_PROXY","value":"http://proxy:3128"}]',
        'serviceAccount.annotations={"eks.amazonaws.com/role-arn":"arn:aws:iam::1:role/x"}',
    )
    pod = the(objects, "Deployment")["spec"]["template"]
    labels = pod["metadata"]["labels"]
    (one,) = pod["spec"]["topologySpreadConstraints"]
    assert spread.items() <= one.items()
    assert one["labelSelector"]["matchLabels"].items() <= labels.items()
    assert {"name": "HTTPS_PROXY", "value": "http://proxy:3128"} in pod["spec"]["containers"][0]["env"]
    assert the(objects, "ServiceAccount")["metadata"]["annotations"] == {
        "eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/x"
    }


@pytest.mark.parametrize("values", [[], ["scope=Namespaced"], ['namespaces=["123","456"]']])
def test_names_of_digits_are_names(values: list[str]) -> None:
    objects = render(*values, "networkPolicy.enabled=true", release="1", namespace="123")
    metadata = [one["metadata"] for one in objects]
    assert {one["namespace"] for one in metadata if "namespace" in one} <= {"123", "456"}
    assert {one["labels"]["app.kubernetes.io/instance"] for one in metadata if "labels" in one} == {"1"}
    assert {subject["namespace"] for one in objects for subject in one.get("subjects", ())} == {"123"}
    source, _ = the(objects, "NetworkPolicy")["spec"]["ingress"][0]["from"]  # and the pod of `helm test`
    for expression in source["namespaceSelector"].get("matchExpressions", ()):
        assert set(expression["values"]) <= {"123", "456"}


@pytest.mark.parametrize("values", [[], ["scope=Namespaced"]])
def test_the_default_storage_reaches_the_operator_as_it_is_written(values: list[str]) -> None:
    given = {"objectStore": {"url": "s3://models/jobs", "endpoint": "http://minio.storage:9000", "secretName": "s3"}}
    operator = the(render(*values, f"defaultStorage={json.dumps(given)}"), "Deployment")["spec"]["template"]["spec"]
    (container,) = operator["containers"]
    variables = {one["name"]: one.get("value") for one in container["env"]}
    assert json.loads(variables["TRAINMASTER_DEFAULT_STORAGE"]) == given
    storage = pod_settings(variables, Address("127.0.0.1", 8080)).default_storage
    assert storage is not None
    assert storage.to_dict() == given
    (bare,) = the(render(*values), "Deployment")["spec"]["template"]["spec"]["containers"]
    assert "TRAINMASTER_DEFAULT_STORAGE" not in {one["name"] for one in bare["env"]}

"""What the pods and the service of a job look like."""

import dataclasses
import json
from typing import Any

import pytest
from trainmaster.api.job import TrainingJob
from trainmaster.api.status import CheckpointStatus
from trainmaster.cluster import container, manifests
from trainmaster.cluster.manifests import PodSettings
from trainmaster.wire import codec, names
from trainmaster.wire.training import TrainingPlan

from tests.builders import JobBuilder, a_job

SETTINGS = PodSettings("http://10.96.0.7:8080", "trainer:1", "IfNotPresent", "agent:1")
Document = dict[str, Any]


def the_pod(job: JobBuilder | TrainingJob, role: str = names.WORKER, index: int = 0) -> Document:
    built = job if isinstance(job, TrainingJob) else job.build()
    return manifests.pod(built, role, index, 0, SETTINGS)


def the_trainer(pod: Document) -> Document:
    (trainer,) = [c for c in pod["spec"]["containers"] if c["name"] == names.MAIN_CONTAINER]
    return dict(trainer)


def the_variables(pod: Document) -> dict[str, str]:
    return {v["name"]: v.get("value", json.dumps(v.get("valueFrom"))) for v in the_trainer(pod)["env"]}


def test_a_pod_is_named_labelled_and_owned() -> None:
    metadata = manifests.pod(a_job().build(), names.WORKER, 3, 2, SETTINGS)["metadata"]
    assert metadata["name"] == "digits-worker-3-2"
    assert metadata["namespace"] == "lab"
    assert metadata["labels"] == {
        "app.kubernetes.io/managed-by": "trainmaster",
        names.LABEL_JOB: "digits",
        names.LABEL_ROLE: "worker",
        names.LABEL_INDEX: "3",
        names.LABEL_INCARNATION: "2",
    }
    (owner,) = metadata["ownerReferences"]
    assert owner == {
        "apiVersion": "trainmaster.dev/v1",
        "kind": "TrainingJob",
        "name": "digits",
        "uid": "job-1",
        "controller": True,
        "blockOwnerDeletion": False,
    }


def test_the_end_of_a_log_tells_how_any_container_ended() -> None:
    """Unless the template has another way: then that is the user's."""
    own = {"name": "quiet", "image": "x", "terminationMessagePolicy": "File"}
    beside: Document = {"initContainers": [{"name": "fetch", "image": "x"}], "containers": [own]}
    spec = the_pod(a_job().with_workers(1, image="user/image:1", template={"spec": beside}))["spec"]
    told = {one["name"]: one["terminationMessagePolicy"] for one in [*spec["initContainers"], *spec["containers"]]}
    logs = "FallbackToLogsOnError"
    assert told == {"fetch": logs, "trainmaster-code": logs, "trainer": logs, "quiet": "File"}


def test_the_same_pod_twice_is_the_same() -> None:
    job = a_job().with_workers(2, env=[{"name": "A", "value": "1"}], gpus=2)
    assert json.dumps(the_pod(job)) == json.dumps(the_pod(job))


def test_labels_of_the_job_are_on_its_pods_but_for_ours() -> None:
    """Costs and network policies go by them. None may take a pod for the operator, or for another job's."""
    own = {"team": "vision", "example.org/cost": "7"}
    taken = {f"app.kubernetes.io/{name}": "operator" for name in ("name", "component", "managed-by")}
    taken |= {names.LABEL_JOB: "other", "trainmaster.dev/anything": "x", "sub.trainmaster.dev/anything": "y"}
    found = the_pod(a_job().with_metadata(labels={**own, **taken}))["metadata"]["labels"]
    assert found == {**own, **the_pod(a_job())["metadata"]["labels"]}
    assert not [label for label in found if label.startswith("app.kubernetes.io/") and not label.endswith("managed-by")]


@pytest.mark.parametrize(("resource", "limits"), [({}, {}), ({"gpuResource": "amd.com/gpu"}, {"amd.com/gpu": "2"})])
def test_devices_of_claims_are_not_asked_for_twice(resource: Document, limits: Document) -> None:
    """Each of them gets a rank all the same."""
    claims = {"claims": [{"name": "gpu"}]}
    template = {"spec": {"containers": [{"name": "trainer", "resources": claims}], "resourceClaims": [{"name": "gpu"}]}}
    pod = the_pod(a_job().with_workers(1, gpus=2, template=template, **resource))
    assert the_trainer(pod)["resources"].get("limits", {}) == limits
    assert the_trainer(pod)["resources"]["claims"] == claims["claims"]
    assert the_variables(pod)[names.ENV_RANKS] == "2"


@pytest.mark.parametrize("kind", ["requests", "limits"])
def test_cores_of_the_template_are_threads(kind: str) -> None:
    template = {"spec": {"containers": [{"name": "trainer", "resources": {kind: {"cpu": "4"}}}]}}
    pod = the_pod(a_job().with_workers(1, template=template))
    assert the_trainer(pod)["resources"] == {kind: {"cpu": "4"}}
    assert the_variables(pod)[names.ENV_THREADS] == "4"


def test_tpu_chips_are_asked_for_by_their_own_name_after_the_api_server_has_filled_in_the_default() -> None:
    spec = the_pod(a_job().with_workers(1, accelerator="tpu", gpus=4, gpuResource="nvidia.com/gpu"))["spec"]
    assert spec["containers"][0]["resources"]["limits"] == {"google.com/tpu": "4"}


def test_the_agent_learns_who_it_is() -> None:
    pod = the_pod(a_job().with_workers(2), index=1)
    variables = the_variables(pod)
    assert variables[names.ENV_JOB] == "lab/digits"
    assert variables[names.ENV_JOB_UID] == "job-1"
    assert (variables[names.ENV_ROLE], variables[names.ENV_INDEX]) == ("worker", "1")
    assert variables[names.ENV_OPERATOR] == "http://10.96.0.7:8080"
    assert "metadata.uid" in variables[names.ENV_POD_UID]
    assert "status.podIP" in variables[names.ENV_ADDRESS]
    assert codec.decode(TrainingPlan, variables[names.ENV_TRAINING]).strategy == "AllReduce"
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("digits-worker-1-0", "digits")
    assert pod["spec"]["restartPolicy"] == "Never"


def test_the_token_is_for_us_alone() -> None:
    pod = the_pod(a_job())
    (volume,) = [v for v in pod["spec"]["volumes"] if "projected" in v]
    source = volume["projected"]["sources"][0]["serviceAccountToken"]
    assert source == {"audience": "trainmaster", "expirationSeconds": 3600, "path": "token"}
    (mount,) = [m for m in the_trainer(pod)["volumeMounts"] if m["name"] == volume["name"]]
    assert the_variables(pod)[names.ENV_TOKEN_FILE] == f"{mount['mountPath']}/token"
    assert pod["spec"]["automountServiceAccountToken"] is False


def test_the_restricted_profile_is_kept() -> None:
    """Pod Security Standards, level restricted, as the API server checks it (and tests/charts against a real one)."""
    pod = the_pod(a_job().with_workers(1, image="user/image:1"))
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for each in [*pod["spec"]["containers"], *pod["spec"]["initContainers"]]:
        assert each["securityContext"]["allowPrivilegeEscalation"] is False
        assert each["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_shared_memory_is_large_and_only_our_image_is_read_only() -> None:
    ours, theirs = the_pod(a_job()), the_pod(a_job().with_workers(1, image="user/image:1"))
    assert {"name": "trainmaster-shm", "emptyDir": {"medium": "Memory"}} in ours["spec"]["volumes"]
    assert {"name": "trainmaster-shm", "mountPath": "/dev/shm"} in the_trainer(ours)["volumeMounts"]  # noqa: S108
    assert the_trainer(ours)["securityContext"]["readOnlyRootFilesystem"] is True
    assert "readOnlyRootFilesystem" not in the_trainer(theirs)["securityContext"]


RESOURCES: list[tuple[Document, Document]] = [
    ({}, {}),
    ({"gpus": 2}, {"limits": {"nvidia.com/gpu": "2"}}),
    ({"gpus": 1, "gpuResource": "amd.com/gpu"}, {"limits": {"amd.com/gpu": "1"}}),
    ({"cpu": 4}, {"requests": {"cpu": "4"}}),
    ({"memory": "8Gi"}, {"requests": {"memory": "8Gi"}, "limits": {"memory": "8Gi"}}),
    (
        {"gpus": 8, "cpu": "500m", "memory": "1Gi"},
        {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "1Gi", "nvidia.com/gpu": "8"}},
    ),
]


@pytest.mark.parametrize(("asked", "expected"), RESOURCES)
def test_amounts(asked: Document, expected: Document) -> None:
    assert the_trainer(the_pod(a_job().with_workers(1, **asked)))["resources"] == expected


STORAGE: list[tuple[Document | None, str, Document | None]] = [
    (None, "/checkpoints", {"emptyDir": {}}),
    ({"path": "/mnt/shared/run"}, "/mnt/shared/run", None),
    (
        {"persistentVolumeClaim": {"claimName": "models"}},
        "/checkpoints/digits-0123abcd",
        {"persistentVolumeClaim": {"claimName": "models"}},
    ),
]


@pytest.mark.parametrize(("storage", "expected", "source"), STORAGE)
def test_checkpoints(storage: Document | None, expected: str, source: Document | None) -> None:
    job = a_job().with_metadata(uid="0123abcd-4567").where(checkpoint={"storage": storage} if storage else {})
    pod = the_pod(job)
    assert the_variables(pod)[names.ENV_CHECKPOINTS] == expected
    assert container.folder(job.build()) == expected
    found = [v for v in pod["spec"]["volumes"] if v["name"] == "trainmaster-checkpoints"]
    assert found == ([{"name": "trainmaster-checkpoints", **source}] if source else [])


def test_an_image_of_the_users_own_gets_the_agent() -> None:
    pod = the_pod(a_job().with_workers(1, image="user/image:1", imagePullPolicy="Always", memory="1Gi", gpus=1))
    trainer, (installer,) = the_trainer(pod), pod["spec"]["initContainers"]
    assert (trainer["image"], trainer["imagePullPolicy"]) == ("user/image:1", "Always")
    assert trainer["command"] == ["python3", "-I", "/trainmaster/trainmaster_trainer/agent/start.py"]
    assert (installer["image"], installer["imagePullPolicy"]) == ("agent:1", "IfNotPresent")
    assert installer["resources"] == {"requests": {"memory": "1Gi"}, "limits": {"memory": "1Gi"}}
    # What a namespace wants of every container may stand in the template only; devices are the trainer's alone.
    amounts = {"limits": {"cpu": "2", "rdma/devices": 1}, "requests": {"cpu": "1"}}
    beside = {"spec": {"containers": [{"name": "trainer", "resources": amounts}]}}
    (installer,) = the_pod(a_job().with_workers(1, image="x", template=beside))["spec"]["initContainers"]
    assert installer["resources"] == {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}
    assert {"name": "trainmaster-code", "mountPath": "/trainmaster", "readOnly": True} in trainer["volumeMounts"]


def test_our_image_needs_no_init_container() -> None:
    pod = the_pod(a_job())
    assert the_trainer(pod)["image"] == "trainer:1"
    assert "initContainers" not in pod["spec"]


def test_what_the_spec_names_is_passed_on() -> None:
    named: Document = {
        "nodeSelector": {"pool": "a"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {"x": [1]}},
        "priorityClassName": "high",
        "imagePullSecrets": [{"name": "registry"}],
        "serviceAccountName": "trainer",
        "volumes": [{"name": "data", "configMap": {"name": "data"}}],
    }
    mount = {"name": "data", "mountPath": "/data"}
    source = {"configMapRef": {"name": "settings"}}
    pod = the_pod(a_job().with_workers(1, **named, volumeMounts=[mount], envFrom=[source]))
    for key, value in named.items():
        if key != "volumes":
            assert pod["spec"][key] == value
    assert named["volumes"][0] in pod["spec"]["volumes"]
    assert mount in the_trainer(pod)["volumeMounts"]
    assert the_trainer(pod)["envFrom"] == [source]


@pytest.mark.parametrize("path", ["/tmp", "/tmp/", "//tmp", "/dev/shm", "/dev/./shm", "/checkpoints"])  # noqa: S108
@pytest.mark.parametrize("where", ["spec", "template"])
def test_a_users_own_volume_takes_the_place_of_ours(path: str, where: str) -> None:
    """Wherever it is said. What the agent itself needs lies elsewhere."""
    mount, volume = {"name": "own", "mountPath": path}, {"name": "own", "emptyDir": {"sizeLimit": "1Ti"}}
    template = {"spec": {"volumes": [volume], "containers": [{"name": "trainer", "volumeMounts": [mount]}]}}
    said: Document = {"volumes": [volume], "volumeMounts": [mount]} if where == "spec" else {"template": template}
    pod = the_pod(a_job().with_workers(1, **said))
    mounts = {container.mount_path(one): one["name"] for one in the_trainer(pod)["volumeMounts"]}
    assert len(mounts) == len(the_trainer(pod)["volumeMounts"])
    (place,) = (usual for usual in ("/tmp", "/dev/shm", "/checkpoints") if usual[1:] in path.replace("/./", "/"))  # noqa: S108
    assert mounts[place] == "own"
    assert volume in pod["spec"]["volumes"]
    assert mounts[the_variables(pod)[names.ENV_SCRATCH]] == "trainmaster-scratch"


def test_what_the_spec_names_is_laid_over_the_template() -> None:
    """What both say otherwise is refused before (tests/api/test_said_twice.py), but for amounts, which add up here."""
    template: Document = {
        "metadata": {"labels": {"team": "a"}, "annotations": {"note": "x"}},
        "spec": {
            "containers": [
                {
                    "name": "trainer",
                    "env": [{"name": "B", "value": "template"}, {"name": names.ENV_JOB, "value": "stolen"}],
                    "resources": {"limits": {"memory": "1Gi", "cpu": "2"}},
                    "securityContext": {"readOnlyRootFilesystem": False},
                },
                {"name": "logs", "image": "shipper:1"},
            ],
            "terminationGracePeriodSeconds": 120,
            "nodeSelector": {"zone": "1"},
            "runtimeClassName": "nvidia",
        },
    }
    env = [{"name": "A", "value": "spec"}]
    pod = the_pod(a_job().with_workers(1, env=env, memory="8Gi", nodeSelector={"pool": "spec"}, template=template))
    trainer, variables = the_trainer(pod), the_variables(pod)
    assert (variables["A"], variables["B"], variables[names.ENV_JOB]) == ("spec", "template", "lab/digits")
    assert trainer["resources"]["limits"] == {"memory": "8Gi", "cpu": "2"}
    assert trainer["securityContext"]["readOnlyRootFilesystem"] is False
    assert trainer["securityContext"]["allowPrivilegeEscalation"] is False
    assert [c["name"] for c in pod["spec"]["containers"]] == ["trainer", "logs"]
    assert pod["spec"]["terminationGracePeriodSeconds"] == 120
    assert pod["spec"]["nodeSelector"] == {"pool": "spec", "zone": "1"}
    assert pod["spec"]["runtimeClassName"] == "nvidia"
    assert pod["metadata"]["name"] == "digits-worker-0-0"
    assert pod["metadata"]["labels"][names.LABEL_JOB] == "digits"
    assert pod["metadata"]["labels"]["team"] == "a"
    assert pod["metadata"]["annotations"]["note"] == "x"


def test_the_templates_labels_are_for_the_pods_and_the_jobs_for_whatever_has_none_there() -> None:
    template = {"metadata": {"labels": {"team": "night-shift"}}}
    job = a_job().with_metadata(labels={"team": "vision", "cost": "7"}).with_workers(1, template=template)
    found = the_pod(job)["metadata"]["labels"]
    assert (found["team"], found["cost"]) == ("night-shift", "7")


def test_how_a_template_pulls_our_own_image_is_not_overruled_by_the_operators_setting() -> None:
    template = {"spec": {"containers": [{"name": "trainer", "imagePullPolicy": "Always"}]}}
    assert the_trainer(the_pod(a_job().with_workers(1, template=template)))["imagePullPolicy"] == "Always"
    assert the_trainer(the_pod(a_job()))["imagePullPolicy"] == "IfNotPresent"


def test_an_image_in_the_template_is_the_users_own() -> None:
    template = {"spec": {"containers": [{"name": "trainer", "image": "user/image:2"}]}}
    pod = the_pod(a_job().with_workers(1, template=template))
    assert the_trainer(pod)["image"] == "user/image:2"
    assert the_trainer(pod)["command"][0] == "python3"


def test_a_lost_node_is_waited_for_as_long_as_the_job_says() -> None:
    pod = the_pod(a_job().with_failure_policy(nodeLostSeconds=20))
    keys = {t["key"]: t["tolerationSeconds"] for t in pod["spec"]["tolerations"]}
    assert keys == {"node.kubernetes.io/not-ready": 20, "node.kubernetes.io/unreachable": 20}
    assert "tolerations" not in the_pod(a_job())["spec"]


@pytest.mark.parametrize("where", ["spec", "template"])
def test_a_toleration_of_the_users_own_for_a_lost_node_is_the_only_one(where: str) -> None:
    """Of two, Kubernetes would take the shorter."""
    own: Document = {"tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]}
    said = own if where == "spec" else {"template": {"spec": own}}
    pod = the_pod(a_job().with_failure_policy(nodeLostSeconds=20).with_workers(1, **said))
    times = [(one["key"].rpartition("/")[2], one.get("tolerationSeconds")) for one in pod["spec"]["tolerations"]]
    assert times == [("not-ready", None), ("unreachable", 20)]


def test_parameter_servers_have_a_spec_of_their_own() -> None:
    servers = {"replicas": 1, "memory": "2Gi"}
    job = a_job().where(strategy={"type": "ParameterServer"}, parameterServers=servers)
    pod = the_pod(job, names.PARAMETER_SERVER)
    assert pod["metadata"]["name"] == "digits-parameterserver-0-0"
    assert pod["metadata"]["labels"][names.LABEL_ROLE] == "parameterServer"
    assert the_trainer(pod)["resources"]["limits"] == {"memory": "2Gi"}


def test_the_service_names_every_replica_from_the_start() -> None:
    service = manifests.service(a_job().build())
    assert service["metadata"]["name"] == "digits"
    assert service["spec"] == {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {names.LABEL_JOB: "digits"},
    }


def test_a_model_of_gpu_is_a_label_of_the_node_beside_the_users_own() -> None:
    spec = the_pod(a_job().with_workers(1, accelerator="NVIDIA-H200", gpus=1, nodeSelector={"zone": "1"}))["spec"]
    assert spec["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-H200", "zone": "1"}


def test_tpu_chips_are_asked_for_by_their_own_name() -> None:
    spec = the_pod(a_job().with_workers(1, accelerator="tpu", gpus=4))["spec"]
    assert "nodeSelector" not in spec
    assert spec["containers"][0]["resources"]["limits"] == {"google.com/tpu": "4"}


@pytest.mark.parametrize(("seconds", "grace"), [(None, 30), (0.5, 30), (20.0, 70), (1e9, 3600)])
def test_pods_get_three_times_the_measured_time_to_save(seconds: float | None, grace: int) -> None:
    job = a_job().build()
    saved = CheckpointStatus(step=5, seconds=seconds)
    pod = the_pod(job.model_copy(update={"status": dataclasses.replace(job.status, checkpoint=saved)}))
    assert pod["spec"]["terminationGracePeriodSeconds"] == grace
    assert the_variables(pod)[names.ENV_GRACE] == str(grace - 10)


TYPING_ERRORS: list[Document] = [
    {"containers": [{"name": "trainer", "env": [{"key": "A", "value": "b"}]}]},
    {"containers": [{"name": "trainer", "volumeMounts": [{"name": "data", "path": "/data"}]}]},
    {"initContainers": [{"image": "busybox"}]},
    {"terminationGracePeriodSeconds": "60s"},
]


@pytest.mark.parametrize("spec", TYPING_ERRORS, ids=lambda spec: next(iter(spec)))
@pytest.mark.parametrize("image", [None, "user/image:1"])
def test_a_typing_error_in_a_template_is_left_to_the_api_server(spec: Document, image: str | None) -> None:
    pod = the_pod(a_job().with_workers(1, template={"spec": spec}, **({"image": image} if image else {})))
    (member,) = spec
    if member == "containers":
        (key,) = spec[member][0].keys() - {"name"}
        assert spec[member][0][key][0] in the_trainer(pod)[key]
    elif member == "initContainers":
        assert any(spec[member][0].items() <= one.items() for one in pod["spec"][member])
    else:
        assert pod["spec"][member] == "60s"


def test_what_no_pod_can_be_made_of_is_an_error_that_names_the_field() -> None:
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": 5}]}}
    job = a_job().with_workers(1, affinity={"nodeAffinity": terms})
    avoided = {"node": "node-1", "until": "9999-01-01T00:00:00Z", "reason": "It failed."}
    with pytest.raises(manifests.TemplateError, match=r"spec.workers: no pod can be made of it \(TypeError"):
        the_pod(job.at("Running", avoidedNodes=[avoided]))


@pytest.mark.parametrize("label", ["app.kubernetes.io/name", names.LABEL_ROLE, "trainmaster.dev/x"])
def test_no_template_puts_a_pod_behind_somebody_elses_service(label: str) -> None:
    """The operator's own Service may be in the job's namespace, and no admission policy need be there."""
    job = a_job().with_workers(1, template={"metadata": {"labels": {label: "trainmaster"}}})
    with pytest.raises(manifests.TemplateError, match=f"template.metadata.labels: {label} is Trainmaster's own"):
        the_pod(job)

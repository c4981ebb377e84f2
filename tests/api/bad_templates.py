"""Bad specs about pods: what a template says a second time, what takes the agent's place, what stands elsewhere.

A part of bad_specs.py.
"""

from __future__ import annotations

from typing import Any

from tests.api.changes import BadSpec
from tests.api.changes import bad as _bad

_PS: dict[str, Any] = {"strategy__type": "ParameterServer", "parameterServers__replicas": 2}


def _trainer(
    name: str, words: str, at: str = "", *, workers: dict[str, Any] | None = None, **container: Any
) -> BadSpec:
    """Workers whose template says this of the container trainer."""
    spec = {"containers": [{"name": "trainer", **container}]}
    field = f"workers.{at}" if at else f"workers.template.spec.containers.0.{next(iter(container))}"
    return _bad(name, "workers", {"replicas": 4, "template": {"spec": spec}, **(workers or {})}, words, at=field)


def _mount(path: str) -> dict[str, Any]:
    return {"volumes": [{"name": "d", "emptyDir": {}}], "volumeMounts": [{"name": "d", "mountPath": path}]}


_HIDES, _PVC = "would hide what the agent needs", {"persistentVolumeClaim": {"claimName": "a"}}
_OWN_CHECKPOINTS = {"replicas": 4, **_mount("/checkpoints/")}
_M0 = "workers.volumeMounts.0.mountPath"

# What a template says a second time, and what takes the agent's place.
TEMPLATES = (
    *(
        _trainer(
            f"idle {name}", "set gpus beside the template", "template.spec.containers", resources={kind: {name: 8}}
        )
        for kind, name in (
            ("limits", "nvidia.com/gpu"),
            ("requests", "amd.com/gpu"),
            ("limits", "nvidia.com/mig-1g.5gb"),
            ("limits", "nvidia.com/gpu.shared"),
            ("limits", "google.com/tpu"),
            ("limits", "gpu.intel.com/i915"),
            ("requests", "habana.ai/gaudi"),
        )
    ),
    _trainer(
        "idle devices of one's own",
        "set gpus beside the template",
        "template.spec.containers",
        workers={"gpuResource": "acme.example/card"},
        resources={"limits": {"acme.example/card": 1}},
    ),
    _trainer("cpu twice", "Remove one of the two", "cpu", workers={"cpu": 4}, resources={"requests": {"cpu": "8"}}),
    _trainer(
        "memory twice", "Remove one", "memory", workers={"memory": "4Gi"}, resources={"limits": {"memory": "8Gi"}}
    ),
    *(
        _bad(
            f"{field} twice",
            "workers",
            {"replicas": 4, field: "a", "template": {"spec": {field: "b"}}},
            "Remove one of the two, or say the same in both",
            at=f"workers.{field}",
        )
        for field in ("priorityClassName", "serviceAccountName")
    ),
    _bad(
        "node selector twice",
        "workers",
        {"replicas": 4, "nodeSelector": {"a": "1", "zone": "b"}, "template": {"spec": {"nodeSelector": {"zone": "c"}}}},
        "want different values of one label. Remove one of the two",
        at="workers.nodeSelector",
    ),
    *(
        _bad(
            f"another GPU {where}",
            "workers",
            {"replicas": 4, "gpus": 1, "accelerator": "NVIDIA-H200", **selector},
            "nodeSelector wants another one",
            at="workers.accelerator",
        )
        for where, selector in (
            ("beside", {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L4"}}),
            ("beneath", {"template": {"spec": {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L4"}}}}),
        )
    ),
    _trainer(
        "pull policy twice",
        "otherwise for the container trainer",
        "imagePullPolicy",
        workers={"imagePullPolicy": "Always"},
        imagePullPolicy="Never",
    ),
    _bad(
        "folder twice",
        "workers.template.spec.containers.0",
        {"name": "trainer", "workingDir": "/src"},
        "is another folder than workingDir",
        at="training.workingDirectory",
        training={"command": ["a"], "workingDirectory": "/work"},
    ),
    *(
        _bad(f"own {field}", f"workers.template.spec.{field}", "node7", "each replica has its own")
        for field in ("hostname", "subdomain")
    ),
    _trainer("image twice", "Remove one of the two", "image", workers={"image": "a"}, image="b"),
    _trainer("agent's variable", "Rename the variable", env=[{"name": "TRAINMASTER_FAULTS", "value": "/x"}]),
    _trainer("torchrun's variable", "Remove it", env=[{"name": "A", "value": "1"}, {"name": "RANK", "value": "1"}]),
    _trainer("mount at the root", _HIDES, volumeMounts=[{"name": "d", "mountPath": "/"}]),
    _trainer("mount on the token", _HIDES, volumeMounts=[{"name": "d", "mountPath": "/var/run/secrets/trainmaster"}]),
    _trainer(
        "mount on Python", "Mount it at another path", "volumeMounts", volumeMounts=[{"name": "d", "mountPath": "/opt"}]
    ),
    *(
        _bad(f"mount at {path}", "workers", {"replicas": 4, **_mount(path)}, _HIDES, at=_M0)
        for path in (
            "/",
            "//",
            "/trainmaster",
            "/trainmaster/x",
            "/run/trainmaster/",
            "/var/run/trainmaster",
            "/a/../trainmaster",
        )
    ),
    _bad("our venv", "workers", {"replicas": 4, **_mount("/opt/venv/lib")}, "trainer image", at="workers.volumeMounts"),
    _bad(
        "checkpoints twice",
        "workers",
        _OWN_CHECKPOINTS,
        "at /checkpoints",
        at="checkpoint.storage",
        checkpoint={"storage": _PVC},
    ),
    _bad(
        "volume of ours",
        "workers.volumes.0",
        {"name": "trainmaster-shm", "emptyDir": {}},
        "Rename",
        at="workers.volumes.0.name",
    ),
    _bad(
        "volume of ours beneath",
        "workers.template.spec.volumes.0",
        {"name": "trainmaster-tmp", "emptyDir": {}},
        "Rename the volume",
        at="workers.template.spec.volumes.0.name",
    ),
    *(
        _bad(
            f"init container {name}",
            "workers.template.spec.initContainers.0",
            {"name": name, "image": "a"},
            "has a name that is taken",
            at="workers.template.spec.initContainers.0.name",
        )
        for name in ("trainmaster-code", "trainer")
    ),
    _bad(
        "resources of a container", "workers.resources", {"limits": {"nvidia.com/gpu": 1}}, "Set cpu, memory and gpus"
    ),
    _bad("security of a container", "workers.securityContext", {"runAsUser": 1}, "template: {spec: {securityContext"),
    _bad("ports of a container", "workers.ports", [{"containerPort": 1}], "or declare other ports in template"),
    _bad("resources of a server", "parameterServers.resources", {}, "Set cpu, memory and gpus", **_PS),
)

"""Jobs that everybody must accept: the check, the models, and a real API server.

Used by tests/api/test_good_specs.py and tests/onebox/test_crd_accepts_good_specs.py.
"""

from __future__ import annotations

from typing import Any

from tests.api.changes import GONE, changed, good_job

_TASK = {"task": "a.b:C", "steps": 5, "globalBatchSize": 256}
_SERVERS = {"spec.strategy.type": "ParameterServer", "spec.parameterServers.replicas": 2}
_EVERYTHING_OF_A_POD: dict[str, Any] = {
    "replicas": 2,
    "gpus": 4,
    "gpuResource": "amd.com/gpu",
    "accelerator": "NVIDIA-H200",
    "cpu": "500m",
    "memory": "16Gi",
    "image": "localhost:5000/team/trainer:1.2@sha256:abc",
    "imagePullPolicy": "IfNotPresent",
    "imagePullSecrets": [{"name": "registry"}],
    "env": [
        {"name": "A", "value": "1"},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"name": "C"},
    ],
    "envFrom": [{"prefix": "P_", "configMapRef": {"name": "c", "optional": True}}, {"secretRef": {"name": "s"}}],
    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}}],
    "volumeMounts": [
        {"name": "data", "mountPath": "/data", "subPath": "a", "readOnly": True},
        {"name": "beneath", "mountPath": "/beneath"},
    ],
    "nodeSelector": {"gpu": "true"},
    "tolerations": [{"operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 5}],
    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "priorityClassName": "high",
    "serviceAccountName": "trainer",
    "template": {
        "metadata": {"labels": {"team": "vision"}},
        "spec": {
            "restartPolicy": "Never",
            "hostNetwork": False,
            "terminationGracePeriodSeconds": 5,
            "volumes": [{"name": "beneath", "emptyDir": {"medium": "Memory"}}],
            "initContainers": [{"name": "fetch", "image": "a"}],
            "containers": [
                {
                    "name": "trainer",
                    "securityContext": {"runAsUser": 1000, "capabilities": {"add": ["IPC_LOCK"]}},
                    "env": [{"name": "D", "value": "1"}],
                    "volumeMounts": [{"name": "beneath", "mountPath": "/tmp"}],  # noqa: S108
                    "resources": {
                        "limits": {"rdma/devices": 1, "cpu": "1500m"},
                        "requests": {"ephemeral-storage": "1Gi"},
                    },
                },
                {
                    "name": "sidecar",
                    "image": "a",
                    "command": ["sh"],
                    "env": [{"name": "RANK", "value": "1"}],
                    "resources": {"limits": {"nvidia.com/gpu": 1}},
                },
            ],
        },
    },
}

_CHANGES: dict[str, dict[str, Any]] = {
    "four workers": {},
    "one worker by default": {"spec.workers": GONE},
    "empty objects": {"spec.workers": {}, "spec.checkpoint": {}, "spec.failurePolicy": {}, "spec.scheduling": {}},
    "nulls": {"spec.workers": None, "spec.checkpoint": None, "spec.elasticity": None, "spec.training.seed": None},
    "longest name": {"metadata.name": "a" * 40},
    "generated name": {"metadata": {"generateName": "digits-"}},
    "labels": {"metadata.labels": {"team": "vision"}, "metadata.annotations": {"a": "b"}},
    "a command": {"spec.training": {"command": ["python", "train.py", ""], "workingDirectory": "/work"}},
    "a command with steps": {"spec.training": {"command": ["a"], "steps": 5, "globalBatchSize": 8, "seed": 4294967295}},
    "arguments": {"spec.training.arguments": {"a": 1, "b": [0.5, "x", True], "c": {"d": {}}}},
    "16 bits": {"spec.training": {**_TASK, "precision": "FP16", "maxGradientNorm": 1, "microBatchSize": 4}},
    "epochs": {"spec.training": {"task": "a.b:C", "epochs": 3, "globalBatchSize": 256}},
    "a script that stops early": {
        "spec.training": {
            "command": ["a"],
            "evaluateEverySteps": 5,
            "stopEarly": {"metric": "a", "patience": 1, "mode": "min"},
        },
    },
    "average": {"spec.training": {**_TASK, "ema": {"decay": 0.999}, "activationCheckpointing": True}},
    "compiled": {"spec.training": {**_TASK, "compile": True}, "spec.strategy.type": "LocalSGD"},
    "code": {"spec.training.code": {"bundle": {"sha256": "0a" * 32, "configMaps": ["a-0", "a-1"]}}},
    "code of a store": {
        "spec.training.code": {
            "url": {
                "address": "s3://b/c/d.tar.gz",
                "sha256": "0" * 64,
                "endpoint": "http://s3:9000",
                "secretName": "keys",
            }
        }
    },
    "code of a claim": {"spec.training.code": {"url": {"address": "file:///data/code.tar", "sha256": "0" * 64}}},
    "code of git": {"spec.training.code": {"git": {"repository": "https://host:8443/me/a.git", "commit": "0a" * 20}}},
    "code of an image": {"spec.training.code": {"image": {"reference": f"host:5000/me/code@sha256:{'0a' * 32}"}}},
    "packages": {
        "spec.training.packages": {
            "names": ["timm==1.0.19", "ray[default,train]==2.9", "a_b.c==1!2.0.post1+cpu"],
            "requirements": "pkg/requirements.txt",
            "wheels": {"persistentVolumeClaim": {"claimName": "wheels"}},
        }
    },
    "code of a commit": {
        "spec.training.code": {"bundle": {"sha256": "0" * 64, "configMaps": ["a"], "commit": "3f2a9c1", "dirty": True}}
    },
    "data workers": {"spec.training": {**_TASK, "dataWorkers": 4, "prefetch": 8}},
    "evaluations": {
        "spec.training": {**_TASK, "evaluateEverySteps": 5, "stopEarly": {"metric": "a", "patience": 1, "mode": "min"}},
        "spec.checkpoint": {"best": {"metric": "accuracy", "mode": "max"}},
    },
    "data workers by the cores": {"spec.training": {**_TASK, "prefetch": 1}},
    "evaluations of gossip": {"spec.training": {**_TASK, "evaluateEverySteps": 5}, "spec.strategy.type": "Gossip"},
    "16 bits of members": {"spec.strategy.type": "Gossip", "spec.training.precision": "BF16"},
    "a norm": {**_SERVERS, "spec.training.maxGradientNorm": 0.5},
    "OneDevice": {"spec.strategy.type": "OneDevice", "spec.workers": {"gpus": 1}},
    "Mirrored": {
        "spec.strategy": {"type": "Mirrored", "mirrored": {"reduction": "OneDevice"}},
        "spec.workers": {"gpus": 8},
    },
    "AllReduce": {"spec.strategy": {"type": "AllReduce", "allReduce": {"algorithm": "Ring"}, "compression": "BF16"}},
    "AllReduce with its defaults": {"spec.strategy.allReduce": {}},
    "CentralStorage": {"spec.strategy.type": "CentralStorage", "spec.workers": {"gpus": 2}},
    "ParameterServer": _SERVERS,
    "ParameterServer, servers unsaid": {"spec.strategy.type": "ParameterServer"},
    "ParameterServer, one server": {"spec.strategy.type": "ParameterServer", "spec.parameterServers": {}},
    "ParameterServer Async": {**_SERVERS, "spec.strategy.parameterServer": {"update": "Async", "maxStaleness": 8}},
    "ParameterServer Sync": {**_SERVERS, "spec.strategy.parameterServer": {"update": "Sync", "backupWorkers": 1}},
    "Gossip": {"spec.strategy": {"type": "Gossip", "gossip": {"peers": 3, "topKPercent": 10}}},
    "LocalSGD": {"spec.strategy": {"type": "LocalSGD", "localSGD": {"every": 50, "outer": "Nesterov"}}},
    "FullySharded": {"spec.strategy.type": "FullySharded", "spec.workers.gpus": 8},
    "Pipeline": {"spec.strategy": {"type": "Pipeline", "pipeline": {"schedule": "GPipe", "microBatches": 8}}},
    "Pipeline with a small batch": {"spec.strategy.type": "Pipeline", "spec.training.globalBatchSize": 1},
    "Tensor": {"spec.strategy.type": "Tensor", "spec.workers": {"gpus": 2}},
    "Mesh": {
        "spec.strategy": {"type": "Mesh", "mesh": {"data": 2, "sharded": 2, "pipeline": 2, "tensor": 2}},
        "spec.workers.gpus": 4,
        "spec.training.globalBatchSize": 4,
    },
    "all of a pod": {"spec.workers": _EVERYTHING_OF_A_POD},
    "all of a server's pod": {**_SERVERS, "spec.parameterServers": _EVERYTHING_OF_A_POD},
    "all in the template": {
        "spec.workers.template.spec.containers": [
            {"name": "trainer", "image": "a", "resources": {"requests": {"cpu": 4}, "limits": {"memory": "1Gi"}}}
        ]
    },
    "devices by claims": {
        "spec.workers.gpus": 1,
        "spec.workers.template.spec": {
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
            "containers": [{"name": "trainer", "resources": {"claims": [{"name": "gpu"}]}}],
        },
    },
    "mounts beside ours": {
        "spec.workers.volumes": [{"name": "d", "emptyDir": {}}],
        "spec.workers.volumeMounts": [
            {"name": "d", "mountPath": path}
            for path in ("/tmp", "/dev/shm", "/checkpoints", "/run", "/opt/data", "/var/run")  # noqa: S108
        ],
    },
    "a venv of one's own": {
        "spec.workers.image": "a",
        "spec.workers.volumes": [{"name": "d", "emptyDir": {}}],
        "spec.workers.volumeMounts": [{"name": "d", "mountPath": "/opt/venv"}],
    },
    "whole cores and bytes": {"spec.workers.cpu": 4, "spec.workers.memory": 1073741824},
    "amounts as texts": {"spec.workers.cpu": "0.5", "spec.workers.memory": "1.5G"},
    "elasticity": {"spec.elasticity": {"minReplicas": 2, "maxReplicas": 8}},
    "elasticity from one": {"spec.elasticity": {"maxReplicas": 4}},
    "a claim": {
        "spec.checkpoint": {"everySteps": 10, "keep": 1, "storage": {"persistentVolumeClaim": {"claimName": "a"}}}
    },
    "a bucket": {
        "spec.checkpoint.storage": {
            "objectStore": {"url": "s3://bucket/folder", "endpoint": "http://minio:9000", "secretName": "keys"}
        }
    },
    "a path": {"spec.checkpoint.storage": {"path": "/mnt/checkpoints"}},
    "resume from a job": {"spec.checkpoint.resumeFrom": {"job": "yesterday", "step": 0}},
    "resume from a path": {"spec.checkpoint.resumeFrom": {"path": "/mnt/a"}},
    "resume from a URL": {"spec.checkpoint.resumeFrom": {"path": "s3://bucket/folder/yesterday-1f6f0c2a", "step": 7}},
    "failure policy": {
        "spec.failurePolicy": {"maxRestarts": 0, "hangSeconds": 300, "evaluationSeconds": 60, "nodeLostSeconds": 0}
    },
    "scheduling": {"spec.scheduling": {"gang": "Kueue", "queue": "team-a", "spares": 1}},
    "spares": {"spec.scheduling": {"spares": 2}},
    "a framework": {"spec.training": {"command": ["python", "train.py"], "framework": "XGBoost"}},
    "trackers": {
        "spec.training.trackers": {
            "tensorBoard": {},
            "mlflow": {"url": "sqlite:////data/mlflow.db", "experiment": "digits"},
            "wandb": {"mode": "offline", "project": "digits", "entity": "team"},
            "openTelemetry": {"url": "https://collector:4318/otlp"},
        }
    },
    "no tracker": {"spec.training.trackers": {}},
    "no spares for members": {"spec.strategy": {"type": "Gossip"}, "spec.scheduling": {"spares": 0}},
    "the rest": {
        "spec.suspend": True,
        "spec.reproducible": True,
        "spec.activeDeadlineSeconds": 3600,
        "spec.ttlSecondsAfterFinished": 0,
    },
}

GOOD_SPECS: dict[str, dict[str, Any]] = {name: changed(good_job(), changes) for name, changes in _CHANGES.items()}

"""Specs that must be refused: by `trainmaster check` and by a real API server, naming the field and the cure.

Used by tests/api/test_bad_specs.py and tests/onebox/test_crd_refuses_bad_specs.py. Each changes a good job in one
place. `words` must be in what both say; where the API server answers with a sentence of its own, that is in `server`.
"""

from __future__ import annotations

from typing import Any

from tests.api.bad_code import CODE
from tests.api.bad_evaluations import EVALUATIONS
from tests.api.bad_frameworks import FRAMEWORKS
from tests.api.bad_lengths import LENGTHS
from tests.api.bad_models import MODELS
from tests.api.bad_templates import TEMPLATES
from tests.api.bad_trackers import TRACKERS
from tests.api.changes import GONE
from tests.api.changes import bad as _bad

_NO_INTEGER = "must be of type integer"
_NO_TEXT = "must be of type string"
_NO_CHOICE = "Unsupported value"
_MISSING = "Required value"
_UNKNOWN = "unknown field"
_AT_LEAST_0 = "should be greater than or equal to 0"
_AT_LEAST_1 = "should be greater than or equal to 1"
_MOST_100 = "should be less than or equal to 100"

_PS: dict[str, Any] = {"strategy__type": "ParameterServer", "parameterServers__replicas": 2}
_SERVED = "ParameterServer"
_PREC, _NORM, _PARTS = "training.precision", "training.maxGradientNorm", "training.microBatchSize"
_MESH = {"type": "Mesh", "mesh": {"data": 4}}

NAMES = (
    _bad("name too long", "metadata.name", "a" * 41, "Choose a shorter name"),
    _bad("name with a dot", "metadata.name", "a.b", "Use lower-case letters"),
    _bad("name begins with a digit", "metadata.name", "1a", "with a letter first"),
    _bad("name ends with a dash", "metadata.name", "a-", "no - at the end", "must consist of lower case"),
    _bad("capital in the name", "metadata.name", "Digits", "Use lower-case", "lower case"),
    _bad("no name", "metadata.name", GONE, "no name", "name or generateName is required"),
    _bad("generated name too long", "metadata", {"generateName": "a" * 38}, "a shorter name", at="metadata.name"),
    _bad("unknown metadata", "metadata.nam", "x", "Did you mean name", 'unknown field "metadata.nam"'),
    _bad(
        "number as label", "metadata.labels.a", 1, "quotes", "cannot unmarshal number into Go struct field ObjectMeta"
    ),
)

_COMPRESSED: dict[str, Any] = {"at": "strategy.compression", "workers": {"replicas": 1}}
_TREE = {"type": "Mirrored", "mirrored": {"reduction": "OneDevice"}}
_RING = {"type": "AllReduce", "allReduce": {"algorithm": "Ring"}}

SHAPES = (
    _bad("no spec", "spec", GONE, "missing", _MISSING),
    _bad("no strategy", "strategy", GONE, "missing", _MISSING),
    _bad("no strategy type", "strategy.type", GONE, "type is missing. Write one of OneDevice", _MISSING),
    _bad("no training", "training", GONE, "missing", _MISSING),
    _bad("strategy is a word", "strategy", "AllReduce", "must be an object", "of type object"),
    _bad("misspelt strategy", "strategy.type", "Allreduce", "Did you mean AllReduce", _NO_CHOICE),
    _bad("foreign strategy", "strategy.type", "Horovod", "Write one of OneDevice", _NO_CHOICE),
    _bad("misspelt field", "training.stesp", 3, "Did you mean steps", _UNKNOWN),
    _bad("snake case", "training.global_batch_size", 3, "Did you mean globalBatchSize", _UNKNOWN),
    _bad("field of a pod", "workers.hostNetwork", True, "there is no field hostNetwork", _UNKNOWN),
    _bad("worker in place of workers", "worker", {}, "Did you mean workers", _UNKNOWN),
    _bad("unknown option", "strategy.localSGD.evry", 4, "Did you mean every", _UNKNOWN, strategy__type="LocalSGD"),
    _bad("steps in quotes", "training.steps", "500", "Remove the quotes", _NO_INTEGER),
    _bad("half a step", "training.steps", 0.5, "whole number", _NO_INTEGER),
    _bad("true workers", "workers.replicas", True, "whole number", _NO_INTEGER),
    _bad("suspend is a word", "suspend", "true", "true or false", "must be of type boolean"),
    _bad("no steps at all", "training.steps", 0, "at least 1", _AT_LEAST_1),
    _bad("no workers", "workers.replicas", 0, "Set spec.suspend to true, which ends all pods and keeps the job"),
    _bad("fewer than none", "workers.replicas", -1, "at least 0", _AT_LEAST_0),
    _bad("too many workers", "workers.replicas", 10001, "at most 10000", "less than or equal to 10000"),
    _bad("negative gpus", "workers.gpus", -1, "at least 0", _AT_LEAST_0),
    _bad("negative seed", "training.seed", -1, "at least 0", _AT_LEAST_0),
    _bad("command is a text", "training.command", "python a.py", "Write [python, a.py]", "must be of type array"),
    _bad("only a number in command", "training.command", [1], "quotes", _NO_TEXT, at="training.command.0"),
    _bad("number in command", "training.command", ["a", 1], "quotes", _NO_TEXT, at="training.command.1"),
    _bad("keep nothing", "checkpoint.keep", 0, "at least 1", _AT_LEAST_1),
    _bad("no checkpoints", "checkpoint.everySteps", 0, "at least 1", _AT_LEAST_1),
    _bad("empty image", "workers.image", "", "is empty", "at least 1 chars"),
    _bad("pull policy", "workers.imagePullPolicy", "always", "Did you mean Always", _NO_CHOICE),
    _bad("negative restarts", "failurePolicy.maxRestarts", -1, "at least 0", _AT_LEAST_0),
    _bad("no time to start", "failurePolicy.startSeconds", 0, "at least 1", _AT_LEAST_1),
    _bad("no deadline", "activeDeadlineSeconds", 0, "at least 1", _AT_LEAST_1),
    _bad("half a core", "workers.cpu", 0.5, 'Write "0.5" in quotes', "must be of type integer,string"),
    _bad("label is a number", "workers.nodeSelector.a", 1, "quotes", _NO_TEXT),
    _bad("elasticity without bound", "elasticity.maxReplicas", GONE, "maxReplicas is missing", _MISSING),
    _bad("no claim", "checkpoint.storage.persistentVolumeClaim.claimName", GONE, "claimName is missing", _MISSING),
)

TRAINING = (
    _bad("nothing to train", "training", {}, "Set task to module:Class, or command"),
    _bad("task and command", "training.command", ["a"], "Remove one of them"),
    _bad("task is a file", "training.task", "train.py", "Write module:Class"),
    _bad("task without class", "training.task", "tasks.digits:", "Write module:Class"),
    _bad("empty program", "training.command", [""], "[python, train.py]", training={}),
    _bad("empty command", "training.command", [], "is empty", "at least 1 items", training={}),
    _bad(
        "arguments of a command",
        "training.arguments.a",
        1,
        "Put them into command",
        at="training.arguments",
        training={"command": ["a"]},
    ),
    _bad("progress of a task", "training.progress", {"loss": "(a)"}, "a task says it itself"),
    _bad(
        "progress of nothing",
        "training",
        {"command": ["a"], "progress": {}},
        "Set loss, step or total",
        at="training.progress",
    ),
    _bad("task without steps", "training.steps", GONE, "Set steps"),
    _bad("task without batch", "training.globalBatchSize", GONE, "Set globalBatchSize"),
    _bad("batch smaller than ranks", "training.globalBatchSize", 3, "is 3, but the batch is shared among 4 ranks"),
    _bad("batch smaller than gpus", "workers.gpus", 100, "among 400 ranks", at="training.globalBatchSize"),
)

STRATEGY = (
    _bad("mirrored elsewhere", "strategy.mirrored", {}, "Remove mirrored, or set type to Mirrored"),
    _bad("allReduce elsewhere", "strategy.allReduce", {}, "set type to AllReduce", strategy__type="LocalSGD"),
    _bad("parameterServer elsewhere", "strategy.parameterServer", {}, "set type to ParameterServer"),
    _bad("gossip elsewhere", "strategy.gossip", {}, "Remove gossip, or set type to Gossip"),
    _bad("localSGD elsewhere", "strategy.localSGD", {}, "Remove localSGD, or set type to LocalSGD"),
    _bad("pipeline elsewhere", "strategy.pipeline", {}, "Remove pipeline, or set type to Pipeline"),
    _bad("mesh elsewhere", "strategy.mesh", {}, "Remove mesh, or set type to Mesh"),
    _bad("compression", "strategy.compression", "BF16", "Remove compression", strategy__type="FullySharded"),
    _bad("INT8 ring", "strategy", {**_RING, "compression": "INT8"}, "algorithm Native", **_COMPRESSED),
    _bad("PowerSGD tree", "strategy", {**_TREE, "compression": "PowerSGD"}, "reduction Native", **_COMPRESSED),
    _bad("PowerSGD to servers", "strategy.compression", "PowerSGD", "BF16, INT8 or TopK", strategy__type=_SERVED),
    _bad("compressed script", "strategy.compression", "INT8", "compress in the script", training={"command": ["a"]}),
    _bad("never a meeting", "strategy.localSGD.every", 501, "Lower every to 500 at most", strategy__type="LocalSGD"),
    _bad("gossip of nothing", "strategy.gossip.topKPercent", 0, "at least 1", _AT_LEAST_1, strategy__type="Gossip"),
    _bad("gossip of twice all", "strategy.gossip.topKPercent", 200, "at most 100", _MOST_100, strategy__type="Gossip"),
    _bad("negative staleness", "strategy.parameterServer.maxStaleness", -1, "at least 0", _AT_LEAST_0, **_PS),
    _bad("no servers", "parameterServers.replicas", 0, "at least 1 of each role", strategy__type=_SERVED),
    _bad("no micro-batches", "strategy.pipeline.microBatches", 0, "at least 1", _AT_LEAST_1, strategy__type="Pipeline"),
    _bad("an axis of none", "strategy.mesh.tensor", 0, "at least 1", _AT_LEAST_1, strategy__type="Mesh"),
    _bad("LocalSGD TopK", "strategy.compression", "TopK", "meets too seldom", strategy__type="LocalSGD"),
    _bad("servers on TPUs", "parameterServers.accelerator", "tpu", "do not compute on TPUs", strategy__type=_SERVED),
    _bad("gossip on TPUs", "workers.accelerator", "tpu", "tpu trains OneDevice", strategy__type="Gossip"),
    _bad("a ring on TPUs", "workers.accelerator", "tpu", "XLA itself", strategy__allReduce={"algorithm": "Ring"}),
    _bad("reproducible LocalSGD", "reproducible", True, "only OneDevice, Mirrored", strategy__type="LocalSGD"),
    _bad("reproducible BF16", "reproducible", True, "an order of their own", strategy__compression="BF16"),
    _bad("reproducible ring", "reproducible", True, "an order of their own", strategy__allReduce={"algorithm": "Ring"}),
    _bad("reproducible script", "reproducible", True, "a command of your own", training={"command": ["true"]}),
    _bad(
        "reproducible on nine", "reproducible", True, "8 ranks at most, and workers.replicas", workers={"replicas": 9}
    ),
    _bad(
        "reproducible crumbs",
        "reproducible",
        True,
        "each needs a sample",
        at="training.globalBatchSize",
        training__globalBatchSize=7,
    ),
    _bad("precision of a script", "training", {"command": ["true"], "precision": "BF16"}, "torch.autocast", at=_PREC),
    _bad("norm of a script", "training", {"command": ["true"], "maxGradientNorm": 1}, "clip_grad_norm_", at=_NORM),
    _bad("FP16 gossip", _PREC, "FP16", "steps of its own", strategy__type="Gossip"),
    _bad("FP16 TopK", _PREC, "FP16", "gradients that overflow", strategy__compression="TopK"),
    _bad("FP16 on TPUs", _PREC, "FP16", "TPUs compute in BF16", workers__accelerator="tpu"),
    _bad("norm in parts", _NORM, 1.0, "has a part of it", strategy__parameterServer={"update": "Sync"}, **_PS),
    _bad("parts of a script", "training", {"command": ["true"], "microBatchSize": 1}, "its own affair", at=_PARTS),
    _bad("parts of a pipeline", _PARTS, 8, "strategy.pipeline.microBatches", strategy__type="Pipeline"),
    _bad("parts on TPUs", _PARTS, 8, "at once", workers__accelerator="tpu"),
    _bad("misspelt precision", _PREC, "bf16", "Did you mean BF16", _NO_CHOICE),
    _bad("no gradient", _NORM, 0, "trains nothing"),
    _bad("a gradient backwards", _NORM, -0.5, "Write 0.0 or more", "should be greater than or equal to 0"),
    _bad("norm in quotes", _NORM, "1.0", "Remove the quotes", "of type number"),
    _bad("OneDevice on four", "strategy.type", "OneDevice", "is 4. Set workers.replicas to 1", at="workers.replicas"),
    _bad(
        "OneDevice with two",
        "workers",
        {"gpus": 2},
        "is 2. Set workers.gpus to 1",
        at="workers.gpus",
        strategy__type="OneDevice",
    ),
    _bad("Mirrored on four", "strategy.type", "Mirrored", "Set workers.replicas to 1", at="workers.replicas"),
    _bad("CentralStorage on four", "strategy.type", "CentralStorage", "train on one machine", at="workers.replicas"),
    _bad("Pipeline of one", "workers.replicas", 1, "at least 2 ranks", strategy__type="Pipeline"),
    _bad("Tensor of one", "workers.replicas", 1, "at least 2 ranks", strategy__type="Tensor"),
    _bad("Gossip of one", "workers.replicas", 1, "at least 2 ranks", strategy__type="Gossip"),
    _bad("gossip with all", "strategy.gossip.peers", 4, "number of ranks, which is 4", strategy__type="Gossip"),
    _bad("Mesh without mesh", "strategy.type", "Mesh", "Set mesh, for example {data: 2", at="strategy.mesh"),
    _bad(
        "Mesh too small",
        "strategy.mesh",
        {"data": 2},
        "mesh asks for 2 ranks (the product of its members), but workers.replicas times workers.gpus"
        " (1 where gpus is 0) is 4. Set strategy.mesh.data to 4, or have as many ranks as the mesh asks for",
        strategy__type="Mesh",
    ),
    _bad(
        "Mesh of no multiple",
        "strategy.mesh",
        {"pipeline": 3},
        "is 4. Have as many ranks as the mesh asks for, or a multiple of 3",
        strategy__type="Mesh",
    ),
    _bad(
        "Mesh too large",
        "strategy.mesh",
        {"data": 2, "tensor": 8},
        "asks for 16 ranks (the product of its members), but workers.replicas times workers.gpus (1 where gpus is 0)"
        " is 8",
        strategy__type="Mesh",
        workers__gpus=2,
    ),
    _bad("servers for nothing", "parameterServers", {}, "Remove parameterServers"),
    _bad(
        "stale and sync",
        "strategy.parameterServer.maxStaleness",
        1,
        "Remove maxStaleness",
        strategy__parameterServer__update="Sync",
        **_PS,
    ),
    _bad("backup and async", "strategy.parameterServer.backupWorkers", 1, "set update to Sync", **_PS),
    _bad(
        "backup for all",
        "strategy.parameterServer.backupWorkers",
        4,
        "Lower backupWorkers",
        strategy__parameterServer__update="Sync",
        **_PS,
    ),
    _bad(
        "too many micro-batches",
        "strategy.pipeline.microBatches",
        257,
        "a batch of 256 samples",
        strategy__type="Pipeline",
    ),
    _bad(
        "unknown schedule",
        "strategy.pipeline.schedule",
        "1f1b",
        "Did you mean 1F1B",
        _NO_CHOICE,
        strategy__type="Pipeline",
    ),
)

PODS = (
    _bad("cpu in words", "workers.cpu", "four", "500m"),
    _bad("no cpu", "workers.cpu", 0, "500m"),
    _bad("memory in GB", "workers.memory", "16GB", "Write for example 16Gi"),
    _bad("memory without unit", "workers.memory", 16, "without a unit it counts bytes"),
    _bad("milli bytes", "parameterServers.memory", "512m", "512Mi", **_PS),
    _bad("gpu without vendor", "workers.gpuResource", "gpu", "nvidia.com/gpu"),
    _bad("blank in image", "workers.image", "a b", "has a blank"),
    _bad("env name", "workers.env.0.name", "A B", "Use letters, digits and _"),
    _bad("env taken", "workers.env.0.name", "TRAINMASTER_X", "Rename the variable"),
    _bad("env of torchrun", "workers.env.0.name", "RANK", "Remove it"),
    _bad(
        "env value is a number", "workers.env.0", {"name": "A", "value": 1}, '"1"', _NO_TEXT, at="workers.env.0.value"
    ),
    _bad(
        "env twice", "workers.env", [{"name": "A"}, {"name": "A"}], "second time", "Duplicate value", at="workers.env.1"
    ),
    _bad(
        "env from two",
        "workers.env.0",
        {"name": "A", "value": "1", "valueFrom": {"fieldRef": {}}},
        "Remove one of them",
        at="workers.env.0.valueFrom",
    ),
    _bad("envFrom nothing", "workers.envFrom.0", {"prefix": "A"}, "Set exactly one of configMapRef and secretRef"),
    _bad(
        "mount of nothing",
        "workers.volumeMounts.0",
        {"name": "d", "mountPath": "/d"},
        "Add it to volumes",
        at="workers.volumeMounts",
    ),
    _bad(
        "relative mount",
        "workers.volumeMounts.0",
        {"name": "d", "mountPath": "d"},
        "Begin it with /",
        at="workers.volumeMounts.0.mountPath",
        workers__volumes=[{"name": "d", "emptyDir": {}}],
    ),
    _bad("volume name", "workers.volumes.0.name", "D_1", "lower-case letters"),
    _bad(
        "toleration value",
        "workers.tolerations.0",
        {"key": "a", "operator": "Exists", "value": "b"},
        "Remove value",
        at="workers.tolerations.0.value",
    ),
    _bad("toleration of all", "workers.tolerations.0", {"value": "b"}, "Set key", at="workers.tolerations.0.operator"),
    _bad("priority class", "workers.priorityClassName", "High!", "lower-case letters"),
    _bad("service account", "workers.serviceAccountName", "My_SA", "lower-case letters"),
    _bad("restart policy", "workers.template.spec.restartPolicy", "OnFailure", "spec.failurePolicy says"),
    _bad("host network", "workers.template.spec.hostNetwork", True, "Remove it"),
    _bad("host PID", "workers.template.spec.hostPID", True, "process 1"),
    _bad("host IPC", "workers.template.spec.hostIPC", True, "shared memory"),
    _bad("shared processes", "workers.template.spec.shareProcessNamespace", True, "process 1"),
    _bad("pod deadline", "workers.template.spec.activeDeadlineSeconds", 5, "set spec.activeDeadlineSeconds"),
    _bad(
        "template command",
        "workers.template.spec.containers.0",
        {"name": "trainer", "command": ["sh"]},
        "write spec.training.command",
        at="workers.template.spec.containers.0.command",
    ),
    _bad(
        "template arguments",
        "workers.template.spec.containers.0",
        {"name": "trainer", "args": ["sh"]},
        "write spec.training.command",
        at="workers.template.spec.containers.0.args",
    ),
    _bad("our label", "workers.template.metadata.labels", {"app.kubernetes.io/name": "x"}, "a prefix of your own"),
    _bad("our prefix", "workers.template.metadata.labels", {"trainmaster.dev/role": "x"}, "a prefix of your own"),
    _bad("our note", "workers.template.metadata.annotations", {"trainmaster.dev/x": "z"}, "a prefix of your own"),
    _bad(
        "a label's long name",
        "workers.template.metadata.labels",
        {"x" * 400: "z"},
        "Shorten it",
        at="workers.template.metadata",
    ),
    _bad(
        "a heavy annotation",
        "workers.template.metadata.annotations",
        {"a": "x" * 3000},
        "Make it shorter",
        "may not be more than 2048",
        at="workers.template.metadata.annotations.a",
    ),
)

_FROM = "checkpoint.resumeFrom"
_LATE = {"job": "yesterday", "step": 500}

LIFECYCLE = (
    _bad(
        "elasticity upside down",
        "elasticity",
        {"minReplicas": 5, "maxReplicas": 4},
        "Lower minReplicas",
        at="elasticity.minReplicas",
    ),
    _bad(
        "replicas outside",
        "elasticity",
        {"minReplicas": 5, "maxReplicas": 8},
        "is 4, outside of elasticity.minReplicas 5 and maxReplicas 8",
        at="workers.replicas",
    ),
    _bad("elastic slices", "elasticity", {"maxReplicas": 8}, "Remove elasticity", strategy__type="Tensor"),
    _bad("reproducible on more", "elasticity.maxReplicas", 9, "elasticity allows for 9", reproducible=True),
    _bad("resume behind the end", "checkpoint.resumeFrom", _LATE, "Raise training.steps above 500", at=f"{_FROM}.step"),
    _bad("elastic mesh", "elasticity", {"maxReplicas": 8}, "Remove elasticity", strategy=_MESH),
    _bad("batch for the most", "elasticity.maxReplicas", 300, "300 ranks may share", at="training.globalBatchSize"),
    _bad(
        "two storages", "checkpoint.storage", {"persistentVolumeClaim": {"claimName": "a"}, "path": "/a"}, "exactly one"
    ),
    _bad("no storage", "checkpoint.storage", {}, "exactly one of persistentVolumeClaim, path and objectStore"),
    _bad("no bucket", "checkpoint.storage.objectStore.url", "bucket/folder", "Write it like s3://bucket"),
    _bad(
        "no server",
        "checkpoint.storage.objectStore.endpoint",
        "minio:9000",
        "Write it like http://minio.storage:9000",
        checkpoint__storage__objectStore__url="s3://b",
    ),
    _bad(
        "no secret's name",
        "checkpoint.storage.objectStore.secretName",
        "A",
        "secretName is not a name",
        checkpoint__storage__objectStore__url="s3://b",
    ),
    _bad("relative storage", "checkpoint.storage.path", "a", "Begin it with /"),
    _bad("claim name", "checkpoint.storage.persistentVolumeClaim.claimName", "A", "lower-case letters"),
    _bad("resume from nowhere", "checkpoint.resumeFrom", {"step": 3}, "exactly one of job and path"),
    _bad("resume from two", "checkpoint.resumeFrom", {"job": "a", "path": "/a"}, "exactly one of job and path"),
    _bad("resume from a relative", "checkpoint.resumeFrom.path", "a", "Begin it with /, or write a URL"),
    _bad("resume from itself", "checkpoint.resumeFrom.job", "digits", "Name another job"),
    _bad("hang now and then", "failurePolicy.hangSeconds", "sometimes", "Write auto"),
    _bad("hang at once", "failurePolicy.hangSeconds", 0, "Write auto"),
    _bad("spares nobody waits for", "scheduling.spares", 1, "raise workers.replicas", strategy={"type": "Gossip"}),
    _bad("queue without gang", "scheduling.queue", "team", "Remove queue"),
    _bad("queue name", "scheduling.queue", "My Team", "lower-case letters", scheduling__gang="Kueue"),
)

_ELSEWHERE = (*CODE, *LENGTHS, *MODELS, *EVALUATIONS, *FRAMEWORKS, *TEMPLATES, *TRACKERS)
BAD_SPECS = (*NAMES, *SHAPES, *TRAINING, *STRATEGY, *PODS, *LIFECYCLE, *_ELSEWHERE)

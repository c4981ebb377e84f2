"""Random jobs, good and bad about equally often, for the question whether the check and the API server always agree.

Used by tests/onebox/test_crd_agrees_with_check.py.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from trainmaster.wire.frameworks import FRAMEWORKS
from trainmaster.wire.strategies import STRATEGIES

from tests.api.changes import good_job

_WORDS = (
    "",
    "a",
    "A",
    "a.b",
    "a-",
    "-a",
    "1a",
    "4",
    "0.5",
    "500m",
    "16Gi",
    "16GB",
    "a b",
    "é",
    "a\n",
    "/a",
    "/a:b",
    "x" * 64,
)
_AMOUNTS = (0, 1, 4, 1_000_000, "4", "0.5", "500m", "0.12345", "16Gi", "1.5G", "512m", "1000000", "", "x", 0.5)
_EMPTY: st.SearchStrategy[dict[str, Any]] = st.just({})


def _some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """An object with any of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


_word = st.sampled_from(_WORDS)
_small = st.integers(0, 5)
_flag = st.booleans()

_options: dict[str, st.SearchStrategy[Any]] = {
    "mirrored": _EMPTY,
    "allReduce": _some(algorithm=st.sampled_from(["Ring", "Native", "ring"])),
    "parameterServer": _some(update=st.sampled_from(["Async", "Sync"]), maxStaleness=_small, backupWorkers=_small),
    "gossip": _some(peers=_small, topKPercent=st.integers(0, 101)),
    "localSGD": _some(every=_small),
    "pipeline": _some(microBatches=st.integers(0, 20)),
    "mesh": _some(data=_small, sharded=_small, pipeline=_small, tensor=_small),
}
_compression = st.sampled_from(["None", "BF16", "TopK"])
_types = st.sampled_from(tuple(STRATEGIES))
_strategy = st.one_of(
    st.fixed_dictionaries({"type": _types}),
    st.fixed_dictionaries({"type": _types}, optional={**_options, "compression": _compression}),
    *(
        st.fixed_dictionaries({"type": st.just(name), option: _options[option]}, optional={"compression": _compression})
        for name, option in (
            ("ParameterServer", "parameterServer"),
            ("Gossip", "gossip"),
            ("Pipeline", "pipeline"),
            ("Mesh", "mesh"),
        )
    ),
)
_numerics = {
    "precision": st.sampled_from(["FP32", "BF16", "FP16", "fp16"]),
    "microBatchSize": _small,
    "maxGradientNorm": st.sampled_from([1, 0.5, 0, 0.0, -1.0, -0.5, "1"]),
}
_frameworks = st.sampled_from([*FRAMEWORKS, "jax"])
_training = st.one_of(
    st.fixed_dictionaries(
        {"task": st.just("a.b:C"), "steps": st.integers(1, 9), "globalBatchSize": st.integers(1, 40)},
        optional=_numerics,
    ),
    st.fixed_dictionaries(
        {"command": st.just(["a"])},
        optional={"framework": _frameworks, "steps": _small, "globalBatchSize": _small, **_numerics},
    ),
    _some(
        task=st.sampled_from(["a:B", "a.b:C.D", "a", "a:", ":B", "1a:B", "a..b:C", "a:B\n", "é:B"]),
        command=st.lists(_word, max_size=2),
        arguments=_EMPTY,
        steps=_small,
        globalBatchSize=_small,
        framework=_frameworks,
        seed=st.sampled_from([0, -1, 2**32, 2**32 - 1]),
    ),
)
_variable = st.fixed_dictionaries(
    {"name": st.sampled_from(["A", "B", "RANK", "TRAINMASTER_A", "TRAINMASTER_PRELOAD", "A B", "1", "_a.b-c", ""])},
    optional={"value": _word, "valueFrom": st.just({"fieldRef": {}})},
)
_template_spec = _some(
    restartPolicy=st.sampled_from(["Never", "Always"]),
    hostNetwork=_flag,
    hostPID=_flag,
    hostIPC=_flag,
    activeDeadlineSeconds=_small,
    volumes=st.just([{"name": "b"}]),
    containers=st.lists(
        st.fixed_dictionaries(
            {"name": st.sampled_from(["trainer", "side"])}, optional={"command": st.lists(_word, max_size=1)}
        ),
        max_size=2,
    ),
)
_one_of_a_pod = st.one_of(
    _some(cpu=st.sampled_from(_AMOUNTS)),
    _some(memory=st.sampled_from(_AMOUNTS)),
    _some(image=_word, priorityClassName=_word),
    _some(gpuResource=st.sampled_from(["nvidia.com/gpu", "gpu", "a/b", "A/b", "a/", "a/b/c", ""])),
    _some(env=st.lists(_variable, max_size=3)),
    _some(envFrom=st.lists(_some(prefix=_word, configMapRef=st.just({"name": "a"}), secretRef=st.just({"name": "a"})))),
    _some(
        volumes=st.lists(st.fixed_dictionaries({"name": st.sampled_from(["a", "b", "A"])}), max_size=2),
        volumeMounts=st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from(["a", "b"]), "mountPath": st.sampled_from(["/a", "/b", "a", "/a:b"])}
            ),
            max_size=2,
        ),
        template=_some(spec=_template_spec),
    ),
    _some(
        tolerations=st.lists(_some(key=_word, operator=st.sampled_from(["Exists", "Equal"]), value=_word), max_size=2)
    ),
    _some(template=_some(metadata=_EMPTY, spec=_template_spec)),
)


@st.composite
def _replicas(draw: st.DrawFn) -> dict[str, Any]:
    counts = draw(_some(replicas=st.integers(0, 6), gpus=st.integers(-1, 3)))
    return {**counts, **draw(_one_of_a_pod)} if draw(_flag) else counts


_source = _some(job=_word, path=_word, step=st.integers(-1, 2))
_storage = _some(path=_word, persistentVolumeClaim=st.fixed_dictionaries({"claimName": _word}))
_rest: dict[str, st.SearchStrategy[Any]] = {
    "elasticity": st.fixed_dictionaries({"maxReplicas": _small}, optional={"minReplicas": _small}),
    "checkpoint": _some(everySteps=_small, keep=_small, storage=_storage, resumeFrom=_source),
    "failurePolicy": _some(
        maxRestarts=st.integers(-1, 1), hangSeconds=st.sampled_from(["auto", "Auto", 0, 1, 86_400, 86_401, "5", 1.5])
    ),
    "scheduling": _some(gang=st.sampled_from(["None", "Kueue"]), queue=_word, spares=_small),
    "suspend": _flag,
    "activeDeadlineSeconds": _small,
}


@st.composite
def random_jobs(draw: st.DrawFn) -> dict[str, Any]:
    """A job with up to three parts of it drawn anew."""
    job = good_job()
    spec = job["spec"]
    parts = draw(
        st.sets(st.sampled_from(["strategy", "training", "workers", "rest", "metadata"]), min_size=1, max_size=3)
    )
    if "strategy" in parts:
        spec["strategy"] = draw(_strategy)
        if draw(_flag) == (spec["strategy"]["type"] == "ParameterServer"):
            spec["parameterServers"] = draw(_replicas())
    if "training" in parts:
        spec["training"] = draw(_training)
    if "workers" in parts:
        spec["workers"] = draw(_replicas())
    if "rest" in parts:
        name = draw(st.sampled_from(sorted(_rest)))
        spec[name] = draw(_rest[name])
    if "metadata" in parts:
        job["metadata"] = {"name": draw(st.sampled_from(["a", "a-b", "a.b", "1a", "A", "a-", "é", "x" * 40, "x" * 41]))}
    return job

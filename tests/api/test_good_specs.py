"""Every good spec is accepted, and reads back as what was written."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from trainmaster.api.document import load
from trainmaster.api.job import TrainingJob
from trainmaster.api.rules import violations
from trainmaster.api.supported import not_yet_supported

from tests.api.changes import good_job
from tests.api.good_specs import GOOD_SPECS

EACH = pytest.mark.parametrize("job", GOOD_SPECS.values(), ids=GOOD_SPECS.keys())


@EACH
def test_accepted(job: dict[str, Any]) -> None:
    """By the models and by the rules."""
    loaded = load(yaml.safe_dump(job))

    assert isinstance(loaded, TrainingJob), [str(problem) for problem in loaded]
    assert violations(loaded) == ()


@EACH
def test_round_trip(job: dict[str, Any]) -> None:
    """What is written is read back as the same job, and writing is then stable."""
    parsed = TrainingJob.parse(job)
    written = parsed.to_dict()

    assert parsed == TrainingJob.parse(written)
    assert written == TrainingJob.parse(written).to_dict()


def test_only_strategy_and_training_must_be_given() -> None:
    """Everything else has a default."""
    job = TrainingJob.parse({"metadata": {"name": "a"}, "spec": {"strategy": {"type": "Gossip"}, "training": {}}})

    assert job.spec.to_dict() == {
        "strategy": {"type": "Gossip", "compression": "None"},
        "training": {"framework": "Torch", "seed": 0, "precision": "FP32"},
        "workers": {"replicas": 1, "gpus": 0, "gpuResource": "nvidia.com/gpu"},
        "checkpoint": {"everySteps": 50, "keep": 3},
        "failurePolicy": {"maxRestarts": 10, "hangSeconds": "auto", "startSeconds": 600},
        "suspend": False,
        "reproducible": False,
    }


def test_the_core_sees_ranks() -> None:
    """A GPU is a rank; a replica without GPUs is one, and so is a server."""
    job = TrainingJob.parse(GOOD_SPECS["all of a server's pod"])

    assert job.spec.ranks_each == 1
    assert job.spec.worker_ranks == 4
    assert job.spec.world_size == 6, "a server is one rank, whatever its devices"
    assert list(job.spec.roles) == ["worker", "parameterServer"]


def test_the_core_sees_metadata() -> None:
    """As the API server sends it, with members that are none of our business."""
    metadata = {
        "name": "a",
        "namespace": "b",
        "uid": "c",
        "generation": 3,
        "managedFields": [{}],
        "deletionTimestamp": "d",
    }
    job = TrainingJob.parse({**good_job(), "metadata": metadata})

    assert (job.name, job.namespace, job.uid, job.metadata.generation) == ("a", "b", "c", 3)


def test_options_come_with_their_defaults() -> None:
    """The trainer gets the options of its type in full."""
    gossip = TrainingJob.parse(GOOD_SPECS["Gossip"]).spec.strategy
    plain = TrainingJob.parse(GOOD_SPECS["Pipeline with a small batch"]).spec.strategy
    compressed = TrainingJob.parse(GOOD_SPECS["AllReduce"]).spec.strategy

    assert gossip.options == {"peers": 3, "topKPercent": 10}
    assert plain.options == {"schedule": "1F1B"}
    assert compressed.options == {"algorithm": "Ring", "compression": "BF16"}
    assert TrainingJob.parse(GOOD_SPECS["Tensor"]).spec.strategy.options == {}


def test_a_null_argument_is_no_argument() -> None:
    """`kubectl apply` drops it and `kubectl create` keeps it: the task must not see the difference."""
    job = good_job()
    job["spec"]["training"]["arguments"] = {"a": None, "b": {"c": None}, "d": [None]}

    assert TrainingJob.parse(job).spec.training.arguments == {"b": {}, "d": [None]}


@pytest.mark.parametrize(
    "name",
    ["four workers", "OneDevice", "AllReduce with its defaults", "FullySharded", "Mesh", "resume from a job", "spares"],
)
def test_supported_today(name: str) -> None:
    """Nothing is held back."""
    assert not_yet_supported(TrainingJob.parse(GOOD_SPECS[name]).spec) == ()


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("scheduling", "spec.scheduling.gang"),
    ],
)
def test_not_yet_supported(name: str, field: str) -> None:
    """It is told by field and cure. Remove the case when the feature lands."""
    refusals = not_yet_supported(TrainingJob.parse(GOOD_SPECS[name]).spec)

    assert field in [refusal.field for refusal in refusals]
    assert all("this version of Trainmaster does not have" in refusal.message for refusal in refusals)

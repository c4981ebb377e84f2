"""What `explain` says of a job."""

from dataclasses import replace
from typing import Any

import pytest
from trainmaster.advice.explanation import explain
from trainmaster.advice.model_facts import ModelFacts
from trainmaster.advice.textbook import TEXTBOOK, taxonomy
from trainmaster.advice.units import in_bytes, in_numbers, in_seconds

from tests.advice.samples import MIB, MODEL
from tests.builders import a_job


def told(strategy: dict[str, Any], workers: int = 4, model: ModelFacts | None = MODEL, **spec: Any) -> str:
    job = a_job().where(strategy=strategy, **spec).with_workers(workers).build()
    return "\n".join(line for _, lines in explain(job, model) for line in lines)


def test_the_taxonomy_of_the_textbooks_is_told() -> None:
    assert "data parallel, synchronous, decentralized" in told({"type": "AllReduce"})
    assert taxonomy("ParameterServer", {"update": "Async"}) == "data parallel, asynchronous, centralized"
    assert taxonomy("ParameterServer", {"update": "Sync"}) == "data parallel, synchronous, centralized"
    assert taxonomy("OneDevice", {}) == "not parallel"


def test_bytes_memory_and_failures_are_told_in_numbers() -> None:
    said = told({"type": "AllReduce"}, failurePolicy={"maxRestarts": 7}, checkpoint={"everySteps": 20})
    assert "Each step every rank sends 6 MiB and receives 6 MiB over the network: gradients, 2S(N-1)/N." in said
    assert "The model has 1.05 million parameters (4 MiB); its optimizer keeps 8 MiB more." in said
    assert (
        "Every rank: about 16 MiB (parameters 4 MiB, gradients 4 MiB, optimizer 8 MiB, activations 15.6 KiB)." in said
    )
    assert "A checkpoint (12 MiB) is written every 20 steps" in said
    assert "After 7 failures" in said


def test_whether_a_loss_changes_the_model_is_told_before() -> None:
    same, other = (
        "that of an undisturbed run, bit by bit, with as many ranks all the way.",
        "no two runs end in the same",
    )
    sync = {"type": "ParameterServer", "parameterServer": {"update": "Sync"}}
    for strategy in ({"type": "AllReduce", "compression": "TopK"}, {"type": "LocalSGD"}, {"type": "Mesh"}, sync):
        assert same in told(strategy), strategy
    assert other in told({"type": "Gossip"})
    assert other in told({"type": "ParameterServer"})
    assert "a worker that dies takes that along" in told({**sync, "compression": "TopK"})


def test_a_scripts_model_is_not_guessed() -> None:
    assert "no bytes are given" in told({"type": "AllReduce"}, model=None)


def test_where_a_scripts_progress_comes_from() -> None:
    command = ["python", "train.py"]
    said = told({"type": "AllReduce"}, model=None, training={"command": command})
    assert "the optimizer steps that torch takes in its ranks." in said
    assert "Its loss is known if it reports it." in said
    assert "Samples per second need training.globalBatchSize" in said
    said = told({"type": "AllReduce", "allReduce": {"algorithm": "Ring"}}, model=None, training={"command": command})
    assert "But spec.strategy.allReduce is for a task; how the processes of a command exchange" in said
    read = {"loss": "loss=([0-9.]+)", "total": "of ([0-9]+)"}
    said = told({"type": "AllReduce"}, model=None, training={"command": command, "progress": read})
    assert "Its loss is read from what it prints." in said
    assert "Of how many steps, it prints" in said


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        ({"type": "Pipeline"}, "each of which sees a micro-batch at a time"),
        ({"type": "Mesh", "mesh": {"pipeline": 4}}, "each of which sees a micro-batch at a time"),
        ({"type": "Mesh", "mesh": {"data": 4}}, "each of which sees its rank's share of a batch at a time"),
        ({"type": "AllReduce"}, "each of which sees its rank's share of a batch at a time"),
        ({"type": "Tensor"}, ""),
    ],
)
def test_what_a_batch_norm_sees_is_told_where_it_is_not_the_whole_batch(strategy: dict[str, Any], said: str) -> None:
    told_of = told(strategy, model=replace(MODEL, batch_norms=2))
    assert ("2 of its layers are BatchNorm, " in told_of) == bool(said)
    assert said in told_of
    assert "of its layers are BatchNorm" not in told(strategy)


def test_what_a_lost_pod_costs_where_no_other_has_copies_is_told() -> None:
    assert "LocalSGD has a part of the state that is each rank's own" in told({"type": "LocalSGD"})
    assert "a lost pod costs all ranks the steps since the newest checkpoint" in TEXTBOOK["AllReduce"].failure


def test_frozen_parameters_are_told_apart() -> None:
    said = told({"type": "AllReduce"}, model=replace(MODEL, trained_bytes=MIB))
    assert "The model has 1.05 million parameters to train (1 MiB) and frozen ones of 3 MiB; its optimizer" in said
    assert "(parameters 4 MiB, gradients 1 MiB," in said


def test_what_an_optimizer_keeps_is_not_guessed() -> None:
    said = told({"type": "AllReduce"}, model=replace(MODEL, optimizer_bytes=None))
    assert "(4 MiB); what its optimizer keeps is not known" in said
    assert "A checkpoint (4 MiB and what the optimizer keeps) is written" in said


def test_a_reproducible_job_is_told_what_it_costs() -> None:
    assert "sends 12 MiB and receives 12 MiB over the network: whole gradients" in told(
        {"type": "AllReduce"}, reproducible=True
    )


TASK = {"task": "pictures:Pictures", "steps": 9, "globalBatchSize": 8}


@pytest.mark.parametrize(
    ("training", "workers", "in_memory", "said"),
    [
        (
            {"dataWorkers": 3, "prefetch": 5},
            {},
            True,
            "3 data workers make each rank's batches ahead, 5 each: training",
        ),
        ({"dataWorkers": 1}, {}, False, "1 data worker makes each rank's batches ahead, 2 each: training.dataWorkers"),
        ({"dataWorkers": 0}, {"cpu": 8}, False, "itself, between two steps: training.dataWorkers is 0."),
        ({}, {"cpu": 8}, True, "itself, between two steps: its samples lie in memory"),
        ({}, {"cpu": 8}, False, "4 data workers make each rank's batches ahead, 2 each: its share of the 8 cores"),
        ({}, {"cpu": 2}, False, "1 data worker makes each rank's"),
        ({}, {"cpu": 8, "gpus": 8}, False, "the cores that are asked for leave none"),
        ({}, {}, False, "Data workers make each rank's batches ahead, 2 each: one for each core"),
    ],
)
def test_who_makes_the_samples_is_told_with_its_reason(
    training: dict[str, Any], workers: dict[str, Any], in_memory: bool, said: str
) -> None:
    model = replace(MODEL, samples_in_memory=in_memory)
    job = a_job().where(strategy={"type": "AllReduce"}, training={**TASK, **training}).with_workers(4, **workers)
    assert said in "\n".join(line for _, lines in explain(job.build(), model) for line in lines)


def test_a_stream_makes_its_own_promise() -> None:
    model = replace(MODEL, samples_are_a_stream=True)
    job = a_job().where(strategy={"type": "AllReduce"}, training=TASK).with_workers(4, cpu=8)
    said = "\n".join(line for _, lines in explain(job.build(), model) for line in lines)
    assert "is the dataset's promise" in said
    assert "One data worker makes each rank's batches ahead" in said


def test_roles_have_their_own_lines() -> None:
    said = told({"type": "ParameterServer"}, parameterServers={"replicas": 2, "memory": "8Gi"})
    assert "4 workers with 1 rank each (CPU only)." in said
    assert "2 parameter servers with 1 rank each (CPU only, memory 8Gi)." in said
    said = told({"type": "ParameterServer"}, parameterServers={"gpus": 2})
    assert "1 parameter server with 1 rank each (2 x nvidia.com/gpu)." in said, "whatever its devices"


def test_a_batch_that_does_not_divide_is_told_as_it_is_shared() -> None:
    assert "shared among the ranks; 21 or 22 each" in told({"type": "AllReduce"}, workers=3)


@pytest.mark.parametrize("strategy", sorted(TEXTBOOK))
def test_every_strategy_can_be_explained(strategy: str) -> None:
    options: dict[str, Any] = {"mesh": {"data": 2, "tensor": 2}} if strategy == "Mesh" else {}
    servers: dict[str, Any] = {"parameterServers": {"replicas": 1}} if strategy == "ParameterServer" else {}
    workers = 1 if strategy in ("OneDevice", "Mirrored", "CentralStorage") else 4
    said = told({"type": strategy, **options}, workers=workers, **servers)
    assert TEXTBOOK[strategy].title in said
    assert TEXTBOOK[strategy].failure in said


def test_units() -> None:
    assert [in_bytes(0), in_bytes(1536), in_bytes(3 * 2**40)] == ["0 B", "1.5 KiB", "3 TiB"]
    assert [in_numbers(999), in_numbers(120064)] == ["999", "120 thousand"]
    assert [in_seconds(0), in_seconds(0.0123), in_seconds(90)] == ["0 us", "12.3 ms", "1.5 min"]

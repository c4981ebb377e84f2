"""Tell who makes the samples of a task: data workers, how many and why, or the ranks themselves."""

from collections.abc import Iterator

from trainmaster.advice.model_facts import ModelFacts
from trainmaster.api.job import TrainingJob
from trainmaster.core.replica_environment import asked_cores
from trainmaster.wire import data_worker_defaults, names

_ITSELF = "Each rank makes its batches itself, between two steps"


def sample_notes(job: TrainingJob, model: ModelFacts | None) -> Iterator[str]:
    """Yield a sentence about a task's samples; nothing of a script's, which are its own affair."""
    training, ranks = job.spec.training, job.spec.ranks_each
    cores = asked_cores(job, names.WORKER)
    ahead = f"batches ahead, {training.prefetch or data_worker_defaults.PREFETCH} each"
    if training.command is not None:
        return
    if model is not None and model.samples_are_a_stream:
        yield (
            "Its samples are a stream: each rank reads all of them and keeps its share. That none is lost or repeated "
            "after a restart is the dataset's promise, by its state_dict or by giving the same again."
        )
    if training.data_workers is not None:
        of = "data worker makes" if training.data_workers == 1 else "data workers make"
        given = f"{training.data_workers} {of} each rank's {ahead}: training.dataWorkers says so."
        yield given if training.data_workers else f"{_ITSELF}: training.dataWorkers is 0."
    elif model is not None and model.samples_are_a_stream:
        yield f"One data worker makes each rank's {ahead}, where its cores allow it (training.dataWorkers)."
    elif model is not None and model.samples_in_memory:
        yield f"{_ITSELF}: its samples lie in memory, so data workers would win nothing (training.dataWorkers)."
    elif cores is None:
        yield (
            f"Data workers make each rank's {ahead}: one for each core that the rank has where it runs but for one, at "
            f"most {data_worker_defaults.MOST} (training.dataWorkers)."
        )
    elif count := data_worker_defaults.by_cores(cores, ranks):
        of = "data worker makes" if count == 1 else "data workers make"
        yield (
            f"{count} {of} each rank's {ahead}: its share of the {cores} cores that are asked for, but for one, at "
            f"most {data_worker_defaults.MOST} (training.dataWorkers)."
        )
    else:
        yield f"{_ITSELF}: the cores that are asked for leave none for a data worker (workers.cpu)."

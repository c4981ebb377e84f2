"""Explain in sentences what a job will do: processes, traffic, memory, failures."""

from collections.abc import Iterator

from trainmaster.advice import memory_needs, sample_notes, traffic
from trainmaster.advice.framework_words import WORDS
from trainmaster.advice.model_facts import GroupFacts, ModelFacts
from trainmaster.advice.textbook import TEXTBOOK, taxonomy
from trainmaster.advice.tracker_notes import tracker_notes
from trainmaster.advice.units import in_bytes, in_numbers
from trainmaster.api.for_tasks import unheard
from trainmaster.api.job import TrainingJob
from trainmaster.api.roles import ReplicaSpec
from trainmaster.api.supported import not_yet_supported
from trainmaster.wire import launchers, names, strategies, torchrun

Section = tuple[str, list[str]]

_BETWEEN_LAYERS = strategies.where(lambda traits: not traits.shares_batch)


def group_facts(job: TrainingJob) -> GroupFacts:
    """Return the numbers of a job's spec that the predictions need."""
    return GroupFacts(
        workers=job.spec.workers.replicas,
        ranks_per_worker=job.spec.ranks_each,
        servers=job.spec.servers,
        batch=job.spec.training.global_batch_size or 0,
        at_once=job.spec.training.micro_batch_size,
        reproducible=job.spec.reproducible,
    )


def explain(job: TrainingJob, model: ModelFacts | None) -> list[Section]:
    """Return title and lines of each section. `model` is None for a script, whose model cannot be measured."""
    return [
        ("Strategy", [*_strategy(job), *_batch_norms(job, model)]),
        ("Processes", list(_processes(job, model))),
        ("Who talks to whom", list(_traffic(job, model))),
        ("Memory for the model", list(_memory(job, model))),
        ("When something dies", list(_failure(job, model))),
        *([("How far it is", list(_progress(job)))] if job.spec.training.command else []),
        *([("Who is told", list(tracker_notes(job)))] if job.spec.training.trackers else []),
    ]


def _strategy(job: TrainingJob) -> Iterator[str]:
    strategy, framework = job.spec.strategy, job.spec.training.framework
    if framework in WORDS:
        yield f"{strategy.type}, as the script itself does it by {framework}."
        yield WORDS[framework].finds
        yield from (f"But {field} {why}." for field, why in unheard(job.spec))
        return
    row = TEXTBOOK[strategy.type]
    yield f"{strategy.type}: {row.title} ({taxonomy(strategy.type, strategy.options)}; {row.source})."
    yield row.holds
    yield from _numerics(job)
    chosen = ", ".join(f"{name}: {value}" for name, value in strategy.options.items() if value is not None)
    if chosen:
        yield f"Options: {chosen}."
    for refusal in not_yet_supported(job.spec):
        yield f"But {refusal.field}: {refusal.message}."
    for field, why in unheard(job.spec):
        yield f"But {field} {why}."


def _batch_norms(job: TrainingJob, model: ModelFacts | None) -> Iterator[str]:
    """Yield what layers that look at their whole batch see of it, where that is not all of it."""
    if model is None or not model.batch_norms:
        return
    kind, mesh, ranks = job.spec.strategy.type, job.spec.strategy.mesh, job.spec.worker_ranks
    shares = mesh.data * mesh.sharded if kind == "Mesh" and mesh else ranks
    if kind == "Pipeline" or (mesh and mesh.pipeline > 1):
        seen, cure = "a micro-batch", "give pipeline fewer microBatches or"
    elif job.spec.training.micro_batch_size is not None:
        seen, cure = "a micro-batch", "leave microBatchSize out or"
    elif kind not in _BETWEEN_LAYERS and shares > 1:
        seen, cure = "its rank's share of a batch", "give each rank more samples or"
    else:
        return
    yield (
        f"{model.batch_norms} of its layers are BatchNorm, each of which sees {seen} at a time: running means and "
        f"variances, which evaluations use, are not those of OneDevice. If that matters, {cure} take GroupNorm or "
        "LayerNorm."
    )


def _progress(job: TrainingJob) -> Iterator[str]:
    """Yield where the figures of a script's progress come from."""
    training = job.spec.training
    read = training.progress.expressions if training.progress else {}
    if "step" in read:
        yield "Steps are those that it prints (training.progress.step)."
    else:
        counted = "" if training.framework in WORDS else ", else the optimizer steps that torch takes in its ranks"
        yield f"Steps are those it reports (session.report){counted}."
    if training.framework not in WORDS:
        every = job.spec.checkpoint.every_steps
        last = "" if training.steps else ", which is the one that it reports as total"
        yield f"What it keeps (session.state) is saved every {every} steps and after the last one{last}."
    yield f"Its loss is {'read from what it prints' if 'loss' in read else 'known if it reports it'}."
    if training.steps is None:
        yield f"Of how many steps, {'it prints' if 'total' in read else 'is known if it reports it'}: ETA needs that."
    if training.global_batch_size is None:
        yield "Samples per second need training.globalBatchSize."


def _numerics(job: TrainingJob) -> Iterator[str]:
    training = job.spec.training
    if training.precision != "FP32":
        scale = ", with a loss scale" if training.precision == "FP16" else ""
        yield f"The model computes in {training.precision}{scale}; parameters, gradients and moments stay as they are."
    if training.micro_batch_size is not None:
        yield f"A rank computes its share of a batch in parts of about {training.micro_batch_size} samples."
    if training.max_gradient_norm is not None:
        yield f"A gradient longer than {training.max_gradient_norm:g} is shortened to that."


def _processes(job: TrainingJob, model: ModelFacts | None) -> Iterator[str]:
    spec, batch = job.spec, job.spec.training.global_batch_size
    yield _role("worker", spec.workers, spec.ranks_each)
    yield from sample_notes.sample_notes(job, model)
    if spec.spares:
        who = (
            "1 more worker stands by as a spare"
            if spec.spares == 1
            else f"{spec.spares} more workers stand by as spares"
        )
        yield f"{who}: warm, without ranks, and with all that a worker holds."
    if spec.servers:
        yield _role("parameter server", spec.roles[names.PARAMETER_SERVER], 1)
    yield from _launcher(job)
    yield "A replica is a pod on a cluster and an agent process here; its agent starts the ranks and watches them."
    if batch and spec.strategy.type in _BETWEEN_LAYERS:
        yield f"All ranks work together on each batch of {batch} samples."
    elif batch:
        mesh = job.spec.strategy.mesh
        shares = mesh.data * mesh.sharded if job.spec.strategy.type == "Mesh" and mesh else job.spec.worker_ranks
        small, rest = divmod(batch, shares)
        each = f"{small} or {small + 1}" if rest else str(small)
        yield f"Each batch of {batch} samples is shared among the ranks; {each} each."


def _launcher(job: TrainingJob) -> Iterator[str]:
    """Yield what becomes of a launcher in the command. One that no rank will carry out ends the job, and says why."""
    try:
        launch = launchers.launched(job.spec.training.command or ("",))
    except torchrun.CommandError:
        return
    if launch is None:
        return
    made = f"; what its options and its file set, {launch.launcher} itself sets in each rank" if launch.words else ""
    yield f"{launch.launcher} is not started: the agents do its work, with {job.spec.worker_ranks} ranks in all{made}."


def _role(word: str, replica: ReplicaSpec, each: int) -> str:
    device = f"{replica.gpus} x {replica.device_resource}" if replica.gpus else "CPU only"
    wants = [
        device,
        *(f"{name} {value}" for name, value in (("cpu", replica.cpu), ("memory", replica.memory)) if value),
    ]
    ranks = f"{each} ranks" if each > 1 else "1 rank"
    return f"{replica.replicas} {word}{'s' if replica.replicas > 1 else ''} with {ranks} each ({', '.join(wants)})."


def _traffic(job: TrainingJob, model: ModelFacts | None) -> Iterator[str]:
    strategy, words = job.spec.strategy, WORDS.get(job.spec.training.framework)
    yield words.talks if words else TEXTBOOK[strategy.type].talks
    if model is None:
        yield "A script's own affair: its model cannot be looked into, so no bytes are given."
        return
    found = traffic.flows(strategy.type, strategy.options, model, group_facts(job))
    for flow in found:
        way = "through the host's memory" if flow.through == "memory" else "over the network"
        sends, receives = in_bytes(flow.sends), in_bytes(flow.receives)
        yield f"Each step {flow.who} sends {sends} and receives {receives} {way}: {flow.why}."
    if model.boundary_bytes is None and strategy.type in _BETWEEN_LAYERS:
        yield "How much flows between layers is not known: the task does not say how its model is cut (model_layers)."
    elif not found:
        yield "No bytes travel."


def _memory(job: TrainingJob, model: ModelFacts | None) -> Iterator[str]:
    if model is None:
        yield "Unknown, as it is a script's."
        return
    strategy = job.spec.strategy
    optimizer = (
        "what its optimizer keeps is not known, since it takes no step with one gradient on a CPU"
        if model.optimizer_bytes is None
        else f"its optimizer keeps {in_bytes(model.optimizer_bytes)} more"
    )
    yield f"{_parameters(model)}; {optimizer}."
    for need in memory_needs.needs(strategy.type, strategy.options, model, group_facts(job)):
        parts = [("parameters", need.parameters), ("gradients", need.gradients), ("optimizer", need.optimizer)]
        parts += [("activations", need.activations)] if need.activations else []
        told = ", ".join(f"{name} {in_bytes(size)}" for name, size in parts if size)
        yield f"{need.who[0].upper()}{need.who[1:]}: about {in_bytes(need.total)} ({told})."


def _parameters(model: ModelFacts) -> str:
    said = f"The model has {in_numbers(model.parameters)} parameters"
    frozen = model.parameter_bytes - model.trained_bytes
    if not frozen:
        return f"{said} ({in_bytes(model.parameter_bytes)})"
    return f"{said} to train ({in_bytes(model.trained_bytes)}) and frozen ones of {in_bytes(frozen)}"


def _failure(job: TrainingJob, model: ModelFacts | None) -> Iterator[str]:
    checkpoint, policy = job.spec.checkpoint, job.spec.failure_policy
    words = WORDS.get(job.spec.training.framework)
    yield from (words.restart, words.decides) if words else (TEXTBOOK[job.spec.strategy.type].failure,)
    if job.spec.spares:
        yield "A worker whose pod or node is lost is not waited for: a spare takes its place; its next pod stands by."
    if model:
        yield _same_model(job)
    size = f" ({_checkpoint(model)})" if model else ""
    every, keep = checkpoint.every_steps, checkpoint.keep
    if words:
        yield f"Checkpoints are the script's own affair; $TRAINMASTER_CHECKPOINTS is a folder for them: {_place(job)}."
    else:
        yield f"A checkpoint{size} is written every {every} steps, {_place(job)}; {keep} are kept."
    yield (
        f"After {policy.max_restarts} failures of the training itself without progress the job fails; "
        "evictions and lost nodes do not count."
    )


def _same_model(job: TrainingJob) -> str:
    """Return, in a sentence, whether failures change the model at the end."""
    strategy = job.spec.strategy
    if "asynchronous" in taxonomy(strategy.type, strategy.options):
        return "The model at the end depends on who was there when: no two runs end in the same bits."
    if strategy.type == "ParameterServer" and strategy.compression != "None":
        return (
            f"Compression {strategy.compression}: a worker adds what it leaves out of a gradient to its next one, and "
            "a worker that dies takes that along. So the model at the end is not that of an undisturbed run, bit by "
            "bit."
        )
    same = "" if job.spec.reproducible else ", with as many ranks all the way"
    return f"Whatever is lost, the model at the end is that of an undisturbed run, bit by bit{same}."


def _checkpoint(model: ModelFacts) -> str:
    size = in_bytes(model.parameter_bytes + model.buffer_bytes + (model.optimizer_bytes or 0))
    return f"{size} and what the optimizer keeps" if model.optimizer_bytes is None else size


def _place(job: TrainingJob) -> str:
    storage = job.spec.checkpoint.storage
    if storage is None:
        return "into the pods on a cluster, into the run's folder here"
    if storage.path:
        return f"into {storage.path}"
    claim = storage.persistent_volume_claim
    return f"to the claim {claim.claim_name}" if claim else "to the storage that the job names"

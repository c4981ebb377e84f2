"""Recommend a strategy: predict each candidate by the cost model, and say whether distributing pays."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from trainmaster.advice import cost, memory_needs
from trainmaster.advice.cost import Candidate, Prediction
from trainmaster.advice.explanation import group_facts
from trainmaster.advice.model_facts import GroupFacts, MachineFacts, ModelFacts
from trainmaster.advice.units import in_bytes, in_seconds
from trainmaster.api.job import TrainingJob
from trainmaster.wire import strategies
from trainmaster.wire.measured import Exchange

# A smaller gain is within the errors of the cost model, and the simpler strategy is better.
WORTH = 1.15
# The strategies that compute the same numbers as one device; the fastest of them is recommended.
_SAME_NUMBERS = strategies.where(lambda traits: traits.advised)
_LATENCY_SECONDS = 100e-6  # of a message between machines of one data centre


@dataclass(frozen=True)
class Comparison:
    """Hold a prediction and the figures by which it is compared."""

    prediction: Prediction
    speedup: float  # samples per second over those of one device
    memory: float  # bytes of the biggest process


def over_network(machine: MachineFacts, bytes_per_second: float, ranks: int) -> MachineFacts:
    """Return the same devices, but each in a machine of its own, linked by a network of this bandwidth."""
    sizes = (4 << 10, 64 << 20)
    exchange = tuple(Exchange(size, _LATENCY_SECONDS + size / bytes_per_second) for size in sizes)
    return replace(machine, devices=max(ranks, machine.devices), exchange=exchange)


def compare(job: TrainingJob, model: ModelFacts, machine: MachineFacts) -> list[Comparison]:
    """Return the predictions of all candidates: one device first, then the fastest first."""
    one_device = Candidate("OneDevice", {}, replace(group_facts(job), workers=1, ranks_per_worker=1, servers=0))
    alone = cost.predict(one_device, model, machine)
    others = [cost.predict(candidate, model, machine) for candidate in _candidates(job, model, machine)]
    others.sort(key=lambda prediction: prediction.samples_per_second, reverse=True)
    return [_comparison(prediction, alone, model) for prediction in (alone, *others)]


def _comparison(prediction: Prediction, alone: Prediction, model: ModelFacts) -> Comparison:
    candidate = prediction.candidate
    needs = memory_needs.needs(candidate.strategy, candidate.options, model, candidate.group)
    gain = prediction.samples_per_second / alone.samples_per_second
    return Comparison(prediction, gain, max(need.total for need in needs))


def _candidates(job: TrainingJob, model: ModelFacts, machine: MachineFacts) -> Iterator[Candidate]:
    """Yield the job's own choice, and the usual strategies on all devices of the machine."""
    own = group_facts(job)
    chosen = job.spec.strategy
    if chosen.type != "OneDevice":
        yield Candidate(chosen.type, chosen.options, own)
    devices = min(machine.devices, own.batch)
    if devices < 2:  # noqa: PLR2004 (nothing to distribute over)
        return
    many = GroupFacts(devices, 1, 0, own.batch)
    usual = [
        Candidate("AllReduce", {"algorithm": "Native"}, many),
        Candidate("LocalSGD", {"every": 8}, many),
        Candidate("FullySharded", {}, many),
        Candidate("ParameterServer", {"update": "Async"}, replace(many, servers=1)),
        Candidate("Gossip", {"peers": 1}, many),
    ]
    if model.layers >= devices:
        usual.append(Candidate("Pipeline", {"schedule": "1F1B"}, many))
    yield from (candidate for candidate in usual if (candidate.strategy, candidate.group) != (chosen.type, own))


def conclusion(comparisons: list[Comparison], memory_bytes: float | None) -> str:
    """Return, in sentences, whether distributing pays and which strategy to take."""
    alone, rest = comparisons[0], comparisons[1:]
    fits = memory_bytes is None or alone.memory <= memory_bytes
    if not fits:
        sharded = next((comparison for comparison in rest if comparison.memory <= (memory_bytes or 0)), None)
        need = f"One device would need {in_bytes(alone.memory)} and has {in_bytes(memory_bytes or 0)}."
        if sharded is None:
            return f"{need} No strategy on these devices fits either: use more devices."
        return f"{need} Take {_name(sharded)}: {in_bytes(sharded.memory)} for each."
    same = [comparison for comparison in rest if comparison.prediction.candidate.strategy in _SAME_NUMBERS]
    best = max(same, key=lambda comparison: comparison.speedup, default=None)
    if best is None or best.speedup < WORTH:
        return _stay(best)
    return (
        f"Distributing pays: {_name(best)} should train {best.speedup:.2f} times as fast as one device, "
        "with the same loss at every step."
    )


def _stay(best: Comparison | None) -> str:
    if best is None:
        return "There is one device only: take OneDevice."
    prediction = best.prediction
    step, talking = in_seconds(prediction.step_seconds), in_seconds(prediction.exchange)
    return (
        f"Distributing does not pay here: of a step of {step}, {_name(best)} would spend {talking} on talking "
        f"({best.speedup:.2f} times one device). Take OneDevice, a larger globalBatchSize, or a faster link."
    )


def _name(comparison: Comparison) -> str:
    candidate = comparison.prediction.candidate
    return f"{candidate.strategy} with {candidate.group.ranks} ranks"

"""Predict seconds per step and samples per second of a strategy on a machine that was measured.

    step = compute(share) * crowding * idle + exchange(bytes)

- compute(n) = fixed + n * per sample: the line through the measured steps of one device (`Timing`).
- crowding = ranks / devices where ranks outnumber the devices of this machine, else 1.
- exchange(b) = latency + b / bandwidth: the line through the measured all-reduces of two ranks, for the bytes of the
  busiest rank (traffic.py); what an all-reduce of two ranks sends is its size.
- FullySharded exchanges layer by layer, with work around each of them: sharding(b) is the line through what it added
  to a layer of b bytes between two ranks, as often as the model has layers and a share of the batch has parts.
- idle = 1 + (p-1)/m for p pipeline stages and m micro-batches, the bubble; all wait for the slowest stage, whose share
  of the computation is measured layer by layer.
- Asynchronous strategies do not wait for the slowest: their rates add up.

The model has no overlap of communication and computation: a strategy that overlaps them does better than predicted.
`bench/advise.py` compares the predictions with measurements.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainmaster.advice import traffic
from trainmaster.advice.model_facts import GroupFacts, MachineFacts, ModelFacts
from trainmaster.wire.measured import Exchange


@dataclass(frozen=True)
class CostLine:
    """A line is y = fixed + slope * x; neither number is negative."""

    fixed: float
    slope: float

    def at(self, x: float) -> float:
        """Return the value at x."""
        return self.fixed + self.slope * x


@dataclass(frozen=True)
class Candidate:
    """A candidate is a strategy with its options for a group, of which the cost is predicted."""

    strategy: str
    options: Mapping[str, Any]
    group: GroupFacts


@dataclass(frozen=True)
class Prediction:
    """Hold the seconds of one step of the global batch, split into computation and exchange."""

    candidate: Candidate
    compute: float
    exchange: float

    @property
    def step_seconds(self) -> float:
        """Return the seconds of one step."""
        return self.compute + self.exchange

    @property
    def samples_per_second(self) -> float:
        """Return the samples per second of the whole group."""
        return self.candidate.group.batch / self.step_seconds


def line_through(points: list[tuple[float, float]]) -> CostLine:
    """Return the least-squares line with fixed and slope at least 0; it goes through the origin if all x are equal."""
    count = len(points)
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    if spread == 0:
        return CostLine(0.0, mean_y / mean_x if mean_x else 0.0)
    slope = max(0.0, sum((x - mean_x) * (y - mean_y) for x, y in points) / spread)
    fixed = mean_y - slope * mean_x
    if fixed < 0:
        return CostLine(0.0, sum(x * y for x, y in points) / sum(x * x for x, _ in points))
    return CostLine(fixed, slope)


def compute_line(machine: MachineFacts) -> CostLine:
    """Return the line of a step's seconds over its samples, on one device."""
    return line_through([(timing.samples, timing.seconds) for timing in machine.compute])


def exchange_line(machine: MachineFacts) -> CostLine:
    """Return the line of an exchange's seconds over the bytes that a rank sends."""
    return _line(machine.exchange)


def _line(exchanges: Sequence[Exchange]) -> CostLine:
    return line_through([(exchange.size, exchange.seconds) for exchange in exchanges])


def predict(candidate: Candidate, model: ModelFacts, machine: MachineFacts) -> Prediction:
    """Return what the cost model predicts for one candidate."""
    line, ranks = compute_line(machine), candidate.group.ranks
    staged = candidate.strategy == "Pipeline"
    seconds = _pipeline(candidate, line, machine) if staged else line.at(candidate.group.batch / ranks)
    crowding = max(1.0, ranks / machine.devices)
    compute = seconds * crowding
    if candidate.strategy == "FullySharded" and machine.sharding:
        # Of N ranks each sends (N-1)/N of a layer; the measured two sent 1/2.
        layer = model.parameter_bytes / model.layers * 2 * (ranks - 1) / ranks
        times = candidate.group.parts(ranks) * model.layers
        return Prediction(candidate, compute, times * _line(machine.sharding).at(layer) * crowding)
    flows = traffic.flows(candidate.strategy, candidate.options, model, candidate.group)
    link = exchange_line(machine)
    sent = max((flow.sends for flow in flows), default=0.0)
    return Prediction(candidate, compute, link.at(sent) if flows else 0.0)


def _pipeline(candidate: Candidate, line: CostLine, machine: MachineFacts) -> float:
    stages = candidate.group.ranks
    parts = int(candidate.options.get("microBatches") or min(4 * stages, candidate.group.batch))
    measured = machine.slowest_stage[stages - 1 : stages]
    each = line.at(candidate.group.batch / parts) * (measured[0] if measured else 1 / stages)
    return each * (parts + stages - 1)

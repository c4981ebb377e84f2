"""Compute how many bytes each strategy sends at every step, in theory.

S is the size of a gradient, which frozen parameters have no part in, P that of all parameters, N the number of ranks. A
ring all-reduce sends and receives 2S(N-1)/N at every rank (Patarasuk and Yuan, 2009), a driver 2(N-1)S in all;
`tests/trainer` counts that the strategies do. What a compression saves is counted; cost.py adds latency.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainmaster.advice.facts import GroupFacts, ModelFacts

Options = Mapping[str, Any]

# The share of the bytes that is sent. That of PowerSGD depends on the shapes; this is the order of its default.
COMPRESSED = {"None": 1.0, "BF16": 0.5, "INT8": 0.25, "PowerSGD": 0.05, "TopK": 0.02}
_TOP_K = "TopK"
_PLACE = 2.0  # bytes of a number's place over those of the number, in Gossip: 8 / 4


@dataclass(frozen=True)
class Flow:
    """Hold the bytes that one kind of rank sends and receives at every step.

    `through`: network, or memory of the host.
    """

    who: str
    sends: float
    receives: float
    why: str
    through: str = "network"


Algorithm = Callable[[float, GroupFacts], tuple[Flow, ...]]


def flows(strategy_type: str, options: Options, model: ModelFacts, group: GroupFacts) -> tuple[Flow, ...]:
    """Return the traffic of one step; empty if no rank sends anything."""
    if group.reproducible:
        return _reproducible(model, group)
    return _FLOWS[strategy_type](options, model, group)


def _compressed(size: float, options: Options) -> float:
    return size * COMPRESSED[str(options.get("compression", "None"))]


def _ring(size: float, ranks: int) -> float:
    return 2 * size * (ranks - 1) / ranks


def _where(group: GroupFacts) -> str:
    return "memory" if group.workers == 1 else "network"


def _nothing(_options: Options, _model: ModelFacts, _group: GroupFacts) -> tuple[Flow, ...]:
    return ()


def _mirrored(options: Options, model: ModelFacts, group: GroupFacts) -> tuple[Flow, ...]:
    return _data_parallel(_of_every_device, options, model, group)


def _all_reduce(options: Options, model: ModelFacts, group: GroupFacts) -> tuple[Flow, ...]:
    return _data_parallel(_ALGORITHMS[str(options.get("algorithm", "Native"))], options, model, group)


def _data_parallel(algorithm: Algorithm, options: Options, model: ModelFacts, group: GroupFacts) -> tuple[Flow, ...]:
    if group.ranks == 1:
        return ()
    size = _compressed(model.trained_bytes, options)
    return (_by_all_to_all if options.get("compression") == _TOP_K else algorithm)(size, group)


def _by_all_to_all(size: float, group: GroupFacts) -> tuple[Flow, ...]:
    each = (group.ranks - 1) * size
    return (Flow("every rank", each, each, "its largest numbers and their places, to every other", _where(group)),)


def subtrees(ranks: int) -> int:
    """Return how many whole subtrees of the eight virtual ranks a real rank sends (`strategies/virtual_ranks.py`)."""
    return 2 if ranks == 3 else 1  # noqa: PLR2004 (its parts are 3, 3 and 2, of which 3 is no whole subtree)


def _reproducible(model: ModelFacts, group: GroupFacts) -> tuple[Flow, ...]:
    if group.ranks == 1:
        return ()
    each = subtrees(group.ranks) * (group.ranks - 1) * float(model.trained_bytes)
    return (Flow("every rank", each, each, "whole gradients, to be added up in one order", _where(group)),)


def _of_every_device(size: float, group: GroupFacts) -> tuple[Flow, ...]:
    each = _ring(size, group.ranks)
    return (Flow("every device", each, each, "gradients, 2S(N-1)/N", "memory"),)


def _by_ring(size: float, group: GroupFacts) -> tuple[Flow, ...]:
    each = _ring(size, group.ranks)
    return (Flow("every rank", each, each, "gradients, 2S(N-1)/N", _where(group)),)


def _by_driver(size: float, group: GroupFacts) -> tuple[Flow, ...]:
    all_others = (group.ranks - 1) * size
    return (
        Flow("rank 0, the driver", all_others, all_others, "gradients, 2(N-1)S both ways together", _where(group)),
        Flow("every other rank", size, size, "its gradients, and the sum", _where(group)),
    )


def _by_hierarchy(size: float, group: GroupFacts) -> tuple[Flow, ...]:
    between = _ring(size, group.workers)
    inside = size * (group.ranks_per_worker - 1)
    found = [Flow("the first rank of a worker", between, between, "sums of whole workers, 2S(W-1)/W")]
    if inside:
        found.append(Flow("inside a worker", inside, inside, "gradients up, the sum down", "memory"))
    return tuple(found) if group.workers > 1 else tuple(found[1:])


_ALGORITHMS: dict[str, Algorithm] = {
    "Native": _by_ring,
    "Ring": _by_ring,
    "Driver": _by_driver,
    "Hierarchical": _by_hierarchy,
}


def _central(_options: Options, model: ModelFacts, _group: GroupFacts) -> tuple[Flow, ...]:
    sends, receives = float(model.trained_bytes), float(model.parameter_bytes)
    return (Flow("every device", sends, receives, "gradients in, parameters out", "memory"),)


def _servers(options: Options, model: ModelFacts, group: GroupFacts) -> tuple[Flow, ...]:
    # Frozen parameters have a place in a flat gradient.
    pushed, pulled = _compressed(model.parameter_bytes, options), float(model.parameter_bytes)
    share = group.ranks / max(1, group.servers)
    return (
        Flow("every worker", pushed, pulled, "gradients pushed, parameters pulled"),
        Flow("every server", pulled * share, pushed * share, f"its shard with {group.ranks} workers"),
    )


def _gossip(options: Options, model: ModelFacts, _group: GroupFacts) -> tuple[Flow, ...]:
    """Return the traffic of Gossip: a worker asks `peers` others, and as many ask it.

    With topKPercent a request names the places of its numbers, the answer does not.
    """
    percent = options.get("topKPercent")
    part = model.parameter_bytes * float(percent or 100) / 100
    asked = part * (1 + _PLACE if percent else 1)
    each = (asked + part) * int(options.get("peers", 1))
    return (Flow("every worker", each, each, "its model to a random peer, and an answer to who asks it"),)


def _local(options: Options, model: ModelFacts, group: GroupFacts) -> tuple[Flow, ...]:
    every = int(options.get("every", 8))
    each = _ring(_compressed(model.parameter_bytes, options), group.ranks) / every
    return (Flow("every rank", each, each, f"the model at every {every}th step", _where(group)),)


def _sharded(_options: Options, model: ModelFacts, group: GroupFacts) -> tuple[Flow, ...]:
    parts = group.parts(group.ranks)
    each = _spread(model, 2 * parts, parts) * (group.ranks - 1) / group.ranks
    why = "layers gathered twice, gradients scattered: (2P+S)(N-1)/N"
    return (Flow("every rank", each, each, f"{why}, {parts} times" if parts > 1 else why, _where(group)),)


def _spread(model: ModelFacts, gathers: int, scatters: int) -> float:
    return float(gathers * model.parameter_bytes + scatters * model.trained_bytes)


def _pipeline(_options: Options, model: ModelFacts, group: GroupFacts) -> tuple[Flow, ...]:
    if model.boundary_bytes is None:
        return ()
    each = float(group.batch * model.boundary_bytes)
    return (Flow("every inner stage", 2 * each, 2 * each, "activations on, their gradients back", _where(group)),)


def _tensor(_options: Options, model: ModelFacts, group: GroupFacts) -> tuple[Flow, ...]:
    # Two all-reduces of activations in each block's forward pass, two in its backward pass (Shoeybi et al., 2019).
    crossings = 4 * max(1, model.layers - 2)
    if model.boundary_bytes is None:
        return ()
    each = _ring(crossings * group.batch * model.boundary_bytes, group.ranks)
    return (Flow("every rank", each, each, "about: activations of each block, 4 all-reduces", _where(group)),)


def _mesh(options: Options, model: ModelFacts, group: GroupFacts) -> tuple[Flow, ...]:
    data, sharded, pipeline, tensor = (int(options.get(axis, 1)) for axis in ("data", "sharded", "pipeline", "tensor"))
    split = pipeline * tensor
    batch = group.batch / (data * sharded)
    small = GroupFacts(1, 1, 0, int(batch))
    found: list[Flow] = []
    if data > 1:
        each = _ring(model.trained_bytes / (split * sharded), data)
        found.append(Flow(f"along data ({data})", each, each, "gradients of this rank's part", _where(group)))
    if sharded > 1:
        parts = group.parts(data * sharded)
        # A stage keeps its layers from a backward pass to the next forward pass, and its gradients to the last one.
        counts = (min(4 * pipeline, max(1, int(batch))) + 1, 1) if pipeline > 1 else (2 * parts, parts)
        each = _spread(model, *counts) / split * (sharded - 1) / sharded
        found.append(Flow(f"along sharded ({sharded})", each, each, "layers and gradients", _where(group)))
    if pipeline > 1:
        who = f"along pipeline ({pipeline})"
        found += [replace(flow, who=who, through=_where(group)) for flow in _pipeline({}, model, small)]
    if tensor > 1:
        for flow in _tensor({}, model, GroupFacts(1, tensor, 0, int(batch))):
            each = flow.sends / pipeline
            found.append(Flow(f"along tensor ({tensor})", each, each, flow.why, _where(group)))
    return tuple(found)


_FLOWS: dict[str, Callable[[Options, ModelFacts, GroupFacts], tuple[Flow, ...]]] = {
    "OneDevice": _nothing,
    "Mirrored": _mirrored,
    "AllReduce": _all_reduce,
    "CentralStorage": _central,
    "ParameterServer": _servers,
    "Gossip": _gossip,
    "LocalSGD": _local,
    "FullySharded": _sharded,
    "Pipeline": _pipeline,
    "Tensor": _tensor,
    "Mesh": _mesh,
}

"""Describe Mesh: the words of the textbooks, its costs, its picture, and the formulas of both."""

from dataclasses import replace

from trainmaster.advice.formulas import Division, Flow, Need, Options, medium, need, ring
from trainmaster.advice.model_facts import GroupFacts, ModelFacts
from trainmaster.advice.pages import pipeline, tensor
from trainmaster.advice.pages.fully_sharded import spread
from trainmaster.advice.pages.strategy_page import BOTH, COPIES, DECENTRALIZED, GROUP, SYNCHRONOUS, StrategyPage


def _flows(options: Options, model: ModelFacts, group: GroupFacts) -> tuple[Flow, ...]:
    data, sharded, stages, slices = (int(options.get(axis, 1)) for axis in ("data", "sharded", "pipeline", "tensor"))
    split = stages * slices
    batch = group.batch / (data * sharded)
    small = GroupFacts(1, 1, 0, int(batch))
    found: list[Flow] = []
    if data > 1:
        each = ring(model.trained_bytes / (split * sharded), data)
        found.append(Flow(f"along data ({data})", each, each, "gradients of this rank's part", medium(group)))
    if sharded > 1:
        parts = group.parts(data * sharded)
        # A stage keeps its layers from a backward pass to the next forward pass, and its gradients to the last one.
        counts = (min(4 * stages, max(1, int(batch))) + 1, 1) if stages > 1 else (2 * parts, parts)
        each = spread(model, *counts) / split * (sharded - 1) / sharded
        found.append(Flow(f"along sharded ({sharded})", each, each, "layers and gradients", medium(group)))
    if stages > 1:
        who = f"along pipeline ({stages})"
        found += [replace(flow, who=who, through=medium(group)) for flow in pipeline.PAGE.flows({}, model, small)]
    if slices > 1:
        for flow in tensor.PAGE.flows({}, model, GroupFacts(1, slices, 0, int(batch))):
            each = flow.sends / stages
            found.append(Flow(f"along tensor ({slices})", each, each, flow.why, medium(group)))
    return tuple(found)


def _needs(options: Options, model: ModelFacts, group: GroupFacts) -> tuple[Need, ...]:
    data, sharded, *inside = (int(options.get(axis, 1)) for axis in ("data", "sharded", "pipeline", "tensor"))
    parts = inside[0] * inside[1]
    return (need("every rank", model, group, Division(sharded * parts, sharded * parts, data * sharded, parts)),)


PAGE = StrategyPage(
    title="Several kinds of parallelism at once",
    parallel=BOTH,
    timing=SYNCHRONOUS,
    centre=DECENTRALIZED,
    holds="Ranks stand in a grid; along each of its axes the model or the batch is divided in another way. With "
    "pipeline, a layer that looks at its whole batch, such as BatchNorm, sees one micro-batch at a time.",
    talks="Ranks of one row or column: what that axis needs.",
    take="The model is so large that one kind of parallelism alone does not carry it.",
    leave="One kind is enough.",
    failure=GROUP + COPIES,
    source="Narayanan et al., SC 2021",
    yaml="{type: Mesh, mesh: {data: 2, sharded: 1, pipeline: 2, tensor: 2}}",
    traffic="what each axis costs, of the part of the model that it divides",
    memory="1/(sharded x pipeline x tensor) of the model on every rank",
    picture="""\
flowchart LR
    subgraph "copy 1 (data)"
        a0["stage 0, slice 0"] <-- tensor --> a1["stage 0, slice 1"]
        b0["stage 1, slice 0"] <-- tensor --> b1["stage 1, slice 1"]
        a0 -- pipeline --> b0
        a1 -- pipeline --> b1
    end
    subgraph "copy 2 (data)"
        c["the same again"]
    end
    a0 <-- "gradients" --> c""",
    flows=_flows,
    needs=_needs,
)

"""Describe FullySharded: the words of the textbooks, its costs, its picture, and the formulas of both."""

from trainmaster.advice.formulas import Division, Flow, Need, Options, medium, need
from trainmaster.advice.model_facts import GroupFacts, ModelFacts
from trainmaster.advice.pages.strategy_page import COPIES, DATA, DECENTRALIZED, GROUP, SYNCHRONOUS, StrategyPage


def _flows(_options: Options, model: ModelFacts, group: GroupFacts) -> tuple[Flow, ...]:
    parts = group.parts(group.ranks)
    each = spread(model, 2 * parts, parts) * (group.ranks - 1) / group.ranks
    why = "layers gathered twice, gradients scattered: (2P+S)(N-1)/N"
    return (Flow("every rank", each, each, f"{why}, {parts} times" if parts > 1 else why, medium(group)),)


def spread(model: ModelFacts, gathers: int, scatters: int) -> float:
    """Return the bytes of so many gathers and scatters of the whole model."""
    return float(gathers * model.parameter_bytes + scatters * model.trained_bytes)


def _needs(_options: Options, model: ModelFacts, group: GroupFacts) -> tuple[Need, ...]:
    return (need("every rank", model, group, Division(group.ranks, group.ranks, shares=group.ranks)),)


PAGE = StrategyPage(
    title="Fully sharded data parallelism",
    parallel=DATA,
    timing=SYNCHRONOUS,
    centre=DECENTRALIZED,
    holds="Every rank keeps 1/N of parameters, gradients and optimizer, and gathers a layer when it computes it.",
    talks="All ranks: each layer is gathered forward and backward, and its gradients are scattered.",
    take="The model with its optimizer does not fit one device, and links are good.",
    leave="It fits: AllReduce moves a third less. Or samples decide which parameters are used (experts).",
    failure=GROUP + COPIES,
    source="Rajbhandari et al., ZeRO, SC 2020; Zhao et al., FSDP, VLDB 2023",
    yaml="{type: FullySharded}",
    traffic="each rank sends and receives 3S(N-1)/N at every step, with microBatchSize for each part of its share",
    memory="1/N of model, gradients and optimizer on every rank, and one whole layer at a time",
    picture="""\
flowchart LR
    r0["rank 0: 1/3 of each layer"] & r1["rank 1: 1/3"] & r2["rank 2: 1/3"]
    r0 & r1 & r2 -- "gather a layer when it is needed" --> layer["whole layer, on each rank, for a moment"]
    layer -- "scatter its gradients" --> r0 & r1 & r2""",
    flows=_flows,
    needs=_needs,
)

"""Describe LocalSGD: the words of the textbooks, its costs, its picture, and the formulas of both."""

from trainmaster.advice.formulas import Flow, Options, compressed, medium, ring
from trainmaster.advice.model_facts import GroupFacts, ModelFacts
from trainmaster.advice.pages.strategy_page import DATA, DECENTRALIZED, GROUP, OWN, SYNCHRONOUS, WHOLE, StrategyPage


def _flows(options: Options, model: ModelFacts, group: GroupFacts) -> tuple[Flow, ...]:
    every = int(options.get("every", 8))
    each = ring(compressed(model.parameter_bytes, options), group.ranks) / every
    return (Flow("every rank", each, each, f"the model at every {every}th step", medium(group)),)


PAGE = StrategyPage(
    title="Local SGD (DiLoCo)",
    parallel=DATA,
    timing=SYNCHRONOUS,
    centre=DECENTRALIZED,
    holds="Every rank trains a whole model alone for some steps, then all meet at the average.",
    talks="All ranks, but only at every meeting.",
    take="Links are thin: traffic falls by the number of steps between meetings.",
    leave="Links are good: AllReduce has the same loss as one device.",
    failure=f"{GROUP} LocalSGD {OWN}",
    source="Stich, ICLR 2019; Douillard et al., DiLoCo, 2023",
    yaml="{type: LocalSGD, localSGD: {every: 8, outer: Nesterov}}",
    traffic="each rank sends and receives 2P(N-1)/N at every Hth step (every: H), 1/H of AllReduce's",
    memory=f"{WHOLE} rank, and the last meeting point",
    picture="""\
flowchart LR
    subgraph "H steps alone"
        r0["rank 0: own model"]
        r1["rank 1: own model"]
    end
    r0 & r1 -- "after H steps" --> mean(("average, outer step")) --> r0 & r1""",
    flows=_flows,
)

"""Describe Mirrored: the words of the textbooks, its costs, its picture, and the formulas of both."""

from trainmaster.advice.formulas import Flow, Options, data_parallel, ring
from trainmaster.advice.model_facts import GroupFacts, ModelFacts
from trainmaster.advice.pages.strategy_page import DATA, DECENTRALIZED, GROUP, SYNCHRONOUS, WHOLE, StrategyPage


def _flows(options: Options, model: ModelFacts, group: GroupFacts) -> tuple[Flow, ...]:
    return data_parallel(_of_every_device, options, model, group)


def _of_every_device(size: float, group: GroupFacts) -> tuple[Flow, ...]:
    each = ring(size, group.ranks)
    return (Flow("every device", each, each, "gradients, 2S(N-1)/N", "memory"),)


PAGE = StrategyPage(
    title="Mirrored variables on the devices of one machine",
    parallel=DATA,
    timing=SYNCHRONOUS,
    centre=DECENTRALIZED,
    holds="Every device of one machine holds the whole model and takes its share of every batch.",
    talks="The devices add up their gradients at every step; nothing leaves the machine.",
    take="Several devices in one machine, and the model fits each.",
    leave="One machine is not enough: AllReduce does the same over many.",
    failure=GROUP,
    source="Abadi et al., TensorFlow, OSDI 2016",
    yaml="{type: Mirrored, mirrored: {reduction: Native}}",
    traffic="each device sends and receives 2S(N-1)/N at every step, inside the machine",
    memory=f"{WHOLE} device",
    picture="""\
flowchart LR
    subgraph machine
        d0["device 0: model, share 1"] <--> sum(("sum in memory"))
        d1["device 1: model, share 2"] <--> sum
        d2["device 2: model, share 3"] <--> sum
    end""",
    flows=_flows,
)

"""Describe CentralStorage: the words of the textbooks, its costs, its picture, and the formulas of both."""

from trainmaster.advice.formulas import Division, Flow, Need, Options, need
from trainmaster.advice.model_facts import GroupFacts, ModelFacts
from trainmaster.advice.pages.strategy_page import CENTRALIZED, DATA, GROUP, SYNCHRONOUS, StrategyPage


def _flows(_options: Options, model: ModelFacts, _group: GroupFacts) -> tuple[Flow, ...]:
    sends, receives = float(model.trained_bytes), float(model.parameter_bytes)
    return (Flow("every device", sends, receives, "gradients in, parameters out", "memory"),)


def _needs(_options: Options, model: ModelFacts, group: GroupFacts) -> tuple[Need, ...]:
    held = Need("the CPU, once", model.parameter_bytes, model.trained_bytes, model.optimizer_bytes, 0)
    return (held, need("every device", model, group, Division(optimizer=0, shares=group.ranks)))


PAGE = StrategyPage(
    title="Central storage, mirrored compute",
    parallel=DATA,
    timing=SYNCHRONOUS,
    centre=CENTRALIZED,
    holds="One copy of parameters and optimizer on the CPU; every device computes its share of the batch.",
    talks="Devices read the parameters and hand in gradients, which are added up in the order of ranks.",
    take="Parameters and optimizer are large beside what devices have, or sums must be in one order.",
    leave="Devices are fast and the CPU's update is what they wait for: Mirrored.",
    failure=GROUP,
    source="Abadi et al., TensorFlow, OSDI 2016",
    yaml="{type: CentralStorage}",
    traffic="each device reads P and hands in S at every step, inside the machine",
    memory="parameters and optimizer once; gradients on every device, and the parameters where it is a GPU",
    picture="""\
flowchart TB
    store[("CPU: parameters and optimizer, once")]
    store -- parameters --> d0["device 0: share 1"] & d1["device 1: share 2"]
    d0 & d1 -- gradients --> store""",
    flows=_flows,
    needs=_needs,
)

"""Describe Tensor: the words of the textbooks, its costs, its picture, and the formulas of both."""

from trainmaster.advice.formulas import Flow, Options, medium, on_every_part, ring
from trainmaster.advice.model_facts import GroupFacts, ModelFacts
from trainmaster.advice.pages.strategy_page import COPIES, DECENTRALIZED, GROUP, MODEL, SYNCHRONOUS, StrategyPage


def _flows(_options: Options, model: ModelFacts, group: GroupFacts) -> tuple[Flow, ...]:
    # Two all-reduces of activations in each block's forward pass, two in its backward pass (Shoeybi et al., 2019).
    crossings = 4 * max(1, model.layers - 2)
    if model.boundary_bytes is None:
        return ()
    each = ring(crossings * group.batch * model.boundary_bytes, group.ranks)
    return (Flow("every rank", each, each, "about: activations of each block, 4 all-reduces", medium(group)),)


PAGE = StrategyPage(
    title="Tensor (horizontal model) parallelism",
    parallel=MODEL,
    timing=SYNCHRONOUS,
    centre=DECENTRALIZED,
    holds="Every rank holds a slice of each layer, and all compute every layer together.",
    talks="All ranks, inside every layer, forward and backward.",
    take="Single layers are too large or too slow for one device, and devices are very well linked.",
    leave="Ranks are on different machines with ordinary links.",
    failure=GROUP + COPIES,
    source="Shoeybi et al., Megatron-LM, 2019",
    yaml="{type: Tensor}",
    traffic="each rank sends and receives about 4A(N-1)/N at every step for each pair of layers",
    memory="1/N of the layers that the task's tensor_plan names, and all of the others, on every rank",
    picture="""\
flowchart TB
    batch[(batch)] --> r0["rank 0: left half of every layer"] & r1["rank 1: right half of every layer"]
    r0 <-- "sum in every layer" --> r1""",
    flows=_flows,
    needs=on_every_part,
)

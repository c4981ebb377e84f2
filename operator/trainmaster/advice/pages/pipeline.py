"""Describe Pipeline: the words of the textbooks, its costs, its picture, and the formulas of both."""

from trainmaster.advice.formulas import Flow, Options, medium, on_every_part
from trainmaster.advice.model_facts import GroupFacts, ModelFacts
from trainmaster.advice.pages.strategy_page import COPIES, DECENTRALIZED, GROUP, MODEL, SYNCHRONOUS, StrategyPage


def _flows(_options: Options, model: ModelFacts, group: GroupFacts) -> tuple[Flow, ...]:
    if model.boundary_bytes is None:
        return ()
    each = float(group.batch * model.boundary_bytes)
    return (Flow("every inner stage", 2 * each, 2 * each, "activations on, their gradients back", medium(group)),)


PAGE = StrategyPage(
    title="Pipeline (vertical model) parallelism",
    parallel=MODEL,
    timing=SYNCHRONOUS,
    centre=DECENTRALIZED,
    holds="Every rank holds some consecutive layers, a stage with about as many parameters as the others; a batch "
    "flows through in micro-batches. A layer that looks at its whole batch, such as BatchNorm, sees one micro-batch at "
    "a time: its running means and variances are not those of OneDevice, and evaluations use them.",
    talks="Neighbouring stages: activations forward, their gradients backward.",
    take="The model does not fit one device and links are thin: only activations travel.",
    leave="There are few micro-batches for many stages: stages idle (p-1)/(m+p-1) of the time.",
    failure=GROUP + COPIES,
    source="Huang et al., GPipe, NeurIPS 2019; Narayanan et al., PipeDream, SOSP 2019",
    yaml="{type: Pipeline, pipeline: {schedule: 1F1B, microBatches: 16}}",
    traffic="A forwards and A backwards between two stages at every step; p stages are idle for (p-1)/(m+p-1) of the "
    "time with m micro-batches",
    memory="the layers of its stage on every rank, about 1/N of the parameters",
    picture="""\
flowchart LR
    batch[(batch)] -- "micro-batches" --> s0["stage 0: first layers"]
    s0 -- activations --> s1["stage 1: next layers"] -- activations --> s2["stage 2: last layers, loss"]
    s2 -- gradients --> s1 -- gradients --> s0""",
    flows=_flows,
    needs=on_every_part,
)

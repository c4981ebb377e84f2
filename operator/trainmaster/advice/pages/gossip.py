"""Describe Gossip: the words of the textbooks, its costs, its picture, and the formulas of both."""

from trainmaster.advice.formulas import Flow, Options
from trainmaster.advice.model_facts import GroupFacts, ModelFacts
from trainmaster.advice.pages.strategy_page import ALONE, ASYNCHRONOUS, DATA, DECENTRALIZED, WHOLE, StrategyPage

_PLACE = 2.0  # bytes of a number's place over those of the number: 8 / 4


def _flows(options: Options, model: ModelFacts, _group: GroupFacts) -> tuple[Flow, ...]:
    """Return the traffic of Gossip: a worker asks `peers` others, and as many ask it.

    With topKPercent a request names the places of its numbers, the answer does not.
    """
    percent = options.get("topKPercent")
    part = model.parameter_bytes * float(percent or 100) / 100
    asked = part * (1 + _PLACE if percent else 1)
    each = (asked + part) * int(options.get("peers", 1))
    return (Flow("every worker", each, each, "its model to a random peer, and an answer to who asks it"),)


PAGE = StrategyPage(
    title="Gossip averaging",
    parallel=DATA,
    timing=ASYNCHRONOUS,
    centre=DECENTRALIZED,
    holds="Every worker holds a model of its own, trains it, and averages it with random others.",
    talks="Pairs of workers, at random; there is no centre and nobody waits for all.",
    take="Links or workers are unequal or unreliable and there must be no single point of failure.",
    leave="The same numbers as one device are needed: models agree only nearly.",
    failure=ALONE + " It takes over the model of a peer.",
    source="Lian et al., AD-PSGD, ICML 2018",
    yaml="{type: Gossip, gossip: {peers: 1, topKPercent: 10}}",
    traffic="each worker sends P to each of its partners of a step and receives theirs, and about as often is a "
    "partner itself: 2P; with topKPercent that share, and of it the places too: 4 times that share of P",
    memory=f"{WHOLE} worker",
    picture="""\
flowchart LR
    w0["worker 0: own model"] <-- "average, now" --> w2["worker 2: own model"]
    w1["worker 1: own model"] <-- "average, now" --> w3["worker 3: own model"]
    w0 -. "another time" .- w3""",
    flows=_flows,
)

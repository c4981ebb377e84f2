"""Compute how many bytes each strategy sends at every step, in theory.

S is the size of a gradient, which frozen parameters have no part in, P that of all parameters, N the number of ranks. A
ring all-reduce sends and receives 2S(N-1)/N at every rank (Patarasuk and Yuan, 2009), a driver 2(N-1)S in all;
`tests/trainer` counts that the strategies do. What a compression saves is counted; cost.py adds latency.
"""

from trainmaster.advice.formulas import Flow, Options, medium
from trainmaster.advice.model_facts import GroupFacts, ModelFacts
from trainmaster.advice.textbook import TEXTBOOK


def flows(strategy_type: str, options: Options, model: ModelFacts, group: GroupFacts) -> tuple[Flow, ...]:
    """Return the traffic of one step; empty if no rank sends anything."""
    if group.reproducible:
        if group.ranks == 1:
            return ()
        each = subtrees(group.ranks) * (group.ranks - 1) * float(model.trained_bytes)
        return (Flow("every rank", each, each, "whole gradients, to be added up in one order", medium(group)),)
    return TEXTBOOK[strategy_type].flows(options, model, group)


def subtrees(ranks: int) -> int:
    """Return how many whole subtrees of the eight virtual ranks a real rank sends (`strategies/virtual_ranks.py`)."""
    return 2 if ranks == 3 else 1  # noqa: PLR2004 (its parts are 3, 3 and 2, of which 3 is no whole subtree)

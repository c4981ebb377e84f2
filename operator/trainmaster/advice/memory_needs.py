"""Compute how much memory each kind of process needs for the model: parameters, gradients, optimizer, activations."""

from trainmaster.advice.formulas import Need, Options
from trainmaster.advice.model_facts import GroupFacts, ModelFacts
from trainmaster.advice.textbook import TEXTBOOK


def needs(strategy_type: str, options: Options, model: ModelFacts, group: GroupFacts) -> tuple[Need, ...]:
    """Return the memory that each kind of process needs."""
    return TEXTBOOK[strategy_type].needs(options, model, group)

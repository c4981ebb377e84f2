"""Find the page of each strategy of the table; `trainmaster explain` and docs/strategies.md are made of them."""

from importlib import import_module

from trainmaster.advice.pages.strategy_page import StrategyPage
from trainmaster.wire.strategies import STRATEGIES, module_of

TEXTBOOK: dict[str, StrategyPage] = {
    name: import_module(f"{__package__}.pages.{module_of(name)}").PAGE for name in STRATEGIES
}


def taxonomy(strategy_type: str, options: dict[str, object]) -> str:
    """Return the taxonomy of a strategy with these options."""
    return TEXTBOOK[strategy_type].with_options(options).taxonomy

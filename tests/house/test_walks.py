"""How many functions a reader follows, from where checkpoints are saved and read and where a job is decided: bounds."""

import pytest
from trainmaster.api.generate import ROOT
from trainmaster.core.decide import RULES

from tests.house.walks import Walks

CHECKPOINT = "trainmaster_trainer.checkpoint"
MOST = {"resume.resume": 15, "save.Saver.save": 54, "load.newest": 39}
MOST_WITH_A_FOLDER = {"resume.resume": 98, "save.Saver.save": 92}
FOLDER = tuple(f"{CHECKPOINT}.stores.{name}." for name in ("folder", "own", "replica_memory"))

DECIDE = "trainmaster.core.decide.decide"
MOST_OF_DECIDE, MOST_WITH_REGIMES, MOST_WITH_RULES = 122, 178, 353
REGIMES = "trainmaster.core.regime."


@pytest.fixture(scope="module")
def walks() -> Walks:
    return Walks(ROOT, "trainer/trainmaster_trainer/checkpoint", "operator/trainmaster/core")


def test_a_reader_follows_few_functions_through_checkpoints(walks: Walks) -> None:
    """With a folder: likewise, and on through the stores' protocol to a folder of checkpoints, and to memory."""
    found = {name: len(walks.from_(f"{CHECKPOINT}.{name}")) for name in MOST}
    with_a_folder = {
        name: len(walks.from_(f"{CHECKPOINT}.{name}", reaches=lambda one: one.startswith(FOLDER)))
        for name in MOST_WITH_A_FOLDER
    }
    assert {name: count for name, count in found.items() if count > MOST[name]} == {}
    assert {name: count for name, count in with_a_folder.items() if count > MOST_WITH_A_FOLDER[name]} == {}
    assert min(found.values()) > 10, "the walks are not found any more"


def test_a_reader_follows_few_functions_through_a_decision(walks: Walks) -> None:
    """The rules stand in a table, which a walk does not follow: each is counted from itself, and all of them last."""
    plain = walks.from_(DECIDE)
    with_regimes = walks.from_(DECIDE, reaches=lambda one: one.startswith(REGIMES))
    rules = [f"{rule.__module__}.{rule.__name__}" for rule in RULES]
    of_rules = (walks.from_(rule, reaches=lambda one: one.startswith(REGIMES)) for rule in rules)
    with_rules = with_regimes.union(*of_rules)
    assert len(plain) <= MOST_OF_DECIDE
    assert len(with_regimes) <= MOST_WITH_REGIMES
    assert len(with_rules) <= MOST_WITH_RULES
    assert len(plain) > 50, "the walk is not found any more"

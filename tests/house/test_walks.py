"""How many functions a reader follows, from where checkpoints are saved and read: bounds that hold what was reached."""

from trainmaster.api.generate import ROOT

from tests.house.walks import Walks

CHECKPOINT = "trainmaster_trainer.checkpoint"
MOST = {"resume.resume": 67, "save.Saver.save": 56, "load.newest": 50}
MOST_WITH_A_FOLDER = {"resume.resume": 160, "save.Saver.save": 123}
FOLDER = tuple(f"{CHECKPOINT}.stores.{name}." for name in ("folder", "own", "replica_memory"))


def test_a_reader_follows_few_functions_through_checkpoints() -> None:
    """With a folder: likewise, and on through the stores' protocol to a folder of checkpoints, and to memory."""
    walks = Walks(ROOT, "trainer/trainmaster_trainer/checkpoint")
    found = {name: len(walks.from_(f"{CHECKPOINT}.{name}")) for name in MOST}
    with_a_folder = {
        name: len(walks.from_(f"{CHECKPOINT}.{name}", reaches=lambda one: one.startswith(FOLDER)))
        for name in MOST_WITH_A_FOLDER
    }
    assert {name: count for name, count in found.items() if count > MOST[name]} == {}
    assert {name: count for name, count in with_a_folder.items() if count > MOST_WITH_A_FOLDER[name]} == {}
    assert min(found.values()) > 20, "the walks are not found any more"

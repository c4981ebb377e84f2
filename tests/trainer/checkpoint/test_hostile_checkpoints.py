"""Checkpoints that no version of ours writes are passed over or refused, at a bounded cost.

What is there beside a good one (lineage, lines, a job's status) keeps nobody from it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from trainmaster_trainer.checkpoint import layout, load
from trainmaster_trainer.checkpoint.layout import saved_steps
from trainmaster_trainer.checkpoint.load import newest_step
from trainmaster_trainer.errors import ConfigurationError

from tests.trainer import hostile_checkpoints
from tests.trainer.hostile_checkpoints import AROUND, MANIFESTS, READERS, WAYS, make_good

MOST_MEMORY = 256 << 10  # kilobytes
ROOT = Path(__file__).parents[3]
# All is right in these, as they are signed: they hold another model, and that is an error that the user is told.
OTHER_MODELS = ("many empty pieces", "many pieces", "many tensors", "no shards")
# Only training looks at the scalars; a folder without a manifest is one that a run has just deleted.
UNREAD = ("many scalars", "many groups", "scalars of other kinds", "folders", "nested")
BAD_STATUS = {way for way in AROUND if way.startswith("status: ")} - {"status: hundreds of restarts"}
Told = dict[str, dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    path = os.pathsep.join(str(ROOT / name) for name in (".", "operator", "trainer"))
    ended = subprocess.run(
        [sys.executable, hostile_checkpoints.__file__, tmp_path_factory.mktemp("hostile"), *WAYS],
        env={**os.environ, "PYTHONPATH": path},
        check=True,
        stdout=subprocess.PIPE,
    )
    found: Told = json.loads(ended.stdout)
    return found


def outcome(way: str) -> str:
    """Return how what training says must begin."""
    if way in OTHER_MODELS:
        return "ConfigurationError: spec.checkpoint: "
    if way == "copies":
        return "ConfigurationError: spec.checkpoint.storage: "
    return "step 6" if way in AROUND or way == "folders" else "step 4"


@pytest.mark.parametrize("way", WAYS)
def test_a_hostile_checkpoint_has_an_end(told: Told, way: str) -> None:
    assert {name: one["kilobytes"] for name, one in told[way].items() if one["kilobytes"] >= MOST_MEMORY} == {}
    said = {name: one["said"] for name, one in told[way].items()}
    assert said.keys() == READERS.keys(), said
    assert said["training"].startswith(outcome(way))
    assert said["audit"][:2] in ("0:", "1:", "2:")
    assert said["explain"][:2] == ("2:" if way in BAD_STATUS else "0:")
    assert not any("Traceback" in one or "\x1b" in one for one in said.values())


def test_audit_names_each_bad_manifest(told: Told) -> None:
    silent = {way for way in MANIFESTS if "is no good checkpoint" not in told[way]["audit"]["said"]}
    assert silent == {*OTHER_MODELS, *UNREAD}


def test_there_is_an_end_of_bad_manifests_that_are_glanced_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_good(tmp_path)
    folder = tmp_path / "checkpoints"
    for step in (7, 8, 9):
        layout.step_folder(folder, step).mkdir()
        (layout.step_folder(folder, step) / layout.MANIFEST).touch()
    assert newest_step(folder) == 6
    monkeypatch.setattr(load, "MOST_GLANCED", 2)
    with pytest.raises(ConfigurationError, match="more bad checkpoints"):
        newest_step(folder)


def test_a_folder_of_more_entries_than_are_looked_at_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_good(tmp_path)
    monkeypatch.setattr(layout, "MOST_ENTRIES", 3)
    assert saved_steps(tmp_path / "checkpoints") == [6, 4]
    (tmp_path / "checkpoints" / "another").touch()
    with pytest.raises(ConfigurationError, match="more than 3 entries"):
        saved_steps(tmp_path / "checkpoints")

"""The files of an attempt, where something else lies already."""

from __future__ import annotations

from pathlib import Path

from trainmaster.wire import names
from trainmaster.wire.progress_page import ProgressFile, ProgressPage
from trainmaster_trainer.agent import agent_settings
from trainmaster_trainer.agent.attempt_files import Files
from trainmaster_trainer.agent.status_collector import rank_progress

from tests.trainer.agent.test_settings import COMPLETE


def test_what_is_in_the_way_of_an_attempt_is_removed(tmp_path: Path) -> None:
    """Folders where files belong, a file where a framework has its folder, a link to something that is not ours."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "kept").touch()
    files = Files(agent_settings.read({**COMPLETE, names.ENV_SCRATCH: str(tmp_path)}))
    files.begin(1, range(1), b"{}")
    place = files.roster.parent.with_name("attempt-2")
    (place / "rank-0.progress" / "deep").mkdir(parents=True)
    (place / "roster.json").mkdir()
    (place / "framework-0").touch()
    (place / "framework-1").symlink_to(tmp_path / "theirs")
    files.begin(2, range(1), b"{}")
    assert files.roster.read_bytes() == b"{}"
    assert files.progress(0).is_file()
    assert not [*place.glob("framework-*")]
    assert (tmp_path / "theirs" / "kept").exists()


def test_a_start_begins_when_ranks_were_to_run_and_not_when_there_was_a_warm_parent(tmp_path: Path) -> None:
    files = Files(agent_settings.read({**COMPLETE, names.ENV_SCRATCH: str(tmp_path)}))
    for waited in (5.0, 0.0):
        files.begin(1, range(1), b"{}", waited=waited)
        page = ProgressFile(str(files.progress(0)))
        page.write(ProgressPage(step=1, updated=1.0))
        assert rank_progress(files.read_pages(1, 0), {})[0].start_seconds is None
        page.write(ProgressPage(step=2, updated=1.0, start_seconds=2.0))
        assert rank_progress(files.read_pages(1, 0), {})[0].start_seconds == 2.0 + waited

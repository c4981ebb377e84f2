"""The folder for snapshots in memory: where it lies, and when there is none."""

from __future__ import annotations

import uuid
from pathlib import Path

from trainmaster.wire import names
from trainmaster_trainer.agent import agent_settings, memory_folder

from tests.trainer.agent.test_settings import COMPLETE


def test_an_agent_whose_run_was_killed_and_cleared_makes_its_scratch_folder_no_more() -> None:
    """Nobody would ever clear it: it has no lock."""
    scratch = Path("/dev/shm") / f"trainmaster-{uuid.uuid4().hex}"  # noqa: S108 where scratch folders are
    variables = {**COMPLETE, names.ENV_SCRATCH: str(scratch / "worker-0"), names.ENV_PARENT_PID: "1"}
    assert memory_folder.make(agent_settings.read(variables)) is None
    assert not scratch.exists()

"""How long a follower is waited for after the end: as long as it comes further, within bounds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from trainmaster_trainer.agent.followers import is_stuck
from trainmaster_trainer.agent.own_program import program_of


@pytest.mark.parametrize(
    ("worked", "now", "stuck"),
    [
        (0.0, 124.0, False),
        (0.0, 125.0, True),  # it has come no further since the end, at 100
        (120.0, 125.0, False),
        (120.0, 145.0, True),
        (149.0, 149.9, False),
        (149.0, 150.0, True),  # whatever it does
    ],
)
def test_one_that_comes_further_is_waited_for_longer(worked: float, now: float, stuck: bool) -> None:
    assert is_stuck(100.0, worked, now) is stuck


def test_a_follower_says_that_it_comes_further(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "attempt": 1, "time": 1.0, "loss": 0.5}\n')
    subject = {"tracker": "tensorBoard", "options": {}, "folder": str(tmp_path), "job": "lab/digits", "uid": "u"}
    (tmp_path / "subject").write_text(json.dumps({**subject, "parameters": {}, "is_script": False}))
    follower = subprocess.run(
        [sys.executable, "-c", program_of("trainmaster_trainer.trackers.follower"), str(tmp_path / "subject")],
        input='{"end": "finished"}\n',
        capture_output=True,
        text=True,
        check=True,
    )
    assert '{"works": true}' in follower.stdout.splitlines()

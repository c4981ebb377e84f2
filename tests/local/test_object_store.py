"""An object store that is away when ranks must restart."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.local.command import Command, a_job, kill
from tests.trainer.s3 import BUCKET, KEYS, Proxy, server


def test_a_store_that_is_away_at_a_restart_is_waited_for(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is weather, not an error of the task, and no reason to begin anew."""
    (tmp_path / "s3").mkdir()
    command.make_gate()
    with server(tmp_path / "s3") as port, Proxy(port) as proxy:
        store = {"url": f"s3://{BUCKET}/jobs", "endpoint": f"http://127.0.0.1:{proxy.port}"}
        checkpoint = {"everySteps": 10, "memoryEverySteps": 0, "storage": {"objectStore": store}}
        for name, value in KEYS.items():
            monkeypatch.setenv(name, value)
        command.start(a_job(arguments={"hold_at": 25}, checkpoint=checkpoint))
        command.until_step(24)
        while not [*(tmp_path / "s3").rglob("step-00000020*/manifest.json")]:
            time.sleep(0.01)  # a folder has no bell
        proxy.cut_after = 0
        kill(command.rank_pid(1), signal.SIGKILL)
        command.until(lambda line: "StorageError" in line.get("event", {}).get("message", ""))
        proxy.cut_after = None
        command.open_gate()
        assert command.end() == 0
    killed, *away = command.status["restarts"]
    assert killed["class"] == "Signal"
    assert {line["class"] for line in away} == {"ServiceUnavailable"}
    assert "Resuming from step 20" in (command.workdir / "logs" / "small-worker-0-0.log").read_text()

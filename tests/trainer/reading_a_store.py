"""Read a hostile store in a process of its own, which tells how each way ended and how much memory it needed.

python reading_a_store.py ENDPOINT FOLDER WAY...
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

from trainmaster.wire.training import TrainingPlan
from trainmaster_trainer.checkpoint import object_reader, segments
from trainmaster_trainer.checkpoint.lineage import Lineage
from trainmaster_trainer.checkpoint.lineage import read as read_lineage
from trainmaster_trainer.checkpoint.remote import Remote
from trainmaster_trainer.settings import Settings

from tests.trainer.finding import find_remote
from tests.trainer.hostile_store import BUCKET, RETRIED, WAITING

SAVED = "step-00000001.attempt-1-restart-0"
object_reader.MOST_LISTED = 5000


def main(endpoint: str, folder: Path, *ways: str) -> None:
    begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    told = {}
    for way in ways:
        object_reader.SECONDS = 0.3 if way in WAITING else 2.0 if way in RETRIED else 20.0
        told[way] = read(Remote(f"s3://{BUCKET}/{way}", endpoint), endpoint, folder, way)
    json.dump([told, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - begun], sys.stdout)  # kilobytes


def read(remote: Remote, endpoint: str, folder: Path, way: str) -> dict[str, str]:
    plan = TrainingPlan("OneDevice", checkpoint_url=f"s3://{BUCKET}/{way}", checkpoint_endpoint=endpoint)
    settings = Settings(plan, folder / way, job_uid="uid")
    settings.checkpoints.mkdir()
    told = {
        "listing": outcome(remote.listing),
        "last saved": outcome(remote.last_saved),
        "folders": outcome(remote.folders),
        "get": outcome(lambda: len(remote.get("attempt.json", 1 << 16) or b"") <= 1 << 16),
        "lineage": outcome(lambda: read_lineage(folder, "uid", remote)),
        "lines": outcome(lambda: segments.read(remote, SAVED)),
        "shard": outcome(lambda: copy(remote, folder / "shard")),
        "resume": outcome(lambda: find_remote(remote, settings, {}, Lineage())),
    }
    return told | {"left": str([path.name for path in settings.checkpoints.iterdir()])}


def outcome(read: Callable[[], object]) -> str:
    try:
        text = f"{read()}"
    except Exception as error:  # noqa: BLE001 (which one it is, is what is told)
        text = f"{type(error).__name__}: {error}"
    return text[:200]


def copy(remote: Remote, path: Path) -> bool:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        return remote.copy(f"{SAVED}/shard", descriptor, 0, 40 << 20)
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])

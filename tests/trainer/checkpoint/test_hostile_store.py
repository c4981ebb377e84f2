"""A store that answers without end, with other lengths than it says, or never, is refused: in time, and in memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from trainmaster_trainer.checkpoint import segments
from trainmaster_trainer.checkpoint.remote import Remote

from tests.trainer import reading_a_store
from tests.trainer.hostile_store import WAYS, HostileStore
from tests.trainer.s3 import KEYS

MOST_MEMORY = 256 << 10  # kilobytes
ROOT = Path(__file__).parents[3]
REFUSED = ("StorageError: ", "ConfigurationError: ", "OSError: [Errno 27]", "CorruptCheckpointError: ")
NOTHING = ("Lineage(resumed={})", "Lines(step=0, segments=(), last='')", "[]", "0.0", "StoreListing(saved=[],", "None")
READ = ("True", "False")  # what was asked for and no more, whatever it is; or less
LISTED = ("StoreListing(saved=[SavedCheckpoint(step=1,", "1767225600.0")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, dict[str, str]], int]:
    """What one process said of each way, and the memory that it needed for all of them."""
    path = os.pathsep.join(str(ROOT / name) for name in (".", "operator", "trainer"))
    command = [sys.executable, reading_a_store.__file__]
    with HostileStore() as store:
        ended = subprocess.run(
            [*command, store.url, tmp_path_factory.mktemp("hostile"), *WAYS],
            env={**os.environ, **KEYS, "PYTHONPATH": path},
            check=True,
            stdout=subprocess.PIPE,
        )
    ways, memory = json.loads(ended.stdout)
    return ways, memory


@pytest.mark.parametrize("way", WAYS)
def test_a_hostile_store_is_refused(told: tuple[dict[str, dict[str, str]], int], way: str) -> None:
    outcomes = told[0][way]
    allowed = (*REFUSED, *NOTHING, *READ, *(LISTED if way == "listed" else ()))
    assert {what: text for what, text in outcomes.items() if not text.startswith(allowed)} == {}
    assert outcomes["left"] == "[]"
    if way == "listed":
        assert outcomes["listing"].startswith(LISTED)
        assert "step-00000001.attempt-1-restart-0" in outcomes["resume"]
    elif way.endswith("pages"):
        assert outcomes["listing"].startswith("ConfigurationError: " if way == "full_pages" else "StorageError: ")


def test_no_hostile_store_costs_much_memory(told: tuple[dict[str, dict[str, str]], int]) -> None:
    assert told[1] < MOST_MEMORY


SEGMENT = b'"00000001-00000002.0123abcd.attempt-1-restart-0.jsonl"'
INDICES = {
    "deep": b"[" * 100_000,
    "infinite": b'{"step": 1e999, "segments": [], "last": ""}',
    "path": b'{"step": 1, "segments": [[1, "../../manifest.json", 5]], "last": ""}',
    "negative": b'{"step": 1, "segments": [[1, %s, -5]], "last": ""}' % SEGMENT,
    "float": b'{"step": 1, "segments": [[1, %s, 1e30]], "last": ""}' % SEGMENT,
    "huge": b'{"step": 1, "segments": [[1, %s, 99999999999]], "last": ""}' % SEGMENT,
    "twice": b'{"step": 1, "segments": [[1, %s, 5], [1, %s, 5]], "last": ""}' % (SEGMENT, SEGMENT),
    "words": b'{"step": true, "segments": [[1, 2]], "last": ""}',
    "long": b"[" + b"[]," * (1 << 20) + b"1]",
}


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_an_index_that_none_of_ours_wrote_names_no_lines(tmp_path: Path, index: bytes) -> None:
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / segments.INDEX).write_bytes(index)
    assert segments.read(Remote(f"file://{tmp_path}", None), "saved") == segments.Lines()

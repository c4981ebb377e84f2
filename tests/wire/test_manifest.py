"""A manifest that others made is refused before its numbers cost anything."""

import dataclasses
import json
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trainmaster.wire.manifest import (
    MAX_MANIFEST,
    Cursor,
    Manifest,
    ShardRecord,
    TensorRecord,
    glance,
    model_sha256,
    read_manifest,
)
from trainmaster.wire.read_errors import CorruptCheckpointError

from tests.wire.manifests import signed

HASH = "0" * 64
WEIGHT = TensorRecord("float32", (2, 3), (0, 0), HASH)
SHARD = ShardRecord("shard-00000-of-00001.0123abcd.safetensors", 100, HASH, {"model/w": WEIGHT})
GOOD = Manifest(
    4, 1, 1, "AllReduce", Cursor(4, 16, 4, 1), 1.5, model_sha256([SHARD]), (SHARD,), {"a": [1, {"b": None}]}
)


def write(folder: Path, text: bytes) -> Path:
    path = folder / "step-00000004"
    path.mkdir(exist_ok=True)
    (path / "manifest.json").write_bytes(text)
    return path


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    """A changed manifest with the right digest."""
    plain = json.loads(GOOD.encode())
    change(plain)
    return signed(plain)


def of_tensor(**changes: object) -> bytes:
    return changed(lambda plain: plain["shards"][0]["tensors"]["model/w"].update(changes))


HOSTILE: dict[str, Callable[[], bytes]] = {
    "deep": lambda: b"[" * 200_000,
    "deep objects": lambda: b'{"a":' * 200_000,
    "empty lists": lambda: b'{"digest":"x","a":[' + b"[]," * (10 << 20) + b"1]}",
    "numbers": lambda: b"[" + b"1," * (16 << 20) + b"1]",
    "infinite": lambda: GOOD.encode().replace(b'"time": 1.5', b'"time": 1e999'),
    "no number": lambda: GOOD.encode().replace(b'"time": 1.5', b'"time": NaN'),
    "digits": lambda: GOOD.encode().replace(b'"samples": 16', b'"samples": ' + b"9" * 4000),
    "wide letters": lambda: GOOD.encode().replace(b"AllReduce", "🙂".encode()),
    "digest": lambda: GOOD.encode().replace(b'"seed": 1', b'"seed": 2'),
    "other letters": lambda: GOOD.encode().replace(b'"time": 1.5', b'"time": 1.50'),
    "two digests": lambda: GOOD.encode().replace(b'\n "digest": "', b'\n "digest": "",\n "digest": "'),
    "another format": lambda: changed(lambda plain: plain.update(format=4)),
    "twice": lambda: GOOD.encode()[:-1] + b', "step": 4}',
    "shards": lambda: changed(lambda plain: plain.update(shards=plain["shards"] * 50_000)),
    "shard twice": lambda: changed(lambda plain: plain.update(shards=plain["shards"] * 2)),
    "rank": lambda: changed(lambda plain: plain.update(world_size=10**12)),
    "no rank": lambda: changed(lambda plain: plain.update(world_size=0)),
    "negative": lambda: changed(lambda plain: plain["cursor"].update(samples=-1)),
    "wide": lambda: of_tensor(shape=[1] * 100_000, offset=[0] * 100_000),
    "huge": lambda: of_tensor(shape=[1 << 40, 1 << 40]),
    "truth": lambda: of_tensor(shape=[True, 3]),
    "far": lambda: of_tensor(offset=[1 << 62, 0]),
    "dtype": lambda: of_tensor(dtype="load"),
    "no dtype": lambda: of_tensor(dtype=["float32"]),
    "hash": lambda: of_tensor(sha256=5),
    "no shards": lambda: changed(lambda plain: plain.update(shards=[])),
    "other model": lambda: of_tensor(shape=[3, 2]),
    "length": lambda: changed(lambda plain: plain["shards"][0].update(length=1 << 63)),
    "other digits": lambda: changed(
        lambda plain: plain["shards"][0].update(file=f"shard-{chr(0x660) * 5}-of-00001.0123abcd.safetensors")
    ),
}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert dataclasses.replace(read_manifest(write(tmp_path, GOOD.encode()), 4), digest="") == GOOD


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_manifest_is_refused(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, HOSTILE[name]())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CorruptCheckpointError, match="format 4" if name == "another format" else None):
        read_manifest(path, 4)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 << 10


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir])
def test_what_is_no_file_is_no_manifest(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = write(tmp_path, b"")
    (path / "manifest.json").unlink()
    make(path / "manifest.json")
    with pytest.raises(CorruptCheckpointError, match="cannot be read"):
        read_manifest(path, 4)
    assert glance(path, 4) is None


def test_a_hole_of_a_terabyte_is_not_read(tmp_path: Path) -> None:
    path = write(tmp_path, b"")
    os.truncate(path / "manifest.json", 1 << 40)
    with pytest.raises(CorruptCheckpointError, match="more than"):
        read_manifest(path, 4)


def test_what_could_not_be_read_again_is_not_written() -> None:
    tensors = {f"model/{number}": WEIGHT for number in range(MAX_MANIFEST // 200)}
    with pytest.raises(ValueError, match="can be read"):
        dataclasses.replace(GOOD, shards=(dataclasses.replace(SHARD, tensors=tensors),)).encode()


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 62), 1 << 62) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=20,
)


@given(PLAIN, st.binary(max_size=30), st.integers(0, 3000))
def test_any_change_of_a_signed_manifest_is_refused_or_read(
    tmp_path_factory: Any, value: Any, junk: bytes, at: int
) -> None:
    """Whatever it says, there is no other error."""
    folder = tmp_path_factory.mktemp("fuzz")
    keys = sorted(json.loads(GOOD.encode()))
    texts = [changed(lambda plain: plain.update({keys[at % len(keys)]: value}))]
    text = GOOD.encode()
    texts.append(text[: at % len(text)] + junk + text[at % len(text) :])
    for one in texts:
        try:
            read_manifest(write(folder, one), 4)
        except CorruptCheckpointError:
            continue

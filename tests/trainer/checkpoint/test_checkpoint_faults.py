"""A table of ways in which a checkpoint can be bad: each is found, named, and passed over for the one before.

torch.load gave wrong weights without a word for every single-bit flip that was tried; nothing here may.
"""

import hashlib
import io
import json
import logging
import os
import pickle
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from trainmaster_trainer.checkpoint.load import newest, read
from trainmaster_trainer.checkpoint.manifest_check import FORMAT
from trainmaster_trainer.checkpoint.reading import CorruptCheckpointError
from trainmaster_trainer.checkpoint.state import first_difference
from trainmaster_trainer.errors import ConfigurationError

from tests.trainer.ranks import Forker, Options, make_job
from tests.wire.manifests import signed

Change = Callable[[Options], None]  # of a manifest
Harm = Callable[[Path], Any]
SHARD_0, SHARD_1 = (rf"shard-0000{rank}-of-00002\.[0-9a-f]{{8}}\.safetensors" for rank in range(2))
NAME = "shard-00000-of-00002.0123abcd.safetensors"  # what a shard may be called
BIAS = "model/0.bias"
SHAPES = {
    "model/0.weight": ("float32", (8, 3)),
    "model/0.bias": ("float32", (8,)),
    "model/2.weight": ("float32", (1, 8)),
    "model/2.bias": ("float32", (1,)),
}


@pytest.fixture
def last(folder: Path) -> Path:
    return folder / "step-00000006"


def shard(path: Path, rank: int) -> Path:
    """Return the file of a rank."""
    (found,) = path.glob(f"shard-0000{rank}-*")
    return found


def rewrite_manifest(path: Path, change: Change) -> None:
    """Change a manifest as somebody would who knows about the digest."""
    manifest = json.loads((path / "manifest.json").read_text())
    change(manifest)
    (path / "manifest.json").write_bytes(signed(manifest))


def rewrite_shard(path: Path, content: bytes) -> None:
    """Replace a shard, and make the manifest agree with it."""
    shard(path, 0).write_bytes(content)

    def agree(manifest: Options) -> None:
        shard = manifest["shards"][0]
        shard["length"], shard["sha256"] = len(content), hashlib.sha256(content).hexdigest()

    rewrite_manifest(path, agree)


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def zero_page(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(bytes(64))


def become_a_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("")


def become_a_link(path: Path) -> None:
    path.rename(path.parent / "x")
    path.symlink_to(path.parent / "x")


def become_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def torch_saved(value: object) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


class Bomb:
    """What a pickle can do."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (1,)


def set_piece(key: str, value: Any) -> Change:
    def change(manifest: Options) -> None:
        tensors = manifest["shards"][0]["tensors"]
        tensors[next(name for name in tensors if name.startswith("model/"))][key] = value

    return change


def add_piece(piece: Options, own: Options | None = None) -> Change:
    """Let the first shard say that it has another piece of a tensor that the second one has."""

    def change(manifest: Options) -> None:
        for shard, other in (manifest["shards"], reversed(manifest["shards"])):
            if BIAS in shard["tensors"]:
                other["tensors"][BIAS] = shard["tensors"][BIAS] | piece
                shard["tensors"][BIAS] |= own or {}
                return

    return change


def name_shard(name: str) -> Change:
    return lambda manifest: manifest["shards"][0].update(file=name)


def lose_tensor(manifest: Options) -> None:
    for shard in manifest["shards"]:
        shard["tensors"].pop(BIAS, None)


OTHER_MODEL = "a SHA-256 of the model that its tensors lack"
TENSOR = {"dtype": "float32", "shape": [1], "offset": [0], "sha256": "0" * 64}
ACCIDENTS: dict[str, tuple[Harm, str]] = {
    "bit in shard": (lambda p: flip(shard(p, 1), 800), f"{SHARD_1} does not have the SHA-256"),
    "zeroed page": (lambda p: zero_page(shard(p, 0)), f"{SHARD_0} does not have the SHA-256"),
    "truncated": (lambda p: os.truncate(shard(p, 0), 100), f"{SHARD_0} has 100 bytes instead of"),
    "empty": (lambda p: os.truncate(shard(p, 1), 0), f"{SHARD_1} has 0 bytes instead of"),
    "longer": (lambda p: shard(p, 0).open("ab").write(b"x"), f"{SHARD_0} has"),
    "missing shard": (lambda p: shard(p, 1).unlink(), f"{SHARD_1} cannot be opened: No such file"),
    "missing manifest": (lambda p: (p / "manifest.json").unlink(), "manifest.json cannot be read: No such file"),
    "half a manifest": (lambda p: os.truncate(p / "manifest.json", 500), "manifest.json is not a manifest"),
    "bit in manifest": (lambda p: flip(p / "manifest.json", 1603), "manifest.json"),
    "shards swapped": (lambda p: shard(p, 0).replace(shard(p, 1)), "cannot be opened"),
    "shard of another step": (
        lambda p: shutil.copy(shard(p.parent / "step-00000004", 0), shard(p, 0)),
        f"{SHARD_0} does not have the SHA-256",
    ),
    "manifest of another step": (
        lambda p: shutil.copy(p.parent / "step-00000004" / "manifest.json", p / "manifest.json"),
        "manifest.json is of step 4 in the folder of step 6",
    ),
    "newer format": (
        lambda p: rewrite_manifest(p, lambda m: m.update(format=FORMAT + 1)),
        f"has format {FORMAT + 1}; this version reads {FORMAT}",
    ),
    "a file instead": (become_a_file, "step-00000006 is not a folder"),
}

ATTACKS: dict[str, tuple[Harm, str]] = {
    "path upwards": (lambda p: rewrite_manifest(p, name_shard(f"../step-00000004/{NAME}")), "is no name of a shard"),
    "absolute path": (lambda p: rewrite_manifest(p, name_shard("/etc/passwd")), "is no name of a shard"),
    "newline in name": (lambda p: rewrite_manifest(p, name_shard(NAME + "\n")), "is no name of a shard"),
    "symlinked shard": (
        lambda p: become_a_link(shard(p, 0)),
        f"{SHARD_0} cannot be opened: Too many levels of symbolic links",
    ),
    "symlinked manifest": (
        lambda p: become_a_link(p / "manifest.json"),
        "manifest.json cannot be read: Too many levels of symbolic links",
    ),
    "symlinked folder": (become_a_link, "is not a folder"),
    "pipe": (lambda p: become_a_pipe(shard(p, 0)), "cannot be opened: not a regular file"),
    "pipe for a manifest": (
        lambda p: become_a_pipe(p / "manifest.json"),
        "cannot be read: not a regular file",
    ),
    "pickle": (lambda p: rewrite_shard(p, pickle.dumps(Bomb())), SHARD_0),
    "torch.save": (lambda p: rewrite_shard(p, torch_saved(Bomb())), SHARD_0),
    "huge header": (
        lambda p: rewrite_shard(p, (1 << 40).to_bytes(8, "little") + b"{}"),
        "does not have the bytes of the tensors",
    ),
    "header of nothing": (lambda p: rewrite_shard(p, b"\0" * 8), "does not have the bytes of the tensors"),
    "nested header": (
        lambda p: rewrite_shard(p, (90_000).to_bytes(8, "little") + b"[" * 90_000),
        "does not have the bytes of the tensors",
    ),
    "nested manifest": (lambda p: (p / "manifest.json").write_text("[" * 100_000), "is not a manifest"),
    "not an object": (lambda p: (p / "manifest.json").write_text("17"), "is not a manifest"),
    "shape lies": (lambda p: rewrite_manifest(p, set_piece("shape", [4, 2])), "has a piece that cannot be"),
    "negative shape": (lambda p: rewrite_manifest(p, set_piece("shape", [-8])), "has a piece that cannot be"),
    "offset lies": (lambda p: rewrite_manifest(p, set_piece("offset", [5, 5])), "has a piece that cannot be"),
    "dtype lies": (lambda p: rewrite_manifest(p, set_piece("dtype", "int32")), OTHER_MODEL),
    "no shards": (lambda p: rewrite_manifest(p, lambda m: m.update(shards=[])), OTHER_MODEL),
    "no tensor": (lambda p: rewrite_manifest(p, lose_tensor), OTHER_MODEL),
    "scalars gone": (lambda p: rewrite_manifest(p, lambda m: m.update(scalars=17)), "expected an object"),
    "no scalars": (lambda p: rewrite_manifest(p, lambda m: m.pop("scalars")), "what it says of the optimizer"),
    "no optimizer's kind": (lambda p: rewrite_manifest(p, lambda m: m["scalars"]["optimizer"].pop("type")), "'type'"),
    "no settings": (
        lambda p: rewrite_manifest(p, lambda m: m["scalars"]["optimizer"]["groups"][0].pop("current")),
        "'current'",
    ),
    "of before random numbers followed from the step": (
        lambda p: rewrite_manifest(p, lambda m: m.update(format=3, rng_ranks=[0])),
        "has format 3; this version reads",
    ),
    "pieces of two kinds": (
        lambda p: rewrite_manifest(p, add_piece({"shape": [8, 1], "offset": [0, 0]})),
        "have different numbers of dimensions",
    ),
    "pieces that overlap": (
        lambda p: rewrite_manifest(p, add_piece({"shape": [4], "offset": [4]}, own={"shape": [4], "offset": [4]})),
        "do not make one tensor",
    ),
    "tensor renamed": (
        lambda p: rewrite_manifest(p, lambda m: m["shards"][0]["tensors"].update(x=TENSOR)),
        "does not have the bytes of the tensors",
    ),
}


@pytest.mark.parametrize("fault", [*ACCIDENTS, *ATTACKS])
def test_a_bad_checkpoint_is_named_and_passed_over(
    folder: Path, last: Path, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    harm, name = {**ACCIDENTS, **ATTACKS}[fault]
    harm(last)
    with caplog.at_level(logging.WARNING):
        loaded = newest(folder, SHAPES)
    assert loaded is not None
    assert loaded.manifest.step == 4
    assert re.search(r"Checkpoint of step 6 is bad, trying the one before: .*" + name, caplog.text)


def test_no_single_bit_flip_goes_unnoticed(folder: Path, last: Path) -> None:
    chance = random.Random(0)  # noqa: S311 (no secret)
    files = sorted(last.iterdir())
    for _ in range(300):
        path = chance.choice(files)
        bit = chance.randrange(path.stat().st_size * 8)
        flip(path, bit)
        with pytest.raises(CorruptCheckpointError):
            read(folder, 6, SHAPES)
        flip(path, bit)
    assert read(folder, 6, SHAPES).manifest.step == 6


def test_all_bad_is_none(folder: Path) -> None:
    for step in (2, 4, 6):
        (folder / f"step-{step:08d}" / "manifest.json").unlink()
    assert newest(folder, SHAPES) is None
    assert newest(folder / "nowhere", SHAPES) is None


def test_a_job_goes_on_from_the_one_before(forker: Forker, tmp_path: Path) -> None:
    job = make_job(forker, tmp_path / "job").run(2)
    digest = job.manifest(6)["model_sha256"]
    flip(shard(job.checkpoints() / "step-00000006", 1), 900)
    job.run(2, attempt=2)
    assert job.manifest(6)["model_sha256"] == digest
    assert [line["attempt"] for line in job.lines() if "loss" in line] == [1, 1, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("model/0.bias", ("float32", (9,)), "First difference: 0.bias is float32[8] in the checkpoint and float32[9]"),
        ("model/0.bias", ("bfloat16", (8,)), "is float32[8] in the checkpoint and bfloat16[8] in the task"),
        ("model/3.bias", ("float32", (1,)), "3.bias is absent in the checkpoint and float32[1] in the task"),
    ],
)
def test_another_model_is_no_bad_checkpoint(
    folder: Path, name: str, shape: tuple[str, tuple[int, ...]], message: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        newest(folder, {**SHAPES, name: shape})
    assert message in str(caught.value)


def test_the_first_difference_may_be_a_tensor_too_many() -> None:
    assert first_difference({"model/b": ("float32", (1,))}, {}) == ("b", "float32[1]", "absent")


@pytest.mark.parametrize("ranks_per_pod", [1, 2])
def test_a_job_does_not_begin_anew_over_bad_checkpoints(forker: Forker, tmp_path: Path, ranks_per_pod: int) -> None:
    """Its new ones would push out what a storage that comes back could still give."""
    job = make_job(forker, tmp_path / "job").run(2, ranks_per_pod=ranks_per_pod)
    saved = sorted(job.folder.rglob("manifest.json"))
    kept = [path.read_bytes() for path in saved]
    for path in saved:
        path.write_bytes(b"")
    running = job.start(2, attempt=2, ranks_per_pod=ranks_per_pod)
    assert running.wait() == [1, 1]
    assert "can be used: 3 are bad, the newest is step-00000006 (" in running.output()
    assert "Restore them, or take them away to begin at step 0." in running.output()
    for path, content in zip(saved, kept, strict=True):
        path.write_bytes(content)
    job.but(steps=8).run(2, attempt=3, ranks_per_pod=ranks_per_pod)
    assert [line["attempt"] for line in job.lines() if "loss" in line] == [1, 1, 1, 1, 1, 1, 3, 3]

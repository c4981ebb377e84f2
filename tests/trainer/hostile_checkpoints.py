"""Make checkpoints that no version of ours writes, and print what `audit`, `explain` and training make of each.

    python hostile_checkpoints.py FOLDER WAY...

Each way spoils step 6 of a run with a good step 4. Training then looks for a checkpoint, and saves its own of step 6.
All is done in forks of their own, which are ended where they compute for longer than `MOST_SECONDS`.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from trainmaster.cli.audit import audit
from trainmaster.cli.explain import explain
from trainmaster.wire.manifest import Cursor, Shapes, model_sha256
from trainmaster.wire.training import TrainingPlan
from trainmaster_trainer.checkpoint import layout
from trainmaster_trainer.checkpoint.manifest_check import Manifest
from trainmaster_trainer.checkpoint.resume import first_good
from trainmaster_trainer.checkpoint.shard import laid_out, write_shard
from trainmaster_trainer.checkpoint.state import State
from trainmaster_trainer.checkpoint.stores.folder import Folder
from trainmaster_trainer.settings import Settings

from tests.trainer.ranks import STATELESS, alone
from tests.wire.manifests import signed

MOST_SECONDS = 30  # of a processor
WAITED = 300  # seconds by the clock: a process that waits for a pipe waits for ever
STEPS = (4, 6)
SHAPES: Shapes = {"model/w": ("float32", (8,))}
SHARD = "shard-00000-of-00001.0123abcd.safetensors"
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"  # the SHA-256 of nothing
Plain = dict[str, Any]
Way = Callable[[Path], object]  # of the folder of step 6


def make_good(home: Path) -> None:
    """Make a run of 6 steps with checkpoints of two of them."""
    for step in STEPS:
        folder = layout.step_folder(home / "checkpoints", step)
        (folder / layout.MANIFEST).write_bytes(save(folder, step).encode())
    lines = "".join(json.dumps({"step": step, "loss": 0.5, "attempt": 1}) + "\n" for step in range(1, 7))
    (home / "checkpoints" / "metrics.jsonl").write_text(lines)
    (home / "status.json").write_text('{"phase": "Running"}')


def save(folder: Path, step: int, name: str = SHARD, **others: Tensor) -> Manifest:
    """Write a shard, and return the manifest of a checkpoint that has it alone."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).unlink(missing_ok=True)
    shard = write_shard(folder / name, {"model/w": torch.full((8,), float(step)), **others})
    cursor = Cursor(step, 4 * step, 4, 1)
    return Manifest(step, 1, 1, "AllReduce", cursor, 1.0, model_sha256([shard]), (shard,), STATELESS)


def put(folder: Path, plain: Plain) -> None:
    """Write a manifest with the right hashes of the model and of itself."""
    held = {name: one for shard in plain["shards"] for name, one in shard["tensors"].items()}
    text = "".join(
        f"{name} {one['dtype']} {one.get('shape', [])} {one['sha256']}\n"
        for name, one in sorted(held.items())
        if name.startswith("model/")
    )
    plain["model_sha256"] = hashlib.sha256(text.encode()).hexdigest()
    (folder / "manifest.json").write_bytes(signed(plain))


def manifest(change: Callable[[Plain], object]) -> Way:
    """Return a way that changes the manifest and gives it the right hashes."""

    def spoil(folder: Path) -> None:
        plain = json.loads((folder / "manifest.json").read_text())
        change(plain)
        put(folder, plain)

    return spoil


def text(content: bytes) -> Way:
    """Return a way that writes something else than a manifest."""
    return lambda folder: (folder / "manifest.json").write_bytes(content)


def later(make: Callable[[], Way]) -> Way:
    """Return a way that is made when a folder is spoilt: processes that collect tests hold none of its megabytes."""

    def spoil(folder: Path) -> None:
        make()(folder)

    return spoil


def holding(**others: Tensor) -> Way:
    """Return a way that has tensors beside those of the model in the shard."""
    names = {name.replace("__", "/").replace("_", ":"): tensor for name, tensor in others.items()}
    return lambda folder: (folder / layout.MANIFEST).write_bytes(save(folder, 6, SHARD, **names).encode())


def letters(content: bytes) -> Tensor:
    """Return a text as the tensor in which an optimizer's values are kept."""
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def tensors(plain: Plain) -> Plain:
    """Return the records of the tensors of the first shard."""
    found: Plain = plain["shards"][0]["tensors"]
    return found


def pieces(plain: Plain, count: int, piece: Callable[[int], Plain], name: str = "model/w") -> None:
    """Divide the one tensor among many shards."""
    shard = plain["shards"][0]
    plain["shards"] = [
        {**shard, "file": f"shard-{number:05d}-of-99999.0123abcd.safetensors", "tensors": {name: piece(number)}}
        for number in range(count)
    ]


def of(shape: list[int], offset: list[int]) -> Plain:
    """Return the record of a piece."""
    return {"dtype": "float32", "shape": shape, "offset": offset, "sha256": EMPTY}


def file(name: str, make: Callable[[Path], object]) -> Way:
    """Return a way that puts another thing in the place of a file."""

    def spoil(folder: Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return spoil


def sparse(path: Path) -> None:
    """Make a file of a terabyte that takes no room."""
    path.touch()
    os.truncate(path, 1 << 40)


def loop(path: Path) -> None:
    """Make a link that leads to itself."""
    path.with_suffix(".x").symlink_to(path)
    path.symlink_to(path.with_suffix(".x"))


def header(length: int) -> Way:
    """Return a way that gives the header of the shard another length."""

    def spoil(folder: Path) -> None:
        data = (folder / SHARD).read_bytes()
        (folder / SHARD).write_bytes(length.to_bytes(8, "little") + data[8:])

    return spoil


def huge_shard(folder: Path) -> None:
    """Make a shard of a terabyte of which all is right: header, lengths and hashes."""
    shape = (1 << 38,)
    forms = {"model/w": torch.empty(8), "optimizer/w/x": torch.empty(shape, device="meta")}
    _, header = laid_out(forms)
    (folder / SHARD).write_bytes(header)
    os.truncate(folder / SHARD, length := len(header) + 32 + (1 << 40))
    digest = hashlib.sha256(b"".join((header, EMPTY.encode(), EMPTY.encode()))).hexdigest()
    held = {"model/w": of([8], [0]), "optimizer/w/x": of(list(shape), [0])}
    manifest(lambda plain: plain["shards"][0].update(length=length, sha256=digest, tensors=held))(folder)


def nested(folder: Path) -> None:
    """Nest the folder, and one that a dead attempt left behind, deeper than Python calls functions."""
    shutil.rmtree(folder)
    for name in (folder.name, ".saving-00000008-attempt-1"):
        here = os.open(folder.parent, os.O_RDONLY)
        os.mkdir(name, dir_fd=here)
        for _ in range(1200):
            deeper = os.open(name, os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = deeper
            os.mkdir(name, dir_fd=here)
        os.close(here)


def folders(folder: Path) -> None:
    """Make many folders of newer steps, with nothing in them."""
    for number in range(1000):
        (folder.parent / f"step-{10**8 + number}").mkdir()


def files(folder: Path) -> None:
    """Make many shards that no manifest names, and none that it does."""
    (folder / SHARD).unlink()
    for number in range(500):
        (folder / f"shard-{number:05d}-of-99999.0123abcd.safetensors").touch()


def copies(folder: Path) -> None:
    """Give thousands of newer steps one manifest of 400 KB, of which all is right but the step."""
    plain = json.loads((folder / "manifest.json").read_text())
    tensors(plain).update({f"model/{number}": of([0], [0]) for number in range(2400)})
    put(folder, plain)
    for number in range(7, 2500):
        newer = layout.step_folder(folder.parent, number)
        newer.mkdir()
        (newer / "manifest.json").hardlink_to(folder / "manifest.json")


def beside(name: str, content: bytes | Callable[[Path], object]) -> Way:
    """Return a way that puts another thing in the place of a file of the whole run."""

    def spoil(folder: Path) -> None:
        path = folder.parent / name
        path.unlink(missing_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            content(path)

    return spoil


DEEP = b"[" * (1 << 20)
MANY = 60_000
ESCAPES = "\x1b]52;c;cm0=\x07\r"
RESTART = {"attempt": 1, "class": "ProcessKilled", "message": 10 * ESCAPES, "evidence": 10 * ESCAPES}
MANIFESTS: dict[str, Way] = {
    "many empty pieces": manifest(lambda plain: pieces(plain, 2500, lambda _: of([0], [0]))),
    "many pieces": manifest(lambda plain: pieces(plain, 2500, lambda number: of([1], [number]))),
    "pieces over one another": manifest(lambda plain: pieces(plain, 2500, lambda _: of([8], [0]))),
    "pieces of many dimensions": manifest(lambda plain: pieces(plain, 1500, lambda _: of([1] * 64, [1] * 64))),
    "many tensors": manifest(lambda plain: tensors(plain).update({f"model/{n}": of([0], [0]) for n in range(20_000)})),
    "many dimensions": manifest(lambda plain: tensors(plain).update({"model/w": of([1] * MANY, [0] * MANY)})),
    "many scalars": manifest(lambda plain: plain.update(scalars={"x": [0] * MANY})),
    "many groups": manifest(lambda plain: plain["scalars"]["optimizer"].update(groups=[{}] * 30_000)),
    "scalars of other kinds": manifest(lambda plain: plain.update(scalars={"optimizer": []})),
    "ranks": manifest(lambda plain: plain.update(world_size=10**12)),
    "a shape beyond numbers": manifest(lambda plain: tensors(plain).update({"model/w": of([1 << 62] * 4, [0] * 4)})),
    "a path": manifest(lambda plain: plain["shards"][0].update(file="../../status.json")),
    "NUL in a name": manifest(lambda plain: plain["shards"][0].update(file="shard\x00")),
    "escapes": manifest(lambda plain: tensors(plain).update({ESCAPES: of([1], [1])})),
    "escapes in the names of pieces": manifest(lambda plain: pieces(plain, 2, lambda _: of([8], [0]), ESCAPES)),
    "no shards": manifest(lambda plain: plain.update(shards=[])),
    "another step": manifest(lambda plain: plain.update(step=5)),
    "lists": later(lambda: text(b"[" + b"[]," * (10 << 20) + b"1]")),
    "numbers": later(lambda: text(b"[" + b"1," * (16 << 20) + b"1]")),
    "deep": text(DEEP),
    "infinite": text(b'{"digest": 1e999}'),
    "digits": text(b'{"step": ' + b"9" * 100_000 + b"}"),
    "twice": text(b'{"digest": "", "digest": "", "step": 6, "step": 4}'),
    "garbage": text(bytes(range(256)) * 1000),
    "too long": later(lambda: text(b" " * (40 << 20))),
    "pipe": file("manifest.json", os.mkfifo),
    "terabyte": file("manifest.json", sparse),
    "link to itself": file("manifest.json", loop),
    "device": file("manifest.json", lambda path: path.symlink_to("/dev/zero")),
    "folder": file("manifest.json", Path.mkdir),
    "copies": copies,
    "folders": folders,
    "nested": nested,
}
SHARDS: dict[str, Way] = {
    "shard: a longer header": header(90_000_000),
    "shard: a header beyond numbers": header((1 << 64) - 1),
    "shard: no header": header(0),
    "shard: a terabyte": huge_shard,
    "shard: another length": lambda folder: os.truncate(folder / SHARD, 1 << 40),
    "shard: pipe": file(SHARD, os.mkfifo),
    "shard: link to itself": file(SHARD, loop),
    "shard: device": file(SHARD, lambda path: path.symlink_to("/dev/zero")),
    "shard: folder": file(SHARD, Path.mkdir),
    "optimizer: deep": holding(optimizer__w__json_x=letters(DEEP)),
    "optimizer: lists": later(lambda: holding(optimizer__w__json_x=letters(b"[" + b"[]," * (16 << 20) + b"1]"))),
    "optimizer: another kind": holding(optimizer__w__json_x=torch.zeros(3, dtype=torch.bfloat16)),
    "shard: gone, among many files": files,
}
AROUND: dict[str, Way] = {  # step 6 is good
    "lineage: deep": beside("lineage.json", DEEP),
    "lineage: infinite": beside("lineage.json", b'{"job": "x", "resumed": {"1": 1e999}}'),
    "lineage: pipe": beside("lineage.json", os.mkfifo),
    "lineage: long": later(
        lambda: beside("lineage.json", b'{"job": "x", "resumed": {' + b'"1":1,' * (5 << 20) + b'"2": 1}}')
    ),
    "lines: deep": beside("metrics.jsonl", DEEP + b"\n"),
    "lines: one of 10 MB": later(lambda: beside("metrics.jsonl", b'{"step": 1, "x": "' + b"y" * (10 << 20) + b'"}\n')),
    "lines: terabyte": beside("metrics.jsonl", sparse),
    "lines: pipe": beside("metrics.jsonl", os.mkfifo),
    "lines: many keys": beside("metrics.jsonl", b'{"step":1' + b"".join(b',"%d":0' % n for n in range(MANY)) + b"}\n"),
    "status: deep": beside("../status.json", DEEP),
    "status: pipe": beside("../status.json", os.mkfifo),
    "status: terabyte": beside("../status.json", sparse),
    "status: lists": beside("../status.json", b'{"phase": [' + b"[]," * (1 << 20) + b"1]}"),
    "status: hundreds of restarts": beside(
        "../status.json", json.dumps({"phase": "Running", "restarts": [RESTART] * 800}).encode()
    ),
    "status: more restarts": beside("../status.json", b'{"restarts": [' + b"{}," * 500_000 + b"{}]}"),
}
WAYS = {**MANIFESTS, **SHARDS, **AROUND}


def said(command: Callable[[str], int], home: Path) -> str:
    """Return what a command prints, behind its exit code."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = command(str(home))
    return f"{code}: {output.getvalue()}"


def trained(home: Path) -> str:
    """Go on from a checkpoint as a rank does, and save that of step 6. Return from which step it went on."""
    folder = home / "checkpoints"
    settings = Settings(TrainingPlan("OneDevice"), folder, job_uid="uid")
    store = Folder(settings, alone())
    layout.clean(folder)
    way = store.lineage()
    store.newest_step(way)
    found = first_good(store, alone(), State(forms=SHAPES), way)
    if found is None:
        return store.why_none(way)
    with store.begin(6) as path:
        manifest = save(path.parent, 6, path.name)
    store.commit(6, manifest)
    store.prune(6, failed=False)
    left = [path.name for path in folder.glob(".*")]
    saved = first_good(Folder(settings, alone()), alone(), State(forms=SHAPES), way)
    if left or saved is None or saved.manifest.step != 6:
        return f"step 6 was not saved: {left}, {saved}"
    return f"step {found.manifest.step}"


READERS: dict[str, Callable[[Path], str]] = {
    "audit": lambda home: said(audit, home),
    "explain": lambda home: said(explain, home),
    "training": trained,
}


def tell(home: Path, way: str) -> list[Plain]:
    """Spoil a run in one fork, and read it in another. Return what each reader said, as far as they came."""
    subprocess.run(["rm", "-rf", home], check=True)
    make_good(home)
    in_fork([lambda: str(WAYS[way](layout.step_folder(home / "checkpoints", 6)))])
    return in_fork([lambda read=read: read(home) for read in READERS.values()])  # type: ignore[misc]


def in_fork(reads: list[Callable[[], str]]) -> list[Plain]:
    """Return what each function returns or raises in a process of their own, and by how much its memory has grown."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
        signal.alarm(WAITED)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for read in reads:
            try:
                what = read()
            except BaseException as error:  # noqa: BLE001 (which one it is, is what is told)
                what = f"{type(error).__name__}: {error}"
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            os.write(send, json.dumps({"said": what[:500], "kilobytes": grown}).encode() + b"\n")
        os._exit(0)
    os.close(send)
    with os.fdopen(receive) as pipe:
        answers = [json.loads(line) for line in pipe]
    _, status = os.waitpid(child, 0)
    return answers if status == 0 else [*answers, {"said": f"ended by {status}", "kilobytes": 0}]


if __name__ == "__main__":
    torch.set_num_threads(1)
    place = Path(sys.argv[1])
    json.dump({way: dict(zip(READERS, tell(place / "run", way), strict=False)) for way in sys.argv[2:]}, sys.stdout)
    subprocess.run(["rm", "-rf", place / "run"], check=True)

"""Write the model of a checkpoint into one file that plain torch reads, without Trainmaster.

    python -m trainmaster_trainer.export_model FOLDER --format safetensors --output model.safetensors

FOLDER is a folder of checkpoints or its URL in an object store. Every strategy's checkpoint has the whole model under
the names of its state_dict, so there is one way for all of them. Everything is verified before it is written; a
checkpoint that is bad is passed over, as a resume does. `trainmaster export` calls this.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from trainmaster.wire.manifest import MAX_MANIFEST

from trainmaster_trainer.checkpoint import layout, lineage
from trainmaster_trainer.checkpoint.averages import EMA
from trainmaster_trainer.checkpoint.fetch import on_the_way
from trainmaster_trainer.checkpoint.load import LoadedCheckpoint, look_at, read
from trainmaster_trainer.checkpoint.reading import CorruptCheckpointError
from trainmaster_trainer.checkpoint.remote import Remote
from trainmaster_trainer.checkpoint.retention import bests_of
from trainmaster_trainer.checkpoint.state import MODEL
from trainmaster_trainer.errors import ConfigurationError

EXIT_FAILED, EXIT_INVALID = 1, 2
FIELD = "trainmaster export"
Read = Callable[[int], LoadedCheckpoint]  # the checkpoint of a step; CorruptCheckpointError where it is not good


class ExportError(Exception):
    """There is no such checkpoint, or no room for the file. The text names the cure."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Export as the arguments say, or those of this process, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m trainmaster_trainer.export_model", description=__doc__)
    parser.add_argument("source", metavar="FOLDER", help="a folder of checkpoints, or its URL")
    parser.add_argument("--endpoint", help="the server of an object store, where it is not the vendor's own")
    parser.add_argument("--best", action="store_true", help="the best checkpoint, and not the newest")
    parser.add_argument("--ema", action="store_true", help="the moving average of the weights")
    parser.add_argument("--format", choices=FORMATS, default="safetensors")
    parser.add_argument("--output", metavar="FILE", type=Path, required=True)
    options = parser.parse_args(arguments)
    try:
        with _opened(options.source, options.endpoint) as (steps, read_step):
            loaded = choose(steps, read_step, best=options.best)
        model = model_of(loaded, averaged=options.ema)
        write(model, options.output, options.format, _origin(loaded))
    except ExportError as error:
        sys.stderr.write(f"{FIELD}: {error}\n")
        return EXIT_FAILED
    except (ConfigurationError, OSError) as error:
        sys.stderr.write(f"{FIELD}: {options.source}: {error}\n")
        return EXIT_INVALID
    size = options.output.stat().st_size
    print(  # noqa: T201 it is what the command says
        f"{options.output}: the {'average of the ' if options.ema else ''}model after step {loaded.manifest.step}, "
        f"{len(model)} tensors, {size} bytes, sha256 {loaded.manifest.model_sha256[:16]} in status and checkpoint"
    )
    return 0


@contextmanager
def _opened(source: str, endpoint: str | None) -> Iterator[tuple[list[int], Read]]:
    """Give the steps that there are, newest first, and a function that reads one of them."""
    if "://" in source:
        with tempfile.TemporaryDirectory(prefix="trainmaster-export-") as scratch:
            yield _in_store(Remote(source, endpoint, FIELD), Path(scratch))
        return
    folder = Path(source)
    trusted = lineage.read(folder, None).trusts
    yield layout.saved_steps(folder), lambda step: read(folder, step, None, trusted)


def _in_store(remote: Remote, folder: Path) -> tuple[list[int], Read]:
    saved = on_the_way(remote, lineage.read(folder, None, remote))

    def fetch(step: int) -> LoadedCheckpoint:
        problem: CorruptCheckpointError | None = None
        for one in (one for one in saved if one.step == step):
            target = layout.step_folder(folder, step)
            layout.delete(target)
            target.mkdir()
            try:
                remote.fetch(f"{one.name}/{layout.MANIFEST}", target / layout.MANIFEST, MAX_MANIFEST + 1)
                for shard in look_at(folder, step).shards:
                    remote.fetch(f"{one.name}/{shard.file}", target / shard.file, shard.length)
                return read(folder, step)
            except CorruptCheckpointError as error:
                problem = error
        raise problem or CorruptCheckpointError("it is gone")

    return list(dict.fromkeys(one.step for one in saved)), fetch


def choose(steps: list[int], read_step: Read, *, best: bool) -> LoadedCheckpoint:
    """Return the newest good checkpoint, or the best one that the newest good one knows of.

    Raises:
        ExportError: there is none.
    """
    newest = _first_good(steps, read_step)
    if newest is None:
        bad = f"; {len(steps)} are there, and none is good" if steps else ""
        raise ExportError(
            f"there is no checkpoint to export{bad}. Name the --workdir of a run, or the folder of its checkpoints."
        )
    if not best:
        return newest
    bests = bests_of(newest.manifest.scalars)
    if not bests:
        raise ExportError(
            "no checkpoint of this job is the best one. Set spec.checkpoint.best and training.evaluateEverySteps for "
            "the next run, or leave --best out."
        )
    found = _first_good([step for step in reversed(bests) if step in steps], read_step)
    if found is None:
        raise ExportError(f"the best checkpoint, of step {bests[-1]}, is not there or not good. Leave --best out.")
    return found


def _first_good(steps: list[int], read_step: Read) -> LoadedCheckpoint | None:
    for step in steps:
        try:
            return read_step(step)
        except CorruptCheckpointError as bad:
            sys.stderr.write(f"{FIELD}: the checkpoint of step {step} is passed over: {bad}.\n")
    return None


def model_of(loaded: LoadedCheckpoint, *, averaged: bool = False) -> dict[str, Tensor]:
    """Return what the model's load_state_dict takes; `averaged`: with the moving average of the weights.

    Raises:
        ExportError: the checkpoint has no average.
    """
    of_model = {name.removeprefix(MODEL): one for name, one in loaded.state.tensors.items() if name.startswith(MODEL)}
    if averaged:
        averages = {name.removeprefix(EMA): one for name, one in loaded.state.tensors.items() if name.startswith(EMA)}
        if not averages:
            raise ExportError(
                f"the checkpoint of step {loaded.manifest.step} has no moving average of the weights. Set "
                "spec.training.ema for the next run, or leave --ema out."
            )
        of_model |= averages
    return {name: tensor.clone().contiguous() for name, tensor in sorted(of_model.items())}


def _origin(loaded: LoadedCheckpoint) -> dict[str, str]:
    """Return what the file says of where it comes from."""
    manifest = loaded.manifest
    return {
        "format": "pt",
        "trainmaster.step": str(manifest.step),
        "trainmaster.strategy": manifest.strategy,
        "trainmaster.job": manifest.job,
        "trainmaster.model_sha256": manifest.model_sha256,
    }


def _write_safetensors(model: dict[str, Tensor], path: Path, told: dict[str, str]) -> None:
    save_file(model, path, told)


def _write_torch(model: dict[str, Tensor], path: Path, _told: dict[str, str]) -> None:
    torch.save(model, path)


FORMATS = {"safetensors": _write_safetensors, "torch": _write_torch}


def write(model: dict[str, Tensor], path: Path, form: str, told: dict[str, str]) -> None:
    """Write the file as a whole or not at all.

    Raises:
        ExportError: it cannot be written.
    """
    if not path.parent.is_dir():
        raise ExportError(f"--output {path}: there is no folder {path.parent}. Make it, or choose another file.")
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.touch()
        mode = temporary.stat().st_mode  # as the user's umask has it: safetensors makes a file for its owner alone
        FORMATS[form](model, temporary, told)
        temporary.chmod(mode)
        temporary.replace(path)
    except Exception as error:  # noqa: BLE001 (torch and safetensors have errors of their own)
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ExportError(f"--output {path}: {why}. Choose another file, or make room.") from None


if __name__ == "__main__":
    sys.exit(main())

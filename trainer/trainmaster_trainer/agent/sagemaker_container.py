"""Lay out SageMaker's folders, run a container's command in them, and judge its end as SageMaker does.

Run in the rank's process, with the file that `frameworks/sagemaker.py` has written. What is to stay (the model, the
output, checkpoints) is linked to the folder of the job's checkpoints, which outlives the attempt.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, Dict, List, NoReturn, Optional, Tuple

from trainmaster.wire import names
from trainmaster.wire.files import delete_folder

from trainmaster_trainer.agent import process, rank_errors
from trainmaster_trainer.agent.main_module import BadConfigurationError

_FOLDERS = ("input/config", "input/data", "output/intermediate")  # without `output` the toolkit can tell no failure
_RESULTS = {"model": "model", "output/data": "output"}  # in the container, and among the results
_CHECKPOINTS = "checkpoints"
_CHANNEL = "SM_CHANNEL_"  # with the name of a channel, in upper case: so scripts read where it is
_AS_FILE = {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"}
_MOST_READ = 1 << 16
_NO_TYPE = "SageMakerFailure"
_ERROR = re.compile(r"^\W*(?:\w+\.)*(\w*(?:Error|Exception|Interrupt|Exit))(?:: (.*\S))?\W*$", re.MULTILINE)
_OF_TOOLKIT = re.compile(r'ExitCode (-?\d+)\s+ErrorMessage "(.*?)"\s+(?:ExtraInfo|Command) ', re.DOTALL)


def main() -> NoReturn:
    """Run the command of the file that is named, and end as it has ended, or with 1 where it has told a failure."""
    told = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    base, kept = Path(told["base"]).absolute(), Path(os.environ[names.ENV_CHECKPOINTS], "sagemaker")
    unfinished = kept / "unfinished" / f"worker-{told['replica']}"
    try:
        _lay_out(base, kept, unfinished, told)
    except OSError as error:
        raise BadConfigurationError(
            f"framework: SageMaker's folder {base} cannot be made ({error.strerror}: {error.filename}): mount a volume "
            "there that the container may write to, or set SAGEMAKER_BASE_DIR in workers.env to a folder that it may"
        ) from None
    code = _run(told["command"])
    failure = _failure(base / "output")
    if code == 0 and failure is None:
        _keep(kept, unfinished)
        sys.exit(0)
    kind, message, of_script = read_failure(failure or "")
    if kind:
        rank_errors.write(os.environ.get(names.ENV_ERROR_FILE), type(kind, (Exception,), {})(message))
    _end_like(of_script or code or 1)


def _lay_out(base: Path, kept: Path, unfinished: Path, told: Dict[str, Any]) -> None:
    for name in _FOLDERS:
        (base / name).mkdir(parents=True, exist_ok=True)
    for name in ("failure", "success"):  # of an attempt before this one
        (base / "output" / name).unlink(missing_ok=True)
    delete_folder(unfinished)
    for name, result in _RESULTS.items():
        _lead(base / name, unfinished / result)
    _lead(base / _CHECKPOINTS, kept / _CHECKPOINTS)
    code = base / "code"
    if not code.exists() and "sagemaker_submit_directory" not in told["hyperparameters"]:
        code.symlink_to(Path.cwd())  # the image brings none: it is the job's own
    for name, folder in _channels().items():
        _lead(base / "input" / "data" / name, folder)
    channels = sorted(path.name for path in (base / "input" / "data").iterdir() if path.is_dir())
    files = {
        "hyperparameters": told["hyperparameters"],
        "resourceconfig": told["resources"],
        "inputdataconfig": dict.fromkeys(channels, _AS_FILE),
    }
    for name, content in files.items():
        (base / "input" / "config" / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")


def _lead(path: Path, target: Path) -> None:
    """Have a path lead to a folder, unless a folder with content, or a volume, is there already."""
    target.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        path.unlink()
    with contextlib.suppress(OSError):
        path.rmdir()
    if not path.exists():
        path.symlink_to(target)


def _channels() -> Dict[str, Path]:
    found = {
        name[len(_CHANNEL) :].lower(): Path(value).absolute()
        for name, value in os.environ.items()
        if name.startswith(_CHANNEL) and len(name) > len(_CHANNEL)
    }
    for name, folder in found.items():
        if not folder.is_dir():
            raise BadConfigurationError(f"workers.env: {_CHANNEL}{name.upper()}: there is no folder {folder}")
    return found


def _run(command: List[str]) -> int:
    """Run the command, pass signals that ask it to end on, and return its exit code, negative after a signal."""
    try:
        running = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            preexec_fn=partial(process.die_with_parent, os.getpid()),  # noqa: PLW1509 before any thread of ours
        )
    except OSError as error:
        if not rank_errors.is_the_users(error):
            raise
        why = f"training.command: the command cannot be run: {error.strerror}: {command[0]}"
        raise BadConfigurationError(why) from None
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: running.send_signal(number))
    return running.wait()


def _failure(output: Path) -> Optional[str]:
    """Return the text of the failure that was told; None where there is none."""
    if not output.is_dir() or not os.access(output, os.W_OK):
        return f"{output} has gone or cannot be written, so that a failure could not have been told there"
    try:
        with (output / "failure").open(encoding="utf-8", errors="replace") as file:
            return file.read(_MOST_READ).strip() or "output/failure was written, without a word in it"
    except FileNotFoundError:
        return None


def read_failure(text: str) -> Tuple[str, str, int]:
    """Return type and message of the error that a failure file tells, and the exit code of the script that it names.

    There is no type where the toolkit has not kept what the script said: it is in the rank's output then.
    """
    found = _OF_TOOLKIT.search(text)
    code, said = (int(found.group(1)), found.group(2).strip()) if found else (0, text)
    last = [*_ERROR.finditer(said)]
    if last:
        return last[-1].group(1), last[-1].group(2) or "", code
    return (_NO_TYPE if said else ""), " ".join(said.split()), code


def _keep(kept: Path, unfinished: Path) -> None:
    """Move the results of this replica to those of the job."""
    for folder, _, files in os.walk(unfinished):
        for name in files:
            path = Path(folder, name)
            target = kept / path.relative_to(unfinished)
            target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)
    delete_folder(unfinished)


def _end_like(code: int) -> NoReturn:
    if code < 0:
        with contextlib.suppress(OSError, ValueError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code or 1)


if __name__ == "__main__":
    main()

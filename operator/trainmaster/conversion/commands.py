"""Turn command lines that start a training into what a TrainingJob starts: torchrun's own, and shells around them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from trainmaster.conversion.source import ConversionError, ConversionNotes, Document, SourceObject, compact
from trainmaster.wire import torchrun

COMMAND = "command"
GUESS = ["python", "train.py"]
_MOST_COUNTED = 50  # of spec.failurePolicy.maxRestarts
_MOST_RESTARTS = re.compile(r"--max[-_]restarts[= ](\d+)")
_VARIABLE = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_SHELLS = ("sh", "bash")
_STARTERS = ("torchrun", "torch.distributed", "accelerate launch", "deepspeed", "horovodrun")
_PER_NODE = "--nproc-per-node"
_AUTOMATIC = ("auto", "gpu", "xpu", "cpu")


def of_torchrun(words: Sequence[str], notes: ConversionNotes) -> Document:
    """Return the spec that a command line of torchrun comes to.

    Raises:
        ConversionError: it is none, or asks for what Trainmaster does not do.
    """
    given = list(words)
    variables = []
    while given and (found := _VARIABLE.fullmatch(given[0])):
        variables.append({"name": found[1], "value": found[2]})
        given.pop(0)
    launch = launched(given) if given else None
    if launch is None:
        raise ConversionError(
            "this is no command line of torchrun. Write it as: trainmaster convert -- torchrun train.py"
        )
    spec = spread(launch, given, notes)
    if variables:
        spec["workers"]["env"] = variables
    return spec


def launched(words: Sequence[str]) -> torchrun.Launch | None:
    """Return what torchrun is to start; None where the words are not torchrun's.

    Raises:
        ConversionError: it asks for what Trainmaster does not do.
    """
    try:
        return torchrun.launched(words) if words else None
    except torchrun.CommandError as error:
        raise ConversionError(str(error).removeprefix("training.command: ")) from None


def spread(launch: torchrun.Launch, words: Sequence[str], notes: ConversionNotes) -> Document:
    """Return replicas, GPUs, restarts and command of a torchrun line."""
    least, most = launch.nodes or (1, 1)
    spec: Document = {"training": {COMMAND: plain(launch, words)}, "workers": {"replicas": most}}
    if least < most:
        spec["elasticity"] = {"minReplicas": least, "maxReplicas": most}
    per_node = launch.per_node or "1"
    if per_node.isdecimal() and int(per_node) > 1:
        spec["workers"]["gpus"] = int(per_node)
        notes.add(
            _PER_NODE,
            f"became gpus: {per_node}, one process for each. On CPUs a replica is one process: write replicas: "
            f"{int(per_node) * most} and no gpus",
        )
    elif per_node in _AUTOMATIC:
        notes.add(_PER_NODE, f"{per_node} depends on the machine: write workers.gpus, one process for each")
    elif per_node != "1":
        notes.add(_PER_NODE, f"{per_node} is no number: write workers.gpus, one process for each")
    own = words[: words.index(launch.program)]  # what follows is the script's
    if restarts := _MOST_RESTARTS.search(" ".join(own)):
        spec["failurePolicy"] = _restarts(int(restarts[1]), "--max-restarts", notes)
    return spec


def plain(launch: torchrun.Launch, words: Sequence[str]) -> list[str]:
    """Return the command of one rank. Where torchrun tells the rank by an argument, its own line stays."""
    if launch.tells_local_rank:
        return list(words)
    start = ["python", *(["-m"] if launch.module else [])] if launch.python else []
    return [*start, launch.program, *launch.arguments]


def of_container(words: list[str], path: str, workers: Document, notes: ConversionNotes) -> tuple[list[str], Document]:
    """Return the command of one rank, and what a torchrun line in a container says besides about the job.

    The processes that it asks for are added to `workers`, where their resources do not say how many there are.
    """
    if not words:
        notes.add(path, f"there is no command: the image starts its own. Write it in place of {' '.join(GUESS)}")
        return GUESS, {}
    try:
        launch = launched(words)
    except ConversionError as error:
        notes.add(path, f"is kept as it is, and check will refuse it: {error}")
        return words, {}
    if launch is not None:
        asked = ConversionNotes()
        told = spread(launch, words, asked)
        if processes := told["workers"].get("gpus"):
            _add_processes(workers, processes, notes)
        is_settled = processes or "gpus" in workers
        for field, note in asked.lines:
            if not (is_settled and field == _PER_NODE):
                notes.add(field, note)
        return plain(launch, words), told
    if PurePosixPath(words[0]).name in _SHELLS and any(starter in " ".join(words) for starter in _STARTERS):
        notes.add(
            path,
            "starts a launcher inside of a shell. Each rank would start it, with RANK and so on set: "
            "write what the launcher starts, as [python, train.py]",
        )
    elif words[0] == "horovodrun":
        notes.add(path, "horovodrun is a launcher, and each rank would start it: write the script itself")
    return words, {}


def _add_processes(workers: Document, processes: int, notes: ConversionNotes) -> None:
    """Add the processes that a torchrun line in a container asks for, where its resources name no GPU."""
    devices = workers.get("gpus")
    if devices and devices != processes:
        notes.add(_PER_NODE, f"asks for {processes} processes in each pod, which has {devices} GPUs: one for each here")
    if not devices:
        notes.add(
            _PER_NODE,
            f"asks for {processes} processes in each pod, which has no GPUs. A replica without GPUs is one process: "
            f"replicas was {workers['replicas']}, and is {workers['replicas'] * processes}",
        )
        workers["replicas"] *= processes


def run_policy(policy: SourceObject) -> Document:
    """Return what an object says of restarts and of the job's time, in the words of Kubernetes' own Job."""
    made: Document = {}
    if "backoffLimit" in policy:
        made["failurePolicy"] = restarts(policy, "backoffLimit")
    for name in ("activeDeadlineSeconds", "ttlSecondsAfterFinished"):
        made |= compact([(name, policy.number(name))])
    if policy.take("suspend") is True:
        made["suspend"] = True
    return made


def restarts(policy: SourceObject, name: str) -> Document:
    """Return the failure policy of a number of restarts."""
    return _restarts(policy.number(name) or 0, f"{policy.path}.{name}", policy.notes)


def _restarts(given: int, path: str, notes: ConversionNotes) -> Document:
    if given > _MOST_COUNTED:
        notes.add(path, f"{given} became {_MOST_COUNTED}; progress fills the budget up again")
    return {"maxRestarts": min(max(given, 0), _MOST_COUNTED)}


def split(text: str) -> list[str]:
    """Return the words of a line of a shell; one that needs a shell is given to one."""
    if re.search(r"[|&;<>$`]", text):
        return ["sh", "-c", text]
    try:
        return shlex.split(text)
    except ValueError:
        return ["sh", "-c", text]


def name_of(words: Sequence[str]) -> str:
    """Return a name for the job of a command: that of its script."""
    scripts = [word for word in words if word.endswith(".py")]
    stem: Any = PurePosixPath(scripts[0]).stem if scripts else "training"
    return re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-0123456789") or "training"

"""Forks rank processes from one process that has imported torch, as the agent's warm parent does.

Run as a script by `ranks.py`, which see. It reads one JSON line per request on its standard input and answers with
one on its standard output: {"start": [environment, ...], "output": [path, ...]} -> {"pids": [...]};
{"wait": pid} -> {"status": waitstatus}; {"poll": pid} -> the same, or null while it runs; {"imports": [module, ...]}
-> {}: all ranks from then on find these modules imported.
"""

import gc
import importlib
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # else each rank that compiles starts a process that imports torch

import torch
import torch._dynamo  # DDP imports it when it is first made, which takes seconds
import trainmaster_trainer.checkpoint.memory
import trainmaster_trainer.rank
from trainmaster.wire import names
from trainmaster_trainer.agent import rank_errors, rehearsal
from trainmaster_trainer.agent.huge_pages import HugePages
from trainmaster_trainer.group import join
from trainmaster_trainer.settings import Settings

_ON_DISK = ("mkdir", "open", "write", "fsync", "rename", "unlink", "rmdir")


def die_at_call(number: int) -> None:
    """Kill this process just before it changes the disk for the `number`-th time."""
    calls = 0

    def counted(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def wrapper(*arguments: Any, **keywords: Any) -> Any:
            nonlocal calls
            changes = name != "open" or arguments[1] & os.O_CREAT
            calls += bool(changes)
            if calls == number and changes:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **keywords)

        return wrapper

    for name in _ON_DISK:
        setattr(os, name, counted(name))


def left_of(environment: dict[str, str]) -> Callable[[Path], int]:
    """So much memory, less what lies in the folder; all ranks but the first look late."""

    def free_memory(folder: Path) -> int:
        time.sleep(0.3 if environment["RANK"] != "0" else 0)
        return int(environment["LITTLE_MEMORY"]) - sum(path.stat().st_size for path in folder.iterdir())

    return free_memory


def become_rank(environment: dict[str, str], output: str) -> None:
    os.setsid()
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.environ.update(environment)
    torch.set_num_threads(1)
    if "TEST_LISTEN_PORT" in environment:  # the agent hands over a socket that listens already
        listener = socket.create_server(("127.0.0.1", int(environment["TEST_LISTEN_PORT"])), backlog=64)
        os.environ[names.ENV_LISTEN] = str(listener.detach())
    if environment.get("DIE_RANK") == environment["RANK"]:
        die_at_call(int(environment["DIE_AT_CALL"]))
    if "TINY_MEMORY" in environment:
        setattr(trainmaster_trainer.checkpoint.memory, "free_memory", lambda _: 1 << 10)  # noqa: B010 (for mypy)
    if "LITTLE_MEMORY" in environment:
        setattr(trainmaster_trainer.checkpoint.memory, "free_memory", left_of(environment))  # noqa: B010 (likewise)
    code = 1
    try:
        code = answer_call(environment) if "CALL" in environment else trainmaster_trainer.rank.main()
    except BaseException as error:  # noqa: BLE001 (the agent shows them all likewise)
        traceback.print_exc()
        rank_errors.write(environment.get(names.ENV_ERROR_FILE), error)
        code = 78 if getattr(error, "trainmaster_configuration_error", False) else 1
    sys.stderr.flush()
    os._exit(code)


def answer_call(environment: dict[str, str]) -> int:
    """Join the group as a rank does, call a function of this folder with it, and write its answer down."""
    module, _, function = environment["CALL"].partition(":")
    sys.path.insert(0, str(Path(__file__).parent))
    with join(Settings.read(environment)) as group:
        value = getattr(importlib.import_module(module), function)(group, **json.loads(environment["ARGUMENTS"]))
    Path(environment["ANSWER"]).write_text(json.dumps(value))
    return 0


def start(environment: dict[str, str], output: str) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            become_rank(environment, output)
        except BaseException:  # noqa: BLE001 (a port that is taken, say: the test reads it there)
            traceback.print_exc()
        finally:
            os._exit(1)
    return pid


def answer(request: dict[str, Any]) -> dict[str, Any]:
    if "start" in request:
        return {"pids": [start(*pair) for pair in zip(request["start"], request["output"], strict=True)]}
    if "imports" in request:
        for name in request["imports"]:
            importlib.import_module(name)
        return {}
    if "poll" in request:
        pid, ended = os.waitpid(request["poll"], os.WNOHANG)
        return {"status": ended if pid else None}
    return {"status": os.waitpid(request["wait"], 0)[1]}


def main() -> None:
    rehearsal.look_up()  # as the agent's warm parent does, and what follows: 20 ms less for each rank
    gc.collect()
    gc.freeze()  # torch's objects stay out of each rank's collections of garbage
    pages = HugePages()
    while not pages.done:  # a third of the work of a fork and of an end, of which there are thousands
        pages.take_one()
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)  # noqa: T201 (it is the answer)


if __name__ == "__main__":
    main()

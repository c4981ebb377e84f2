"""All members of `bench/servers.py`: forked from one process with torch in it, each into its own namespace."""

import ctypes
import json
import os
import signal
import socket
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch._dynamo  # the optimizers import it when they are first made, which takes seconds of each member
import trainmaster_trainer.rank
from trainmaster.wire import codec, names
from trainmaster.wire.messages import Member, Rendezvous, Roster
from trainmaster.wire.training import TrainingPlan

_NETWORK = 0x40000000  # CLONE_NEWNET
_PORT = 29400
_KEY = "a bench has nothing to hide"


class Place(NamedTuple):
    """Where a member runs."""

    namespace: str
    address: str


def main(answer: Path, workers: int, most: int, steps: int, places: list[Place]) -> int:
    """The same training with 1 to `most` servers; the exit code."""
    found = {}
    for servers in range(1, most + 1):
        with tempfile.TemporaryDirectory() as folder:
            found[servers] = _train(Path(folder), workers, places[: workers + servers], steps)
        print(f"{servers} servers: {found[servers]['steps_per_second']:.2f} steps/s", flush=True)
    answer.write_text(json.dumps(found))
    return 0


def _train(folder: Path, workers: int, places: list[Place], steps: int) -> dict[str, Any]:
    members = tuple(
        Member(_role(rank, workers), rank, 0, place.address, rank, 1, (_PORT,), 0) for rank, place in enumerate(places)
    )
    roster = Roster(1, members, places[0].address, Rendezvous(1, _KEY), independent=True)
    (folder / "roster").write_bytes(codec.encode(roster))
    root = str(Path(__file__).parents[2])
    plan = TrainingPlan(
        *("ParameterServer", {}, "bench.tasks:Wide"),
        steps=steps,
        global_batch_size=4 * workers,
        working_directory=root,
        checkpoint_every=steps,
    )
    pids = []
    for rank, place in enumerate(places):
        environment = {
            "RANK": str(rank),
            "WORLD_SIZE": str(len(places)),
            names.ENV_ROLE: _role(rank, workers),
            names.ENV_ROSTER: str(folder / "roster"),
            names.ENV_TRAINING: codec.encode(plan).decode(),
            names.ENV_CHECKPOINTS: str(folder),
            names.ENV_ATTEMPT: "1",
            names.ENV_JOB_UID: "bench",
        }
        pids.append(_start(place, environment))
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids[:workers]]
    for pid in pids[workers:]:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
    if any(codes):
        raise RuntimeError(f"workers ended with {codes}")
    return _figures(folder)


def _role(rank: int, workers: int) -> str:
    return names.WORKER if rank < workers else names.PARAMETER_SERVER


def _start(place: Place, environment: dict[str, str]) -> int:
    pid = os.fork()
    if not pid:
        code = 1
        try:
            _enter(place)
            os.environ.update(environment)
            listener = socket.create_server((place.address, _PORT), backlog=64)
            os.environ[names.ENV_LISTEN] = str(listener.detach())
            code = trainmaster_trainer.rank.main()
        except BaseException:  # noqa: BLE001 (whatever it is, the parent must go on)
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return pid


def _enter(place: Place) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(1, 9)  # our end is the parent's: nothing may stay in a namespace
    with Path(f"/run/netns/{place.namespace}").open() as entrance:
        assert not libc.setns(entrance.fileno(), _NETWORK), os.strerror(ctypes.get_errno())
    torch.set_num_threads(1)


def _figures(folder: Path) -> dict[str, Any]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    times = [line["time"] for line in lines if "loss" in line]
    first = len(times) // 5
    return {"steps_per_second": (len(times) - 1 - first) / (times[-1] - times[first])}


if __name__ == "__main__":
    chosen = [Place(*argument.split("=")) for argument in sys.argv[5:]]
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), chosen))

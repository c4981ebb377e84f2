"""A script of each framework, started by the framework's own launcher and by `trainmaster run`, with two processes.

Their environments are those of `make setup-frameworks`.
"""

import json
import os
import shlex
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.contestants import BIN, Run, started

CACHE = Path(os.environ.get("TRAINMASTER_CACHE", "~/.cache/trainmaster")).expanduser() / "frameworks"
SCRIPT = Path(__file__).parent / "scripts" / "framework_steps.py"
ENVIRONMENTS = {
    "Torch": BIN,
    **{name: CACHE / name.lower() / "bin" for name in ("TensorFlow", "Horovod", "MPI", "Ray")},
}
WAYS = ("by hand", "trainmaster")


def _ports(number: int) -> list[int]:
    with ExitStack() as kept:
        return [kept.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(number)]


def _torchrun(script: str, home: Path) -> str:
    return f"exec {home}/torchrun --standalone --nproc-per-node=2 --max-restarts=3 {script}"


def _shell_loop(script: str, home: Path) -> str:
    """What TensorFlow's guide has people write."""
    workers = [f"127.0.0.1:{port}" for port in _ports(2)]
    configs = [{"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}} for index in range(2)]
    lines = [f"TF_CONFIG={shlex.quote(json.dumps(config))} {home}/python {script} &" for config in configs]
    return "\n".join([*lines, "wait"])


def _horovodrun(script: str, home: Path) -> str:
    return f"exec {home}/horovodrun --gloo -np 2 {home}/python {script}"


def _mpirun(script: str, home: Path) -> str:
    allowed = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
    return f"exec env {allowed} {home}/mpirun --oversubscribe -np 2 {home}/python {script}"


def _ray(script: str, home: Path) -> str:
    """A head and another node, each with an address of its own, as on two machines."""
    (port,) = _ports(1)
    common = "--num-cpus=1 --disable-usage-stats"
    head = "--include-dashboard=false --temp-dir=$TRAINMASTER_BENCH_RUN/ray"  # its sockets need short paths
    return "\n".join(
        [
            f"{home}/ray start --head --port={port} --node-ip-address=127.0.0.2 {head} {common}",
            f"{home}/ray start --address=127.0.0.2:{port} --node-ip-address=127.0.0.3 {common}",
            f"RAY_ADDRESS=127.0.0.2:{port} exec {home}/python {script}",
        ]
    )


BY_HAND: dict[str, Callable[[str, Path], str]] = {
    "Torch": _torchrun,
    "TensorFlow": _shell_loop,
    "Horovod": _horovodrun,
    "MPI": _mpirun,
    "Ray": _ray,
}


def _job(framework: str, words: list[str], home: Path) -> dict[str, object]:
    launcher = [f"{home}/mpirun", "-np", "2", "--map-by", "node"] if framework == "MPI" else []
    python = "python" if framework == "Torch" else f"{home}/python"
    return {
        "apiVersion": "trainmaster.dev/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "bench"},
        "spec": {
            "strategy": {"type": "AllReduce"},
            "training": {"framework": framework, "command": [*launcher, python, *words]},
            "workers": {"replicas": 2},
        },
    }


@contextmanager
def running(framework: str, way: str, folder: Path) -> Iterator[Run]:
    """Start the script of a framework in one of the ways; end all of it afterwards."""
    folder.mkdir(parents=True)
    home, words = ENVIRONMENTS[framework], [str(SCRIPT), framework, str(folder)]
    if way == "trainmaster":
        (folder / "job.yaml").write_text(json.dumps(_job(framework, words, home)))
        command = [str(BIN / "trainmaster"), "run", str(folder / "job.yaml"), "--workdir", str(folder / "work")]
    else:
        command = ["sh", "-c", BY_HAND[framework](shlex.join(words), home)]
    with started(command, folder) as run:
        yield run

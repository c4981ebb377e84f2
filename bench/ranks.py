"""Start a script of `bench/scripts` once per rank of a group on this machine, and read what rank 0 wrote."""

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parent / "scripts"
PATIENCE = 500


def run_ranks(script: str, ranks: int, *arguments: object) -> Any:
    """The JSON that rank 0 wrote; a process for each rank.

    Raises:
        RuntimeError: a rank failed.
    """
    common = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    return _run(script, [{**common, "RANK": str(rank)} for rank in range(ranks)], arguments)


def run_script(script: str, *arguments: object, **environment: str) -> Any:
    """The JSON that it wrote; one process, which makes what ranks it needs.

    Raises:
        RuntimeError: it failed.
    """
    return _run(script, [environment], arguments)


def _run(script: str, environments: Sequence[dict[str, str]], arguments: Sequence[object]) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        command = [sys.executable, str(SCRIPTS / script), str(answer), *map(str, arguments)]
        processes = [
            subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1", **environment})
            for environment in environments
        ]
        try:
            codes = [process.wait(PATIENCE) for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
        if any(codes):
            raise RuntimeError(f"{script}: exit codes {codes}")
        return json.loads(answer.read_text())


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])

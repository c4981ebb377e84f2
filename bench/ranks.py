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


def run_ranks(script: str, ranks: int, *arguments: object, prefixes: Sequence[Sequence[str]] = (), **env: str) -> Any:
    """The JSON that rank 0 wrote. `prefixes`: per rank, what goes before its command (a network namespace).

    Raises:
        RuntimeError: a rank failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        command = [sys.executable, str(SCRIPTS / script), str(answer), *map(str, arguments)]
        common = {**os.environ, "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1", **env}
        common.setdefault("MASTER_ADDR", "127.0.0.1")
        common.setdefault("MASTER_PORT", str(_free_port()))
        processes = [
            subprocess.Popen([*(prefixes[rank] if prefixes else ()), *command], env={**common, "RANK": str(rank)})
            for rank in range(ranks)
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

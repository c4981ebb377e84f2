"""How the commands fare with 10,000 TrainingJobs in one namespace of a real API server: seconds and memory of each.

Each command is a process of its own, as a user starts it. BENCH_JOBS=500 takes a moment; a result file is written for
10,000 and more only.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml
from trainmaster.wire import names

from bench import results
from bench.metrics import JOB
from bench.operator_api import MERGE_PATCH, Api, Places
from bench.operator_world import CRD, jobs_path
from tests.cluster.apiserver import ApiServer
from tools.onebox import binaries

JOBS = int(os.environ.get("BENCH_JOBS", "10000"))
WHOLE = 10_000
ROUNDS = 3
NAMESPACE = "fleet"
LAST = f"job-{JOBS - 1:05}"
COMMANDS = {
    "list": ("list",),
    "list -A": ("list", "-A"),
    "list -o name": ("list", "-o", "name"),
    "list -o json": ("list", "-o", "json"),
    "list -o yaml": ("list", "-o", "yaml"),
    "status": ("status", LAST),
    "wait": ("wait", LAST, "--for", "Running"),
    "completion": ("completion", "bash"),
}
# Of wait4's figures the memory is that of whoever started the process, if that had more.
_PROGRAM = """
import re, sys
from trainmaster.cli.main import main
code = main(sys.argv[1:])
print(re.search("VmHWM.*", open("/proc/self/status").read())[0], file=sys.stderr)
sys.exit(code)
"""


def main() -> str:
    """Measure; gives the last line."""
    binaries.ensure()
    with tempfile.TemporaryDirectory() as scratch:
        server = ApiServer(Path(scratch))
        try:
            server.start()
            made = _fill(server)
            kubeconfig = server.kubeconfig(Path(scratch) / "kubeconfig")
            figures = {word: [_command(words, kubeconfig) for _ in range(ROUNDS)] for word, words in COMMANDS.items()}
        finally:
            server.stop()
    told = {
        word: {key: results.median([one[key] for one in runs]) for key in runs[0]} for word, runs in figures.items()
    }
    print(json.dumps(told), flush=True)
    if JOBS >= WHOLE:
        results.save("fleet", {"jobs": JOBS, "seconds_to_make_them": made, "rounds": ROUNDS, "commands": told})
    listed, one = told["list"], told["status"]
    return (
        f"fleet: of {JOBS} jobs, list takes {listed['seconds']:.1f} s and {listed['mebibytes']:.0f} MiB, "
        f"status {one['seconds']:.1f} s"
    )


def _fill(server: ApiServer) -> float:
    """Make the jobs, each with the status of one that trains. Return how long it took."""
    server.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", yaml.safe_load(CRD.read_text()))
    server.await_served(f"/apis/{names.API_VERSION}/{names.PLURAL}")
    server.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    began = time.monotonic()
    asyncio.run(_make(Places(server.url, server.token, str(server.certificate), "", 0, "", "")))
    return round(time.monotonic() - began, 1)


async def _make(places: Places) -> None:
    async with Api(places) as api:
        waiting = iter(range(JOBS))

        async def work() -> None:
            for number in waiting:
                name = f"job-{number:05}"
                await api.call("POST", jobs_path(NAMESPACE), {**JOB, "metadata": {"name": name}})
                path = f"{jobs_path(NAMESPACE)}/{name}/status"
                await api.call("PATCH", path, {"status": JOB["status"]}, MERGE_PATCH)

        await asyncio.gather(*(work() for _ in range(24)))


def _command(words: tuple[str, ...], kubeconfig: Path) -> dict[str, float]:
    """Run a command, and return its seconds, and the most memory that it had."""
    where = () if words[0] == "completion" or "-A" in words else ("-n", NAMESPACE)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *words, *where],
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )
    seconds = time.monotonic() - began
    return {"seconds": round(seconds, 2), "mebibytes": round(int(done.stderr.split()[-2]) / 1024, 1)}


if __name__ == "__main__":
    print(main())

"""SIGKILL of a process to the next step that its successor takes, by each framework itself and under `trainmaster run`.

What does not come back by itself within the limit is told as such: there is no ratio.
"""

import os
import signal
import tempfile
import time
from pathlib import Path

from bench import results
from bench.contestants import Run
from bench.framework_contestants import ENVIRONMENTS, WAYS, running

ROUNDS = 2
LIMIT_SECONDS = 30.0  # that a framework may take by itself; ours has no limit but that of a step
PATIENCE_SECONDS = 120.0


def main() -> str:
    """Measure; gives the last line."""
    seconds: dict[str, dict[str, list[float | None]]] = {name: {way: [] for way in WAYS} for name in ENVIRONMENTS}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        for number in range(ROUNDS):
            for name, found in seconds.items():
                for way in WAYS if number % 2 else reversed(WAYS):
                    found[way].append(_one(name, way, Path(scratch) / f"{name}-{way.replace(' ', '-')}-{number}"))
                    print(f"round {number + 1}: {name} {way} {found[way][-1]}", flush=True)
    results.save("framework_restart", {"seconds": seconds, "limit": LIMIT_SECONDS})
    return f"framework_restart: {', '.join(_told(name, found) for name, found in seconds.items())}"


def _one(name: str, way: str, folder: Path) -> float | None:
    with running(name, way, folder) as run:
        run.wait_for_step(20)
        victim = run.notes(1)[-1].pid
        killed = time.time()
        os.kill(victim, signal.SIGKILL)
        return _back(run, victim, killed, LIMIT_SECONDS if way == "by hand" else PATIENCE_SECONDS)


def _back(run: Run, victim: int, killed: float, limit: float) -> float | None:
    """The seconds until somebody takes the place of the process; None if nobody does, or all have ended."""
    while time.time() < killed + limit:
        ended = run.process.poll() is not None
        for note in run.notes(1):
            if note.pid != victim and note.time > killed:
                return note.time - killed
        if ended:
            return None
        time.sleep(0.05)
    return None


def _told(name: str, found: dict[str, list[float | None]]) -> str:
    ours, theirs = ([value for value in found[way] if value is not None] for way in ("trainmaster", "by hand"))
    alone = f"{results.median(theirs):.1f} s by itself" if theirs else "never by itself"
    return f"{name} {results.median(ours):.1f} s ({alone})" if ours else f"{name} never"

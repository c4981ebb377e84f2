"""From the command typed to the first step on both processes: `trainmaster run` against each framework's own launcher.

Warm file cache. Aim: at most 1.2 times the launcher's time.
"""

import tempfile
from pathlib import Path

from bench import results
from bench.framework_contestants import ENVIRONMENTS, WAYS, running

ROUNDS = 3


def main() -> str:
    """Measure; gives the last line."""
    seconds: dict[str, dict[str, list[float]]] = {name: {way: [] for way in WAYS} for name in ENVIRONMENTS}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        for number in range(ROUNDS + 1):  # the first one warms up
            for name, found in seconds.items():
                for way in WAYS if number % 2 else reversed(WAYS):
                    with running(name, way, Path(scratch) / f"{name}-{way.replace(' ', '-')}-{number}") as run:
                        found[way].append(run.wait_for_step(1) - run.started)
                    print(f"round {number}: {name} {way} {found[way][-1]:.2f} s", flush=True)
    ratios = {
        name: results.median([ours / theirs for theirs, ours in zip(*(found[way][1:] for way in WAYS), strict=True)])
        for name, found in seconds.items()
    }
    results.save("framework_start", {"seconds": seconds, "ratios": ratios, "worst": max(ratios.values())})
    told = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
    return f"framework_start: {told} times the launcher's time"

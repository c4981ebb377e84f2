"""`make soak`: whole runs of `trainmaster run` with random strategies, sizes and faults, each from a seed of its own.

It prints a line for each life and, for one with an anomaly, how to live it again; its folder is kept. The exit code is
the number of anomalies, at most 100.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

from trainmaster.wire import names

from tests.soak.drive import Lived
from tests.soak.lives import Life, life
from tests.soak.oracle import Calm, calm_of, problems


class Campaign:
    """Lives that share a warm parent and the calm runs that they are compared with; `calm` keeps these for others."""

    def __init__(self, folder: Path, calm: Path) -> None:
        self.folder = folder
        self.socket = folder / "warm"
        self._calm = calm
        calm.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, names.ENV_PARENT_PID: str(os.getpid())}
        command = [sys.executable, "-P", "-m", "trainmaster_trainer.agent.warm", "--socket", str(self.socket)]
        self._warm = subprocess.Popen(command, env=environment)

    def close(self) -> None:
        """End the warm parent."""
        self._warm.terminate()
        self._warm.wait()

    def live(self, one: Life) -> tuple[Lived, list[str]]:
        """Live it; return it with a sentence for each anomaly."""
        calm = self._calm_of(one)
        lived = Lived(one, self.folder / f"life-{one.seed}", self.socket)
        try:
            lived.live()
            found = problems(lived, calm)
        except (AssertionError, OSError, KeyError, ValueError) as error:
            found = [f"{type(error).__name__}: {error}"]
        return lived, found + lived.close()

    def _calm_of(self, one: Life) -> Calm:
        known = self._calm / hashlib.sha256(one.kind.encode()).hexdigest()
        if not known.exists():
            quiet = Lived(replace(one, faults=()), self.folder / f"calm-{one.seed}", self.socket)
            try:
                quiet.live()
                known.write_text(json.dumps(asdict(calm_of(quiet))))
            finally:
                quiet.close()
            shutil.rmtree(quiet.command.folder)
        return Calm.of(json.loads(known.read_text()))


def main() -> int:
    """Live as many lives as were asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--runs", type=int, default=300, help="how many lives (default %(default)s)")
    parser.add_argument("--first", type=int, default=1, help="the seed of the first one (default %(default)s)")
    parser.add_argument("--calm", type=Path, help="a folder that keeps what calm runs ended with, for other campaigns")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    campaign = Campaign(folder, options.calm or folder)
    ran: collections.Counter[str] = collections.Counter()
    began, anomalies = time.monotonic(), 0
    try:
        for seed in range(options.first, options.first + options.runs):
            one = life(seed)
            lived, found = campaign.live(one)
            ran["script" if one.is_script else one.job["spec"]["strategy"]["type"]] += 1
            anomalies += bool(found)
            _report(lived, found)
            if not found:
                shutil.rmtree(lived.command.folder)
    finally:
        campaign.close()
        if not anomalies:
            shutil.rmtree(campaign.folder)
    kinds = ", ".join(f"{count} {kind}" for kind, count in ran.most_common())
    print(f"{ran.total()} lives in {(time.monotonic() - began) / 60:.0f} minutes ({kinds}): {anomalies} anomalies")
    return min(anomalies, 100)


def _report(lived: Lived, found: list[str]) -> None:
    spec = lived.life.job["spec"]
    what = "a script" if lived.life.is_script else spec["strategy"]
    who = f"{spec['workers']['replicas']} x {spec['workers'].get('gpus', 1)}"
    print(f"{lived.life.seed}: {what} with {who}: {'; '.join(lived.told) or 'no fault came'}")
    for sentence in found:
        print(f"    ANOMALY {sentence}")
    if found:
        again = f"python -m tests.soak --runs 1 --first {lived.life.seed}"
        print(f"    kept in {lived.command.folder}; again: {again}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

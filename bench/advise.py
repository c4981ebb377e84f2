"""The cost model's predictions (`trainmaster advise`) against what the same strategies then do on this machine."""

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from bench import jobs, results
from bench.contestants import BIN

ROUNDS = 3
STEPS = 80
BATCH = 64
STRATEGIES: dict[str, tuple[dict[str, Any], int]] = {
    "OneDevice": ({"type": "OneDevice"}, 1),
    "AllReduce": ({"type": "AllReduce"}, 2),
    "LocalSGD": ({"type": "LocalSGD"}, 2),
    "FullySharded": ({"type": "FullySharded"}, 2),
    "Pipeline": ({"type": "Pipeline"}, 2),
}


def main() -> str:
    """Measure; gives the last line: the median of predicted over measured, nearest to 1 is best."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(ROUNDS):
            predicted = _predictions(Path(scratch) / f"advise-{number}")
            for name, (strategy, workers) in STRATEGIES.items():
                ran = jobs.run(jobs.a_job(strategy, workers, BATCH, STEPS), Path(scratch) / f"{name}-{number}")
                ratio = predicted[name] / ran.step_seconds
                rows.append({"strategy": name, "predicted": predicted[name], "measured": ran.step_seconds})
                print(f"round {number + 1}: {name} predicted / measured {ratio:.2f}", flush=True)
    ratios = [row["predicted"] / row["measured"] for row in rows]
    figures = {"rows": rows, "ratio": results.median(ratios), "lowest": min(ratios), "highest": max(ratios)}
    results.save("advise", figures)
    return f"advise: {results.median(ratios):.2f}x the measured step, from {min(ratios):.2f} to {max(ratios):.2f}"


def _predictions(folder: Path) -> dict[str, float]:
    path = jobs.write(jobs.a_job({"type": "AllReduce"}, 2, BATCH, STEPS), folder)
    done = subprocess.run(
        [BIN / "trainmaster", "advise", path, "--output", "json"], check=True, capture_output=True, text=True
    )
    return {line["strategy"]: line["stepSeconds"] for line in json.loads(done.stdout)["predictions"]}

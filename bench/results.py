"""Result files: what was measured, when, on what, under which load. `bench/results/NAME.json` is the newest run."""

import json
import os
import platform
import statistics
import tempfile
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    """Where and when: a ratio is only worth something with its load."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "load": [round(load, 2) for load in os.getloadavg()],
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def save(name: str, figures: dict[str, Any]) -> None:
    """Write the result file."""
    FOLDER.mkdir(exist_ok=True)
    text = json.dumps({"name": name, **machine(), **figures}, indent=1)
    (FOLDER / f"{name}.json").write_text(text + "\n")


def interleaved(names: Collection[str], rounds: int, measure: Callable[[str, Path], float]) -> dict[str, list[float]]:
    """Measure each name once a round, in turns of either order. Return the milliseconds of each, by round.

    `measure` gets the name and a folder of its own that does not exist yet.
    """
    millis: dict[str, list[float]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(rounds):
            for name in names if number % 2 else reversed(list(names)):
                millis[name].append(measure(name, Path(scratch) / f"{name}-{number}"))
                print(f"round {number + 1}: {name} {millis[name][-1]:.3f} ms", flush=True)
    return millis


def median(values: list[float]) -> float:
    """The middle."""
    return statistics.median(values)

"""Result files: what was measured, when, on what, under which load. `bench/results/NAME.json` is the newest run."""

import json
import os
import platform
import statistics
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


def median(values: list[float]) -> float:
    """The middle."""
    return statistics.median(values)

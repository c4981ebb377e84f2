"""What a scrape of /metrics costs with 1,000 running jobs, and what a heartbeat notices of it.

Aims: 200 ms of a core, and no turn of the event loop, in which heartbeats are answered, that is later than it is
without scrapes by more than 50 ms.
"""

import asyncio
import copy
import time
from statistics import median
from typing import Any

from trainmaster.cluster.jobs import JobRecord, read
from trainmaster.cluster.metrics import page
from trainmaster.cluster.metrics.instruments import Instruments

from bench import results

JOBS = 1000
ROUNDS = 5
SECONDS = 5.0
TURN_SECONDS = 0.001  # between two looks at the clock
JOB: dict[str, Any] = {
    "apiVersion": "trainmaster.dev/v1",
    "kind": "TrainingJob",
    "metadata": {"namespace": "team", "uid": "u", "resourceVersion": "7", "generation": 1},
    "spec": {
        "strategy": {"type": "AllReduce"},
        "training": {"task": "train:Pictures", "steps": 100000, "globalBatchSize": 256},
        "workers": {"replicas": 8, "gpus": 8},
    },
    "status": {
        "phase": "Running",
        "attempt": 3,
        "progress": {"step": 4711, "totalSteps": 100000, "loss": 0.25, "samplesPerSecond": 1000.0, "eta": "1h20m"},
        "checkpoint": {"step": 4000, "time": "2026-11-25T12:00:00Z", "sha256": "0" * 64, "seconds": 1.5},
        "replicas": {"ready": 8, "desired": 8},
        "goodput": {"waiting": 1.0, "starting": 2.0, "training": 1000.0, "saving": 1.0, "recovering": 3.0},
        "restartCount": 2,
        "restarts": [
            {"attempt": attempt, "time": "2026-11-25T12:00:00Z", "class": "Signal", "stepsLost": 2, "secondsLost": 0.5}
            for attempt in (1, 2)
        ],
    },
}


def main() -> str:
    """Measure; gives the last line."""
    records = [_record(number) for number in range(JOBS)]
    instruments = Instruments()
    text = page._make(instruments, records)
    costs = []
    for _ in range(ROUNDS):
        began = time.process_time()
        page._make(instruments, records)
        costs.append(time.process_time() - began)
    calm, scraped = [], []
    for _ in range(ROUNDS):
        calm.append(asyncio.run(_latest_turn(None)))
        scraped.append(asyncio.run(_latest_turn(page.MetricsPage(instruments, lambda: records))))
    figures = {
        "jobs": JOBS,
        "bytes": len(text),
        "cpu_seconds": costs,
        "latest_turn_calm": calm,
        "latest_turn_scraped": scraped,
    }
    results.save("metrics", figures)
    late = median(b - a for a, b in zip(calm, scraped, strict=True))
    return f"metrics: {1000 * median(costs):.0f} ms of a core a scrape, a turn is {1000 * late:.0f} ms later at worst"


def _record(number: int) -> JobRecord:
    document = copy.deepcopy(JOB)
    document["metadata"]["name"] = f"job-{number}"
    return read(document)


async def _latest_turn(scraped: page.MetricsPage | None) -> float:
    """Return by how many seconds the latest of all turns came late, while somebody scrapes all the time or nobody."""

    async def scrape(made: page.MetricsPage) -> None:
        while True:
            await made.text()
            await asyncio.sleep(page.FRESH_SECONDS)

    scraping = asyncio.create_task(scrape(scraped)) if scraped else None
    latest, end = 0.0, time.monotonic() + SECONDS
    while (due := time.monotonic() + TURN_SECONDS) < end:
        await asyncio.sleep(TURN_SECONDS)
        latest = max(latest, time.monotonic() - due)
    if scraping:
        scraping.cancel()
        await asyncio.gather(scraping, return_exceptions=True)
    return latest


if __name__ == "__main__":
    print(main())

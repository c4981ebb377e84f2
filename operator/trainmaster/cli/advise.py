"""Run `trainmaster advise JOB.yaml`: measure a few steps here, and say whether distributing pays, by which strategy."""

import json
import os
import re
from pathlib import Path
from typing import Any

from trainmaster.advice import recommendation
from trainmaster.advice.recommendation import Comparison
from trainmaster.advice.units import in_bytes, in_seconds
from trainmaster.api.job import TrainingJob
from trainmaster.cli.check import EXIT_BAD, EXIT_GOOD, load_or_report
from trainmaster.cli.measuring import MeasureError, measure
from trainmaster.cli.terminal import complain, tell
from trainmaster.wire.measured import MachineFacts

_HEADER = ("strategy", "ranks", "step", "compute", "exchange", "samples/s", "speed-up", "memory")
_BITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}


def advise(path: str, network: str | None, output: str) -> int:
    """Run the command, and return its exit code.

    `network` is a bandwidth as in 10Gbit; None: measure this machine's exchange.
    """
    try:
        link = bandwidth(network) if network else None
    except ValueError as error:
        complain(f"--network: {error}")
        return EXIT_BAD
    job = load_or_report(Path(path))
    if job is None:
        return EXIT_BAD
    if job.spec.training.task is None:
        complain(f"{path}: spec.training.command: a script cannot be looked into; advise needs a task.")
        return EXIT_BAD
    complain("Measuring this machine with the job's own model; some seconds ...")
    try:
        measured = measure(job, Path(path).resolve().parent, machine=True)
    except MeasureError as error:
        complain(f"{path}: {error}")
        return EXIT_BAD
    machine = measured.machine
    if machine is None or not machine.exchange:
        complain(f"{path}: two ranks could not exchange anything on this machine.")
        return 1
    if link:
        machine = recommendation.over_network(machine, link, job.spec.worker_ranks)
    comparisons = recommendation.compare(job, measured.model, machine)
    # The memory of GPUs is not known here.
    memory = None if machine.device == "GPU" else float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    conclusion = recommendation.conclusion(comparisons, memory)
    text = (
        json.dumps(
            {"predictions": [_plain(comparison) for comparison in comparisons], "conclusion": conclusion}, indent=2
        )
        if output == "json"
        else _as_text(job, machine, comparisons, conclusion)
    )
    tell(text.split("\n"))
    return EXIT_GOOD


def bandwidth(text: str) -> float:
    """Return the bytes per second of a bandwidth such as `10Gbit` or `100Mbit`.

    Raises:
        ValueError: the text is no bandwidth.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)bit(?:/s)?", text.strip().lower())
    if not found or float(found[1]) <= 0:
        raise ValueError(f"{text!r} is no bandwidth; write it like 10Gbit or 100Mbit")
    return float(found[1]) * _BITS[found[2]] / 8


def _as_text(job: TrainingJob, machine: MachineFacts, comparisons: list[Comparison], conclusion: str) -> str:
    rows = [_HEADER, *(_row(comparison) for comparison in comparisons)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    plural = "s" if machine.devices > 1 else ""
    batch = job.spec.training.global_batch_size or 0
    head = f"{job.name}: {machine.devices} {machine.device}{plural}; predictions for batches of {batch} samples"
    return "\n".join([head, "", *table, "", conclusion])


def _row(comparison: Comparison) -> tuple[str, ...]:
    prediction = comparison.prediction
    return (
        prediction.candidate.strategy,
        str(prediction.candidate.group.ranks),
        in_seconds(prediction.step_seconds),
        in_seconds(prediction.compute),
        in_seconds(prediction.exchange) if prediction.exchange else "-",
        f"{prediction.samples_per_second:.4g}",
        f"{comparison.speedup:.2f}",
        in_bytes(comparison.memory),
    )


def _plain(comparison: Comparison) -> dict[str, Any]:
    prediction = comparison.prediction
    return {
        "strategy": prediction.candidate.strategy,
        "ranks": prediction.candidate.group.ranks,
        "stepSeconds": prediction.step_seconds,
        "computeSeconds": prediction.compute,
        "exchangeSeconds": prediction.exchange,
        "samplesPerSecond": prediction.samples_per_second,
        "speedup": comparison.speedup,
        "memoryBytes": comparison.memory,
    }

"""The data-parallel family through `trainmaster run`: one word is changed, and the same losses come out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.local.command import Command, a_job

ONE_WORKER = {"replicas": 1, "gpus": 2}
TWO_WORKERS = {"replicas": 2}
STRATEGIES: list[tuple[dict[str, Any], dict[str, int]]] = [
    ({"type": "Mirrored"}, ONE_WORKER),
    ({"type": "Mirrored", "mirrored": {"reduction": "HierarchicalCopy"}}, ONE_WORKER),
    ({"type": "Mirrored", "mirrored": {"reduction": "OneDevice"}}, ONE_WORKER),
    ({"type": "CentralStorage"}, ONE_WORKER),
    ({"type": "AllReduce", "allReduce": {"algorithm": "Native"}}, TWO_WORKERS),
    ({"type": "AllReduce", "allReduce": {"algorithm": "Ring"}}, TWO_WORKERS),
    ({"type": "AllReduce", "allReduce": {"algorithm": "Hierarchical"}}, {"replicas": 2, "gpus": 2}),
    ({"type": "AllReduce", "allReduce": {"algorithm": "Driver"}}, TWO_WORKERS),
    ({"type": "LocalSGD", "localSGD": {"every": 1}}, TWO_WORKERS),  # plain SGD inside: the same as a step
]


def losses(command: Command) -> list[float]:
    """Of all steps."""
    lines = (command.workdir / "checkpoints" / "metrics.jsonl").read_text().splitlines()
    return [line["loss"] for line in map(json.loads, lines) if "loss" in line]


@pytest.fixture(scope="module")
def expected() -> list[float]:
    """Of the first strategy that ran: whichever it is, all others must have the same."""
    return []


@pytest.mark.parametrize(("strategy", "workers"), [({"type": "OneDevice"}, {"replicas": 1}), *STRATEGIES], ids=str)
def test_the_word_is_changed_and_nothing_else(
    command: Command, expected: list[float], strategy: dict[str, Any], workers: dict[str, int]
) -> None:
    assert command.start(a_job(12, workers, strategy=strategy)).end() == 0, command.stderr
    found = losses(command)
    assert len(found) == 12
    expected[:] = expected or found
    assert found == pytest.approx(expected, rel=1e-5)
    assert command.status["phase"] == "Succeeded"

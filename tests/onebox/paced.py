"""Trainings of the digits for the tests of the operator: one that ends, and one whose steps sleep.

Steps that sleep leave the machine to others while a test looks at what becomes of them. With no sleep the model is the
same, so that an undisturbed job comes to the bits of a disturbed one in seconds.
"""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]

DIGITS: Document = {
    "task": "trainmaster_trainer.tasks.digits:Digits",
    "arguments": {"hidden": 64},
    "steps": 300,
    "globalBatchSize": 64,
    "seed": 1,
}
TASK = "paced:Paced"
CONFIG_MAP: Document = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "task"},
    "data": {
        "paced.py": """
import time
from trainmaster_trainer.tasks.digits import Digits

class Paced(Digits):
    def __init__(self, seconds=0.0):
        super().__init__(hidden=32)
        self.seconds = seconds

    def loss(self, outputs, targets):
        time.sleep(self.seconds)
        return super().loss(outputs, targets)
"""
    },
}
WORKERS: Document = {"replicas": 2, "memory": "1500Mi"}
MOUNTED: Document = {
    "template": {
        "spec": {
            "volumes": [{"name": "task", "configMap": {"name": "task"}}],
            "containers": [{"name": "trainer", "volumeMounts": [{"name": "task", "mountPath": "/workspace"}]}],
        }
    },
}
"""What each role of a job needs that trains `TASK`, beside `CONFIG_MAP`."""


def paced(steps: int = 1_000_000, seconds: float = 0.0) -> Document:
    """Describe a training each of whose steps sleeps so long."""
    return {**DIGITS, "task": TASK, "arguments": {"seconds": seconds}, "steps": steps, "globalBatchSize": 16}


# Never over before a test has looked at it; its namespace ends it. (The status tells of steps every ten seconds only.)
ENDLESS = paced(seconds=0.1)

"""A training of the digits whose steps sleep: it is not over before a test is, and leaves the machine to others.

With no sleep it has the same model, so that an undisturbed job comes to the bits of a disturbed one in seconds.
"""

from __future__ import annotations

from tests.onebox.operator_jobs import DIGITS, ENDLESS, Document

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
WORKERS: Document = {
    "replicas": 2,
    "memory": "1500Mi",
    "template": {
        "spec": {
            "volumes": [{"name": "task", "configMap": {"name": "task"}}],
            "containers": [{"name": "trainer", "volumeMounts": [{"name": "task", "mountPath": "/workspace"}]}],
        }
    },
}


def paced(steps: int = ENDLESS["steps"], seconds: float = 0.0) -> Document:
    """Describe a training each of whose steps sleeps so long."""
    arguments = {"seconds": seconds}
    return {**DIGITS, "task": "paced:Paced", "arguments": arguments, "steps": steps, "globalBatchSize": 16}

"""A sweep of jobs on a real cluster: it goes on after Ctrl-C, and finds the best by the best value of a run."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.onebox.flavours import Flavour
from tests.onebox.paced import DIGITS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def test_a_sweep_goes_on_after_ctrl_c(cluster: Flavour, namespace: str, tmp_path: Path) -> None:
    training = {**DIGITS, "steps": 6, "evaluateEverySteps": 2}
    best = {"best": {"metric": "accuracy", "mode": "max"}}
    spec = {"strategy": {"type": "OneDevice"}, "training": training, "checkpoint": best}
    document = {"apiVersion": "trainmaster.dev/v1", "kind": "TrainingJob", "metadata": {"name": "mine"}, "spec": spec}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(document))

    def start() -> subprocess.Popen[str]:
        words = ["sweep", "job.yaml", "--over", "training.seed=1,2", "--parallel", "1", "--metric", "accuracy"]
        return subprocess.Popen(
            [sys.executable, "-m", "trainmaster", *words, "--no-code", "--namespace", namespace],
            cwd=tmp_path,
            env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    first = start()
    assert first.stderr
    for line in first.stderr:
        if line.startswith("mine-sweep-02 begins"):
            break
    first.send_signal(signal.SIGINT)
    told = first.communicate(timeout=200)[1]
    assert (first.returncode, "1 of 2 are done. The same command goes on" in told) == (130, True), told
    again = start()
    out, err = again.communicate(timeout=300)
    assert again.returncode == 0, err
    assert "mine-sweep-01 begins" not in err
    assert "Best by accuracy (" in out
    names = cluster.kubectl("get", "tj", "--namespace", namespace, "--output=name").split()
    assert len(names) == 2

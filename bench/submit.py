"""From a folder of 200 files to the first step on the one-machine cluster: `trainmaster submit` against an image.

In turn, each with two ranks in two pods (`tools/onebox`; root):

- submit: the folder travels with the job.
- image: the same files lie in an image that both nodes have already, and `kubectl apply` makes the job. Building,
  pushing and pulling it, which each change of a line would need, is not counted.
- bare: `kubectl apply` of a job whose program stands in its command line, in the trainer image: no files at all.

Seconds count from the start of the command to the time when the last rank has ended its first all-reduce, on this
machine's clock, which the pods share. Aim: submit takes at most 1 s more than image.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from bench import results
from bench.pod_cluster import a_cluster
from tools.onebox import Cluster, images, node
from tools.onebox.paths import NODE_NAMES, TRAINER_IMAGE

ROUNDS = 5
FILES = 200
NAMESPACE = "bench-submit"
IMAGE = "docker.io/trainmaster/bench-submit:dev"
CODE_IN_IMAGE = "/code"
REPLICAS = 2
CONTESTANTS = ("submit", "image", "bare")
_WAIT = "--timeout=180s"

Document = dict[str, Any]

STEP = """
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
print("first step at", time.time(), flush=True)
"""
MODULES = FILES - 2
IMPORTS = f"import importlib\nfor number in range({MODULES}):\n    importlib.import_module(f'parts.part{{number}}')\n"


def main() -> str:
    """Measure; gives the last line."""
    seconds: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    with tempfile.TemporaryDirectory() as scratch, a_cluster(NAMESPACE) as cluster, contextlib.ExitStack() as after:
        cluster.kubectl("create", "namespace", NAMESPACE)
        cluster.kubectl("wait", "serviceaccount/default", f"--namespace={NAMESPACE}", "--for=create", _WAIT)
        folder = Path(scratch) / "code"
        _write_code(folder)
        images.build_above(IMAGE, TRAINER_IMAGE, folder, CODE_IN_IMAGE)
        after.callback(images.forget, IMAGE)
        for name in NODE_NAMES:
            node.refresh(name, IMAGE)
        for name in CONTESTANTS:
            _one(cluster, folder, name, f"{name}-warm-up")
        for number in range(ROUNDS):
            for name in CONTESTANTS if number % 2 else reversed(CONTESTANTS):
                seconds[name].append(_one(cluster, folder, name, f"{name}-{number}"))
                print(f"round {number + 1}: {name} {seconds[name][-1]:.2f} s", flush=True)
    more = [ours - theirs for ours, theirs in zip(seconds["submit"], seconds["image"], strict=True)]
    figures = {"seconds": seconds, "more": more, "median_more": results.median(more), "worst": max(more)}
    results.save("submit", figures)
    return f"submit: {results.median(more):+.2f} s against the same code in an image ({max(more):+.2f} at worst)"


def _write_code(folder: Path) -> None:
    (folder / "parts").mkdir(parents=True)
    (folder / "parts" / "__init__.py").write_text("")
    for number in range(MODULES):
        lines = "".join(f"def function{line}():\n    return {number * line}\n\n\n" for line in range(50))
        (folder / "parts" / f"part{number}.py").write_text(lines)
    (folder / "train.py").write_text(IMPORTS + STEP)


def _one(cluster: Cluster, folder: Path, contestant: str, name: str) -> float:
    file = folder.parent / "job.yaml"
    file.write_text(yaml.safe_dump(_job(contestant, name)))
    began = time.time()
    if contestant == "submit":
        command = [
            sys.executable,
            "-m",
            "trainmaster",
            "submit",
            str(file),
            "--code",
            str(folder),
            "--namespace",
            NAMESPACE,
        ]
        environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
        subprocess.run(command, env=environment, check=True, capture_output=True)
    else:
        cluster.kubectl("apply", f"--filename={file}", f"--namespace={NAMESPACE}")
    in_place = f"--namespace={NAMESPACE}"
    cluster.kubectl("wait", f"tj/{name}", "--for=jsonpath={.status.phase}=Succeeded", _WAIT, in_place)
    listed = json.loads(
        cluster.kubectl("get", "pods", f"--selector=trainmaster.dev/job={name}", "--output=json", in_place)
    )
    logs = [
        cluster.kubectl("logs", pod["metadata"]["name"], "--container=trainer", in_place) for pod in listed["items"]
    ]
    ended = [float(found[1]) for log in logs if (found := re.search(r"first step at ([0-9.]+)", log))]
    assert len(ended) == REPLICAS, logs
    cluster.kubectl("delete", "tj", name, in_place)
    return max(ended) - began


def _job(contestant: str, name: str) -> Document:
    workers: Document = {"replicas": REPLICAS}
    training: Document = {"command": ["python3", "train.py"]}
    if contestant == "image":
        workers |= {"image": IMAGE, "imagePullPolicy": "IfNotPresent"}
        training["workingDirectory"] = CODE_IN_IMAGE
    if contestant == "bare":
        training["command"] = ["python3", "-c", STEP]
    spec = {"strategy": {"type": "AllReduce"}, "training": training, "workers": workers}
    return {"apiVersion": "trainmaster.dev/v1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": spec}

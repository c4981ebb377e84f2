"""What users are told of a job of another framework, before it runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from trainmaster.advice.explanation import explain
from trainmaster.advice.framework_words import WORDS
from trainmaster.cli.script_check import devices_hint_of, hint_of, spawning_hint_of
from trainmaster.cli.texts import headline

from tests.builders import JobBuilder, a_job


def a_script(framework: str) -> JobBuilder:
    """A job of a script."""
    return a_job().where(training={"command": ["python", "train.py"], "framework": framework}).with_workers(2, gpus=2)


@pytest.mark.parametrize("name", WORDS)
def test_a_framework_is_explained_in_its_own_words(name: str) -> None:
    job = a_script(name).build()
    told = "\n".join(line for _, lines in explain(job, None) for line in lines)
    assert WORDS[name].finds in told
    assert WORDS[name].decides in told
    assert "gradients are" not in told, "that is of tasks"
    assert "$TRAINMASTER_CHECKPOINTS is a folder for them" in told
    assert not any(words in told for words in ("torch takes", "session.state", "every 50 steps")), "that is of torch"
    assert f"by {name} (AllReduce) on 2 workers" in headline(job)


def test_ranks_are_counted_as_the_framework_has_them() -> None:
    assert "2 ranks each" in headline(a_script("JAX").build())
    assert "ranks each" not in headline(a_script("TensorFlow").build())


@pytest.mark.parametrize(
    ("text", "framework", "said"),
    [
        ("import jax\n", "Torch", "train.py imports JAX and not Torch: set it to JAX"),
        ("import os\nfrom xgboost import collective\n", "JAX", "train.py imports XGBoost and not JAX"),
        ("import torch, os\nimport xgboost\n", "Torch", ""),
        ("import tensorflow as tf\n", "TensorFlow", ""),
        ("import numpy\n", "Torch", ""),
    ],
)
def test_a_script_that_plainly_imports_another_one_gets_a_hint(
    tmp_path: Path, text: str, framework: str, said: str
) -> None:
    (tmp_path / "train.py").write_text(text)
    hint = hint_of(a_script(framework).build(), tmp_path)
    assert hint.startswith(said)
    assert bool(hint) == bool(said)


def test_the_hint_says_whether_a_run_would_refuse_the_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import xgboost\n")
    refused = "set it to XGBoost; as it is, the job would fail at its start"
    assert hint_of(a_script("Torch").build(), tmp_path).endswith(refused)
    assert refused not in hint_of(a_script("Torch").with_workers(1, gpus=1).build(), tmp_path)
    (tmp_path / "train.py").write_text("import xgboost, transformers\n")
    assert refused not in hint_of(a_script("Torch").build(), tmp_path)


def test_a_script_that_serves_where_nobody_leads_gets_a_hint(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import tensorflow as tf\ntf.distribute.Server(cluster).join()\n")
    under_all_reduce = a_script("TensorFlow")
    assert "under AllReduce no process is the chief" in hint_of(under_all_reduce.build(), tmp_path)
    served = under_all_reduce.where(strategy={"type": "ParameterServer"}, parameterServers={"replicas": 1})
    assert hint_of(served.build(), tmp_path) == ""


def test_a_script_that_is_in_the_image_gets_none(tmp_path: Path) -> None:
    assert hint_of(a_script("Torch").build(), tmp_path) == ""


SPAWNS = {
    "import torch.multiprocessing as mp\ndef main():\n    mp.spawn(train, nprocs=4)\nmain()\n": "mp.spawn",
    "import os, torch\nos.environ['RANK'] = '0'\nif __name__ == '__main__':\n    torch.multiprocessing.spawn(f)\n": (
        "torch.multiprocessing.spawn"
    ),
    "from torch.multiprocessing import start_processes as go\nwith a:\n    context = go(train, join=False)\n": "go",
    "import torch.multiprocessing as mp\nif torch.cuda.device_count() > 1:\n    mp.spawn(train)\n": "",
    "import os, torch.multiprocessing as mp\nprint(os.environ.get('LOCAL_RANK'))\nmp.spawn(train)\n": "",
    "import torch.multiprocessing as mp\ndef main(a):\n    if a.one:\n        return f()\n    mp.spawn(f)\n": "",
    "import multiprocessing as mp\nmp.spawn(train)\n": "",
    "mp.spawn(\n": "",
}


@pytest.mark.parametrize(("text", "call"), SPAWNS.items())
def test_a_script_that_spawns_processes_in_each_rank_gets_a_hint_where_that_is_plain(
    tmp_path: Path, text: str, call: str
) -> None:
    (tmp_path / "train.py").write_text(text)
    hint = spawning_hint_of(a_script("Torch").build(), tmp_path)
    assert hint.startswith(f"train.py calls {call}: each of the 4 ranks starts" if call else "")
    assert bool(hint) == bool(call)
    assert spawning_hint_of(a_script("Torch").with_workers(1, gpus=1).build(), tmp_path) == ""


@pytest.mark.parametrize(
    ("per_node", "gpus", "here", "said"),
    [
        ("gpu", 0, ("0", "1"), "counts GPUs, and spec.workers.gpus asks for none: the job would fail at its start"),
        ("gpu", 2, (), "this machine has 0 of the 2 that the job asks for: a run here would fail at its start"),
        ("gpu", 2, ("0", "1"), ""),
        ("auto", 1, ("0",), ""),
        ("auto", 0, (), f"asks for none, so that it counts cores ({os.cpu_count()} here): the job would fail at its"),
        ("2", 0, (), ""),
    ],
)
def test_torchrun_that_counts_gpus_which_nobody_gives_gets_a_hint(
    per_node: str, gpus: int, here: tuple[str, ...], said: str
) -> None:
    # More workers than this machine has cores.
    job = a_job().where(training={"command": ["torchrun", f"--nproc_per_node={per_node}", "train.py"]})
    workers = 1 if gpus else (os.cpu_count() or 1) + 1
    hint = devices_hint_of(job.with_workers(workers, gpus=gpus).build(), here)
    assert said in hint
    assert bool(hint) == bool(said)

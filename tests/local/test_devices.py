"""Which GPUs of this machine a local replica is given."""

from __future__ import annotations

from pathlib import Path

import pytest
from trainmaster.api.job import TrainingJob
from trainmaster.api.roles import ReplicaSpec
from trainmaster.local.devices import device_environment, devices_here, short_of_devices, too_few

from tests.local.command import a_job


@pytest.fixture
def four(tmp_path: Path) -> Path:
    """A machine with four GPUs, by its device files; nvidiactl is none."""
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidia3", "nvidiactl"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("environ", "here"),
    [
        ({}, ("0", "1", "2", "3")),
        ({"CUDA_VISIBLE_DEVICES": "2,3"}, ("2", "3")),
        ({"CUDA_VISIBLE_DEVICES": " GPU-5d1c , 1"}, ("GPU-5d1c", "1")),
        ({"CUDA_VISIBLE_DEVICES": ""}, ()),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, ()),
    ],
    ids=str,
)
def test_the_shells_choice_of_gpus_is_kept(four: Path, environ: dict[str, str], here: tuple[str, ...]) -> None:
    """Others use the rest of the machine."""
    assert devices_here(environ, four) == here


def test_each_replica_sees_its_own_gpus() -> None:
    """Of those that the shell may use; with too few, nobody sees any."""
    pair = ReplicaSpec(replicas=2, gpus=2)
    assert device_environment(("4", "5", "6", "7"), pair, 1) == {"CUDA_VISIBLE_DEVICES": "6,7"}
    assert device_environment(("4", "5", "6"), pair, 0) == {"CUDA_VISIBLE_DEVICES": ""}
    assert device_environment((), pair, 0) == {}


def test_too_few_gpus_are_told_with_the_field() -> None:
    """No GPU at all is a laptop, which is not worth a word."""
    job = TrainingJob.model_validate(a_job(workers={"replicas": 2, "gpus": 2}))
    assert too_few(job, ()) is None
    assert too_few(job, ("0", "1", "2", "3")) is None
    told = too_few(job, ("0",))
    assert told is not None
    assert short_of_devices(("0",), job.spec.workers)
    assert not short_of_devices((), ReplicaSpec()), "who asks for none has enough"
    assert "spec.workers.gpus: the job asks for 4 GPUs and this machine has 1" in told

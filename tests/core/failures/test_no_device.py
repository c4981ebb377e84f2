"""A program that wants a GPU which its job did not ask for has a mistake in its job, and no broken node."""

import dataclasses

import pytest
from trainmaster.core.failures import failures
from trainmaster.wire import names
from trainmaster.wire.messages import ErrorReport, ExitReport

from tests.builders import a_job, a_replica, a_slot, an_error
from tests.core.stage import Stage, a_running_group

NO_DRIVER = "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("RuntimeError", NO_DRIVER),
        ("AcceleratorError", "CUDA error: no CUDA-capable device is detected"),
        ("RuntimeError", "No CUDA GPUs are available"),
        ("ValueError", "ProcessGroupNCCL is only supported with GPUs, no GPUs found!"),
        ("AssertionError", "Torch not compiled with CUDA enabled"),
    ],
)
def test_a_gpu_that_nobody_asked_for_ends_the_job_at_once(kind: str, message: str) -> None:
    stage = a_running_group(workers=1).rank_dies("worker-0", an_error(message, kind=kind))
    assert (stage.status.phase, stage.status.reason) == ("Failed", "BadConfiguration")
    assert message.split(". ", maxsplit=1)[0] in (stage.status.message or "")
    assert "set spec.workers.gpus" in (stage.status.message or "")


def test_a_gpu_that_was_asked_for_is_its_nodes_fault() -> None:
    stage = Stage(a_job().with_workers(1, gpus=1)).train(1).rank_dies("worker-0", _death(NO_DRIVER))
    assert stage.status.phase != "Failed"
    (line,) = stage.status.restarts
    assert (line.failure_class, "gpus" in (line.evidence or "")) == ("DeviceFault", False)


def test_a_fault_of_a_gpu_that_nobody_asked_for_stays_a_fault() -> None:
    """As of an image that sees all GPUs of its node: the device was there."""
    failure = failures.of_rank(
        a_slot(a_replica(), devices=0), _death("CUDA error: uncorrectable ECC error encountered")
    )
    assert failure.failure_class == "DeviceFault"


def test_a_machine_that_has_fewer_gpus_is_not_tried_again() -> None:
    short = dataclasses.replace(a_replica(), short_of_devices=True)
    failure = failures.of_rank(a_slot(short), _death(NO_DRIVER))
    assert failure.failure_class == "Configuration"
    assert "this machine has fewer GPUs than spec.workers.gpus asks for" in failure.evidence


def test_a_server_has_a_field_of_its_own() -> None:
    server = a_replica(role=names.PARAMETER_SERVER)
    assert "set spec.parameterServers.gpus" in failures.of_rank(a_slot(server, devices=0), _death(NO_DRIVER)).evidence


def _death(message: str) -> ExitReport:
    return ExitReport(1, 0, 10, exit_code=1, error=ErrorReport("RuntimeError", message, "train.py:12 in step"))

"""What workers of ParameterServer push may be smaller: nothing is lost for good, and the accuracy is reached."""

from collections.abc import Iterator

import pytest
import torch
from trainmaster_trainer.checkpoint.load import read
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.flat_buffers import FlatLayout
from trainmaster_trainer.strategies.parameter_server.compression import METHODS, Packer, check, unpack_all

from tests.trainer.crew import Crew
from tests.trainer.ranks import NewJob, Options

LAYOUT = FlatLayout(
    {
        "a": (torch.float32, (40, 50)),
        "b": (torch.float32, (7,)),
        "c": (torch.bfloat16, (9,)),
        "d": (torch.complex64, (30,)),
    }
)


@pytest.mark.parametrize("name", ["None", *METHODS])
def test_what_is_left_out_is_sent_later(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    gradient = LAYOUT.pack(
        {key: torch.randn(view.shape, generator=generator, dtype=view.dtype) for key, view in views().items()}
    )
    packer = Packer(name, LAYOUT)
    total = LAYOUT.empty()
    for _ in range(400):
        received = unpack_all(name, packer.pack(gradient), LAYOUT)
        for summed, part in zip(total, received, strict=True):
            assert part.dtype == summed.dtype
            summed.add_(part / 400)
    for dtype, summed, part in zip(LAYOUT.dtypes, total, gradient, strict=True):
        assert dtype == torch.bfloat16 or torch.allclose(summed, part, atol=0.3), (name, dtype)


def views() -> dict[str, torch.Tensor]:
    return LAYOUT.views(LAYOUT.empty())


@pytest.mark.parametrize(("name", "least"), [("BF16", 1.9), ("INT8", 3.9), ("TopK", 45.0)])
def test_it_is_as_small_as_it_says(name: str, least: float) -> None:
    layout = FlatLayout({"a": (torch.float32, (300, 1024))})
    gradient = [torch.randn(300 * 1024)]
    packed = Packer(name, layout).pack(gradient)
    assert gradient[0].nbytes / sum(tensor.nbytes for tensor in packed) > least


def test_what_comes_behind_the_gradients_stays() -> None:
    behind = torch.arange(3)
    received = unpack_all("INT8", [*Packer("INT8", LAYOUT).pack(LAYOUT.empty()), behind], LAYOUT)
    assert torch.equal(received[-1], behind)
    assert len(received) == 4


def test_power_sgd_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"spec\.strategy\.compression: PowerSGD is not for ParameterServer"):
        check("PowerSGD")


@pytest.fixture
def crews() -> Iterator[list[Crew]]:
    """Whoever is left of them at the end is killed."""
    crews: list[Crew] = []
    yield crews
    for crew in crews:
        crew.close()


@pytest.mark.parametrize("name", ["BF16", "INT8"])
def test_complex_gradients_keep_their_imaginary_part(new_job: NewJob, crews: list[Crew], name: str) -> None:
    plan: Options = {"task": "odd_tasks:WithPhases", "steps": 10, "checkpoint_every": 10}
    expected = new_job("one", strategy="OneDevice", **plan).run(1)
    options = {"update": "Sync", "compression": name}
    crews.append(Crew(new_job("pushed", strategy="ParameterServer", strategy_options=options, **plan), 1, 1))
    found = crews[0].start().finish()
    one, two = (read(job.checkpoints(), 10).state.tensors["model/waves"] for job in (expected, found))
    assert torch.allclose(one, two, atol=0.01), (one, two)


@pytest.mark.parametrize(("name", "least"), [("BF16", 0.95), ("INT8", 0.95), ("TopK", 0.85)])
def test_the_accuracy_is_reached(new_job: NewJob, crews: list[Crew], name: str, least: float) -> None:
    job = new_job(
        strategy="ParameterServer",
        strategy_options={"update": "Async", "maxStaleness": 1, "compression": name},
        task="trainmaster_trainer.tasks.digits:Digits",
        arguments={"hidden": 256},
        steps=200,
        global_batch_size=128,
        checkpoint_every=200,
    )
    crews.append(Crew(job, 2, 2))
    assert crews[0].start().finish().result()["metrics"]["accuracy"] > least

"""Samples that come one after the other: each once per epoch, for any number of data workers, ranks and restarts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from trainmaster.cli.audit import audit
from trainmaster.wire.training import TrainingPlan
from trainmaster_trainer.data import WHOLE, Batch, Batches, Share
from trainmaster_trainer.data_workers import Ahead
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.samples import open_batches
from trainmaster_trainer.settings import Settings
from trainmaster_trainer.streams import StreamPlace

from tests.trainer.crew import NewCrew
from tests.trainer.ranks import NewJob, Options
from tests.trainer.small_tasks import Line
from tests.trainer.stream_kinds import LENGTH, Boastful, Modest, Reserved, Shuffled, Stateful, Stateless, Walked

SIZE, STEPS = 5, 14  # three epochs and a part of the fourth
KINDS = [Stateless, Stateful, Shuffled, Walked]


@pytest.fixture
def opened() -> Iterator[Any]:
    """Opens batches of a stream, and closes them."""
    found: list[Batches] = []

    def open_(kind: Any, workers: int = 0, place: str | None = None) -> Batches:
        batches = Batches(kind(), SIZE, steps=STEPS, seed=3, device=torch.device("cpu"))
        if place is not None:
            batches.go_on_from(place)
        if workers:
            batches.read_ahead(Ahead(workers), last=STEPS)
        found.append(batches)
        return batches

    yield open_
    for batches in found:
        batches.close()


def numbers(batches: list[Batch]) -> list[int]:
    """Which samples they have."""
    return [round(number) for batch in batches for number in (batch.inputs[:, 0] * LENGTH).tolist()]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_samples_with_the_same_draws_whoever_reads_them(opened: Any, kind: Any) -> None:
    here = opened(kind)
    expected, places = [], []
    for step in range(1, STEPS + 1):
        expected.append(here.take(step, WHOLE))
        places.append(here.place)
    told = numbers(expected)
    for epoch in range(3):
        assert sorted(told[epoch * LENGTH : (epoch + 1) * LENGTH]) == [*range(LENGTH)]
    for workers, after in ((1, 0), (4, 0), (0, 4), (4, 5), (1, 9), (0, STEPS - 1)):
        batches = opened(kind, workers, places[after - 1] if after else None)
        for step in range(after + 1, STEPS + 1):
            taken = batches.take(step, WHOLE)
            assert torch.equal(taken.inputs, expected[step - 1].inputs), (workers, after, step)
            assert batches.place == places[step - 1]


def test_shares_are_parts_of_one_sequence(opened: Any) -> None:
    whole, parts = opened(Stateful), [opened(Stateful) for _ in range(2)]
    for step in range(1, STEPS + 1):
        inputs = [batches.take(step, Share(rank, 2)).inputs for rank, batches in enumerate(parts)]
        assert torch.equal(torch.cat(inputs), whole.take(step, WHOLE).inputs)


def test_a_dataset_with_a_state_is_not_read_again(opened: Any) -> None:
    first = opened(Stateful)
    for step in range(1, 4):
        first.take(step, WHOLE)
    dataset = Stateful()
    opened(lambda: dataset, 0, first.place).take(4, WHOLE)
    assert dataset.read == SIZE


def test_a_training_that_begins_at_a_later_step_begins_the_stream(opened: Any) -> None:
    """As one does that begins with another job's checkpoint."""
    batches = opened(Stateless)
    assert numbers([batches.take(11, WHOLE)]) == [0, 1, 2, 3, 4]
    again = opened(Stateless, 0, batches.place)
    assert numbers([again.take(12, WHOLE)]) == [5, 6, 7, 8, 9]


STREAMED: Options = {"task": "stream_tasks:Streamed", "steps": 12, "checkpoint_every": 3}


@pytest.mark.parametrize(("kind", "workers"), [("Stateful", 4), ("Stateless", 0)])
def test_after_a_restart_with_other_ranks_it_goes_on_where_it_stood(
    new_job: NewJob, kind: str, workers: int, capfd: pytest.CaptureFixture[str]
) -> None:
    calm = new_job("calm", **STREAMED, arguments={"kind": kind}).run(2)
    job = new_job("killed", **STREAMED, arguments={"kind": kind, "seconds": 0.02}, data_workers=workers)
    running = job.start(2)
    running.reach(5)
    running.kill()
    job.run(2, attempt=2)
    assert job.losses() == calm.losses()
    assert audit(str(job.folder)) == 0
    assert "is what its dataset promises" in capfd.readouterr().out


def test_strategies_take_the_samples_of_a_stream(new_job: NewJob) -> None:
    plan: Options = {**STREAMED, "arguments": {"dropout": 0.0}}
    expected = new_job("one", **plan, strategy="OneDevice").run(1).losses()
    for strategy, options in (
        ("FullySharded", {}),
        ("Pipeline", {}),
        ("LocalSGD", {"every": 1}),
        ("Tensor", {}),
        ("Mesh", {"data": 2}),
    ):
        split: Options = {"task": "stream_tasks:Split"} if strategy == "Tensor" else {}
        job = new_job(strategy, **{**plan, **split}, strategy=strategy, strategy_options=options).run(2)
        assert job.losses() == pytest.approx(expected, rel=1e-4), strategy


@pytest.mark.parametrize(
    "text",
    [
        '{"samples": 3, "state": {"__tensor__": ["load", [1], "AAAA"]}}',
        '{"samples": 3, "state": {"__tensor__": ["float32", [2], "AAAA"]}}',
        '{"samples": 3, "state": {"__tensor__": ["uint8", [-3], "AAAA"]}}',
        '{"samples": 3, "state": {"__tensor__": ["uint8", [3], "?"]}}',
        '{"samples": 3, "state": {"__tensor__": 5}}',
        '{"samples": -3}',
    ],
)
def test_a_place_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="does not say where the stream of samples stood"):
        StreamPlace.unpacked(text)


def test_a_place_may_hold_tensors() -> None:
    """As those of torchdata's loaders do, for their random numbers."""
    for tensor in (torch.get_rng_state(), torch.ones(2, 3), torch.empty(0), torch.tensor(5)):
        back = StreamPlace.unpacked(StreamPlace(3, state={"deep": [tensor]}).packed())
        (found,) = back.state["deep"]
        assert torch.equal(found, tensor)
        assert found.dtype == tensor.dtype


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"arguments": {"kind": "Once"}}, "ended after 23 samples, in step 3, and gives none"),
        ({"arguments": {"kind": "Odd"}}, "state_dict() of its dataset() gives what a checkpoint cannot hold"),
        (
            {"steps": 0, "epochs": 2, "arguments": {"kind": "Boastful"}},
            "has 30 samples by its __len__, and ended after",
        ),
    ],
)
def test_a_stream_that_cannot_be_used_has_a_clear_end(new_job: NewJob, plan: Options, words: str) -> None:
    running = new_job(**{**STREAMED, **plan}).start(1)
    assert running.wait() == [78]
    assert words in running.output()


@pytest.mark.parametrize(("kind", "words"), [(Stateless, "without __len__"), (Reserved, "whose __len__ gives 0")])
def test_epochs_of_a_stream_take_its_length(tmp_path: Path, kind: Any, words: str) -> None:
    task = Line()
    task.dataset = kind  # type: ignore[method-assign]
    settings = Settings(TrainingPlan("OneDevice", epochs=2, global_batch_size=SIZE), tmp_path)
    with pytest.raises(ConfigurationError, match=rf"spec\.training\.epochs: .* is a stream {words}, so"):
        open_batches(settings, task, torch.device("cpu"))


@pytest.mark.parametrize(("kind", "words"), [(Boastful, "30 .* and ended after 23,"), (Modest, "22 .* and gives more")])
def test_steps_that_follow_from_a_wrong_length_are_refused(opened: Any, kind: Any, words: str) -> None:
    """Where the spec counts steps, the length says nothing."""
    by_steps, by_epochs = opened(kind), opened(kind)
    by_epochs.hold_to_length()
    for step in range(1, 5):
        by_steps.take(step, WHOLE)
        by_epochs.take(step, WHOLE)
    by_steps.take(5, WHOLE)
    with pytest.raises(ConfigurationError, match=r"spec\.training\.epochs: .*" + words):
        by_epochs.take(5, WHOLE)


def test_members_that_come_and_go_refuse_a_stream(new_crew: NewCrew) -> None:
    crew = new_crew(2, strategy="Gossip", **STREAMED).start()
    assert crew.wait(0) == 78
    assert "Choose another strategy, such as AllReduce" in crew.output()

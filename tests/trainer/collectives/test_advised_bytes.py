"""What `explain` and `advise` say of bytes is what the strategies move, as they count it themselves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from trainmaster.advice import traffic
from trainmaster.advice.model_facts import GroupFacts, ModelFacts
from trainmaster_trainer.data import Batch, Share
from trainmaster_trainer.measure.model_sizes import describe
from trainmaster_trainer.numerics import Numerics
from trainmaster_trainer.strategies.gossip.mixing import Mixer
from trainmaster_trainer.strategies.virtual_ranks import VIRTUAL_RANKS, subtrees_of
from trainmaster_trainer.structure import leaves

from tests.trainer import small_tasks
from tests.trainer.collectives.test_collectives import NO_MEMORY
from tests.trainer.ranks import NewJob, Options

WORLD = 3


def facts_of(task: str) -> ModelFacts:
    return describe(getattr(small_tasks, task)(), Numerics())


@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        ("AllReduce", {"algorithm": "Ring"}),
        ("AllReduce", {"algorithm": "Driver"}),
        ("AllReduce", {"algorithm": "Native", "compression": "TopK"}),
        ("AllReduce", {"algorithm": "Native", "compression": "INT8"}),
        ("LocalSGD", {"every": 1}),
    ],
    ids=str,
)
@pytest.mark.parametrize("task", ["Wide", "WideWithAFrozenLayer"])
def test_each_rank_sends_what_is_said(new_job: NewJob, task: str, strategy: str, options: Options) -> None:
    """From one step to the next: the first one of TopK is another."""
    few, more = (
        new_job(str(steps), variables=NO_MEMORY).call(
            WORLD, "steps:traffic", strategy=strategy, options=options, steps=steps, task=task
        )
        for steps in (2, 4)
    )
    found = traffic.flows(strategy, options, facts_of(task), GroupFacts(WORLD, 1, 0, 10))
    for rank, (before, after) in enumerate(zip(few, more, strict=True)):
        said = found[min(rank, len(found) - 1)]
        assert (after["sent"] - before["sent"]) / 2 == pytest.approx(said.sends, rel=0.03)
        assert (after["received"] - before["received"]) / 2 == pytest.approx(said.receives, rel=0.03)


def test_a_reproducible_sum_gathers_the_subtrees_that_are_said() -> None:
    for ranks in range(2, VIRTUAL_RANKS + 1):
        most = max(len(subtrees_of(*Share(rank, ranks).bounds(VIRTUAL_RANKS))) for rank in range(ranks))
        assert traffic.subtrees(ranks) == most, ranks


@pytest.mark.parametrize("percent", [None, 10])
def test_a_gossip_sends_its_offer_and_an_answer(percent: int | None) -> None:
    asker, other = (Mixer([torch.zeros(100_000)], percent) for _ in range(2))
    for mixer in (asker, other):
        mixer.buffers[0].normal_()
    offer = asker.offer()
    moved = sum(one.numel() * one.element_size() for one in leaves([offer, other.meet(offer)]))
    model = facts_of("Line")
    (flow,) = traffic.flows("Gossip", {"topKPercent": percent}, model, GroupFacts(2, 1, 0, 10))
    assert moved / 400_000 == pytest.approx(flow.sends / model.parameter_bytes, rel=0.06)


@pytest.mark.parametrize(("at_once", "parts"), [(None, 1), (5, 2), (1, 10)])
def test_spread_parameters_are_gathered_for_each_part(new_job: NewJob, at_once: int | None, parts: int) -> None:
    arguments: dict[str, Any] = {"micro_batch": at_once}
    counts = new_job(variables=NO_MEMORY).call(WORLD, "steps:collectives", **arguments)
    whole = new_job("whole", variables=NO_MEMORY).call(WORLD, "steps:collectives", micro_batch=None)
    assert GroupFacts(WORLD, 1, 0, 30, at_once).parts(WORLD) == parts
    for rank, count in enumerate(counts):
        assert count == {name: parts * number for name, number in whole[rank].items()}


def test_parts_are_counted_as_the_trainer_counts_them() -> None:
    for batch in (3, 7, 30, 64):
        for shares in (1, 2, 3):
            for at_once in (1, 2, 5, 100, None):
                inputs = torch.zeros(batch // shares, 1)
                share = Batch(inputs, inputs, len(inputs), batch, 0.0, shares=shares)
                assert len(share.parts(at_once)) == GroupFacts(shares, 1, 0, batch, at_once).parts(shares)


def test_a_stage_that_is_spread_is_gathered_for_each_micro_batch(new_job: NewJob) -> None:
    """Eight of them, of a share of 15 samples; gradients are scattered after the last one."""
    found = new_job(variables=NO_MEMORY).call(4, "steps:collectives", strategy="Mesh", sharded=2, pipeline=2)
    model = facts_of("Line")
    said, _ = traffic.flows("Mesh", {"sharded": 2, "pipeline": 2}, model, GroupFacts(4, 1, 0, 30))
    for counts in found:
        gathers, scatters = counts["c10d._allgather_base_"], counts["c10d._reduce_scatter_base_"]
        assert said.sends == (gathers * model.parameter_bytes + scatters * model.trained_bytes) / 2 / 2

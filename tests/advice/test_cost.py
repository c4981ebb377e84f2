"""The cost model on machines whose answer one knows without it."""

from dataclasses import replace

import pytest
from trainmaster.advice import cost, memory_needs
from trainmaster.advice.cost import Candidate
from trainmaster.wire.measured import Exchange

from tests.advice.samples import MIB, MODEL, a_group, a_machine


def test_a_line_goes_through_points_on_a_line() -> None:
    line = cost.line_through([(1, 3), (2, 5), (4, 9)])
    assert (line.fixed, line.slope) == pytest.approx((1, 2))


def test_a_line_never_starts_below_nothing() -> None:
    assert cost.line_through([(1, 0.0), (2, 10.0)]).fixed == 0


def test_a_line_of_one_point_goes_through_the_origin() -> None:
    assert cost.line_through([(4, 8)]) == cost.CostLine(0, 2)


def test_data_parallelism_divides_the_work_and_adds_the_exchange() -> None:
    found = cost.predict(Candidate("AllReduce", {"algorithm": "Ring"}, a_group(4)), MODEL, a_machine())
    assert found.compute == pytest.approx(0.064 / 4)
    assert found.exchange == pytest.approx(2 * 4 * 3 / 4 * 0.001)
    assert found.samples_per_second == pytest.approx(64 / (0.016 + 0.006))


def test_layers_are_gathered_anew_for_each_part_of_a_share() -> None:
    machine = replace(a_machine(), sharding=(Exchange(MIB, 0.001), Exchange(2 * MIB, 0.002)))
    whole, parted = (
        cost.predict(Candidate("FullySharded", {}, replace(a_group(4), at_once=most)), MODEL, machine)
        for most in (None, 8)
    )
    assert parted.exchange == 2 * whole.exchange


def test_ranks_without_a_device_of_their_own_share() -> None:
    crowded = cost.predict(Candidate("AllReduce", {}, a_group(4)), MODEL, a_machine(devices=2))
    roomy = cost.predict(Candidate("AllReduce", {}, a_group(4)), MODEL, a_machine(devices=4))
    assert crowded.compute == 2 * roomy.compute


def test_a_pipeline_idles_as_its_bubble_says() -> None:
    stages, parts = 4, 8
    group = a_group(stages)
    found = cost.predict(Candidate("Pipeline", {"microBatches": parts}, group), MODEL, a_machine())
    busy = 0.064 / stages
    assert 1 - busy / found.compute == pytest.approx((stages - 1) / (parts + stages - 1))


def test_a_pipeline_goes_at_the_pace_of_its_slowest_stage() -> None:
    candidate = Candidate("Pipeline", {"microBatches": 8}, a_group(4))
    even, uneven = (
        cost.predict(candidate, MODEL, replace(a_machine(), slowest_stage=(1.0, 0.6, 0.5, share)))
        for share in (0.25, 0.5)
    )
    assert uneven.compute == pytest.approx(2 * even.compute)


@pytest.mark.parametrize("strategy", ["FullySharded", "Tensor", "Pipeline"])
def test_splitting_the_model_divides_its_memory(strategy: str) -> None:
    (need,) = memory_needs.needs(strategy, {}, MODEL, a_group(4))
    assert (need.parameters, need.optimizer) == (MIB, 2 * MIB)


def test_a_data_parallel_rank_holds_everything_but_the_batch() -> None:
    (need,) = memory_needs.needs("AllReduce", {}, MODEL, a_group(4))
    assert (need.parameters, need.optimizer, need.activations) == (4 * MIB, 8 * MIB, 16 * 1000)


def test_a_rank_that_computes_in_parts_holds_the_activations_of_one() -> None:
    group = replace(a_group(4), at_once=3)
    assert memory_needs.needs("AllReduce", {}, MODEL, group)[0].activations == 3 * 1000
    assert memory_needs.needs("Tensor", {}, MODEL, group)[0].activations == 3 * 1000 / 4


def test_servers_hold_the_optimizer_and_workers_do_not() -> None:
    worker, server = memory_needs.needs("ParameterServer", {}, MODEL, a_group(4, servers=2))
    assert (worker.optimizer, server.optimizer) == (0, 4 * MIB)

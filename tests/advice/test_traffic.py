"""The bytes of the textbook's formulas. `trainer/collectives/test_advised_bytes.py` holds them to what travels."""

from dataclasses import replace
from typing import Any

import pytest
from trainmaster.advice import traffic
from trainmaster.advice.model_facts import GroupFacts
from trainmaster.api.strategy_spec import StrategySpec
from trainmaster.wire.strategies import STRATEGIES

from tests.advice.samples import MODEL, a_group

S = MODEL.parameter_bytes


def sent(strategy: str, group: GroupFacts, **options: Any) -> list[tuple[float, float]]:
    return [(flow.sends, flow.receives) for flow in traffic.flows(strategy, options, MODEL, group)]


def test_one_device_sends_nothing() -> None:
    assert sent("OneDevice", a_group(1)) == []


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_a_ring_sends_the_same_at_every_rank(ranks: int) -> None:
    assert sent("AllReduce", a_group(ranks), algorithm="Ring") == [(2 * S * (ranks - 1) / ranks,) * 2]


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_a_driver_carries_what_all_others_send(ranks: int) -> None:
    driver, other = sent("AllReduce", a_group(ranks), algorithm="Driver")
    assert sum(driver) == 2 * (ranks - 1) * S
    assert other == (S, S)


def test_a_hierarchy_sends_less_over_the_network_than_a_ring_of_all() -> None:
    group = a_group(workers=2, ranks=4)
    network, inside = traffic.flows("AllReduce", {"algorithm": "Hierarchical"}, MODEL, group)
    (ring,) = traffic.flows("AllReduce", {"algorithm": "Ring"}, MODEL, group)
    assert (network.through, inside.through) == ("network", "memory")
    assert network.sends < ring.sends


def test_within_one_worker_nothing_goes_over_the_network() -> None:
    (flow,) = traffic.flows("AllReduce", {}, MODEL, a_group(workers=1, ranks=4))
    assert flow.through == "memory"


def test_local_steps_divide_the_traffic() -> None:
    ((every, _),), ((eighth, _),) = sent("AllReduce", a_group()), sent("LocalSGD", a_group(), every=8)
    assert eighth == every / 8


def test_a_shorter_number_halves_the_traffic() -> None:
    ((whole, _),), ((half, _),) = sent("AllReduce", a_group()), sent("AllReduce", a_group(), compression="BF16")
    assert half == whole / 2


def test_frozen_parameters_have_no_gradient() -> None:
    half = replace(MODEL, trained_bytes=S // 2)
    for strategy in ("AllReduce", "Mirrored"):
        (all_of_it,), (trained,) = (traffic.flows(strategy, {}, model, a_group()) for model in (MODEL, half))
        assert trained.sends == all_of_it.sends / 2
    (central,) = traffic.flows("CentralStorage", {}, half, a_group(1, ranks=4))
    assert (central.sends, central.receives) == (S / 2, S)
    (spread,) = traffic.flows("FullySharded", {}, half, a_group(4))
    assert spread.sends == (2 * S + S / 2) * 3 / 4


def test_the_largest_numbers_go_to_every_other_rank() -> None:
    assert sent("AllReduce", a_group(5), compression="TopK") == [pytest.approx((4 * 0.02 * S,) * 2)]
    assert sent("Mirrored", a_group(1, ranks=5), compression="TopK") == [pytest.approx((4 * 0.02 * S,) * 2)]


@pytest.mark.parametrize(("ranks", "gradients"), [(1, 0), (2, 1), (3, 2 * 2), (4, 3), (8, 7)])
def test_a_reproducible_sum_takes_whole_gradients_of_all_ranks(ranks: int, gradients: int) -> None:
    group = replace(a_group(ranks), reproducible=True)
    assert sent("AllReduce", group) == ([(gradients * S,) * 2] if gradients else [])


def test_spread_layers_are_gathered_for_each_part_of_a_share() -> None:
    """Shares of 16 samples in parts of five are four parts."""
    ((whole, _),), ((parted, _),) = (sent("FullySharded", replace(a_group(4), at_once=one)) for one in (None, 5))
    assert parted == 4 * whole


def test_servers_share_what_all_workers_push_and_pull() -> None:
    worker, server = sent("ParameterServer", a_group(4, servers=2))
    assert worker == (S, S)
    assert server == (2 * S, 2 * S)


def test_sharding_moves_half_as_much_again_as_all_reduce() -> None:
    ((sharded, _),), ((reduced, _),) = sent("FullySharded", a_group()), sent("AllReduce", a_group())
    assert sharded == 1.5 * reduced


def test_a_pipeline_sends_activations_only() -> None:
    assert sent("Pipeline", a_group(batch=64)) == [(2 * 64 * 100,) * 2]


def test_a_gossip_is_asked_as_often_as_it_asks() -> None:
    assert sent("Gossip", a_group(), peers=2) == [(2 * 2 * S,) * 2]
    assert sent("Gossip", a_group(), peers=1, topKPercent=10) == [pytest.approx((4 * 0.1 * S,) * 2)]


def test_each_axis_of_a_mesh_has_traffic_of_its_own() -> None:
    found = traffic.flows("Mesh", {"data": 2, "sharded": 2, "pipeline": 2, "tensor": 2}, MODEL, a_group(16))
    assert [flow.who.split()[1] for flow in found] == ["data", "sharded", "pipeline", "tensor"]
    assert traffic.flows("Mesh", {"data": 1, "sharded": 1, "pipeline": 1, "tensor": 1}, MODEL, a_group(1)) == ()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_has_a_formula_for_its_default_options(strategy: str) -> None:
    given = {"mesh": {"data": 2, "tensor": 2}} if strategy == "Mesh" else {}
    options = StrategySpec.model_validate({"type": strategy, **given}).options
    for flow in traffic.flows(strategy, options, MODEL, a_group(servers=1)):
        assert flow.sends >= 0
        assert flow.receives >= 0

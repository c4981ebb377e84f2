"""What is recommended, on machines where it is clear."""

from dataclasses import replace

from trainmaster.advice import recommendation
from trainmaster.advice.model_facts import MachineFacts, ModelFacts
from trainmaster.advice.recommendation import Comparison

from tests.advice.samples import MIB, MODEL, a_machine
from tests.builders import a_job

ONE_LAYER = replace(MODEL, layers=1)  # that cannot be cut into stages


def compare(machine: MachineFacts, model: ModelFacts = ONE_LAYER) -> list[Comparison]:
    return recommendation.compare(a_job().with_workers(4).build(), model, machine)


def test_distributing_pays_where_exchange_costs_next_to_nothing() -> None:
    said = recommendation.conclusion(compare(a_machine(per_mib=1e-6)), None)
    assert said.startswith("Distributing pays: AllReduce with 4 ranks should train 4.00 times as fast")


def test_distributing_does_not_pay_over_a_thin_link() -> None:
    said = recommendation.conclusion(compare(a_machine(per_mib=0.1)), None)
    assert said.startswith("Distributing does not pay here")
    assert "Take OneDevice" in said


def test_one_device_has_nothing_to_distribute_over() -> None:
    comparisons = recommendation.compare(
        a_job().where(strategy={"type": "OneDevice"}).with_workers(1).build(), MODEL, a_machine(devices=1)
    )
    assert recommendation.conclusion(comparisons, None) == "There is one device only: take OneDevice."


def test_a_model_that_does_not_fit_one_device_is_sharded() -> None:
    said = recommendation.conclusion(compare(a_machine(per_mib=0.1)), 8 * MIB)
    assert "One device would need 16.1 MiB and has 8 MiB. Take FullySharded with 4 ranks" in said


def test_a_network_takes_the_place_of_the_machines_own_memory() -> None:
    machine = recommendation.over_network(a_machine(devices=2), 1e6, ranks=4)
    assert machine.devices == 4
    said = recommendation.conclusion(compare(machine), None)
    assert said.startswith("Distributing does not pay here")


def test_the_first_line_is_one_device_and_the_others_go_by_speed() -> None:
    first, *others = compare(a_machine())
    assert (first.prediction.candidate.strategy, first.speedup) == ("OneDevice", 1)
    assert others == sorted(others, key=lambda comparison: -comparison.speedup)


def test_layers_that_can_be_cut_make_a_pipeline_over_a_thin_link() -> None:
    said = recommendation.conclusion(compare(a_machine(per_mib=0.1), MODEL), None)
    assert said.startswith("Distributing pays: Pipeline with 4 ranks")

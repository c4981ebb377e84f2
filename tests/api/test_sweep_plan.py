"""A sweep is planned from the words of the command line alone: the same words give the same jobs."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trainmaster.api.status import TrainingJobStatus
from trainmaster.cli.sweep_plan import MOST_JOBS, SweepError, Trial, axis, fingerprint, trials
from trainmaster.cli.sweep_results import SweepAim, TrialOutcome, best, ending, table


def planned(*words: str, count: int | None = None, seed: int = 0) -> list[Trial]:
    """The trials of these words."""
    return trials("s", [axis(word) for word in words], count, seed)


def test_a_grid_has_all_pairs_in_order() -> None:
    plan = planned("a.lr=0.1,0.01", "seed=1,2,1")
    assert [trial.name for trial in plan] == ["s-01", "s-02", "s-03", "s-04"]
    assert plan[1].changes == ("a.lr=0.1", "seed=2")
    assert plan[2].label == "lr=0.01 seed=1"
    assert planned("training.command=[python, a.py],[python, b.py]")[0].changes == ("training.command=[python, a.py]",)


def test_chance_is_the_same_for_the_same_seed() -> None:
    words = ("a.lr=log:1e-4..1e-1", "a.width=16..128", "a.drop=0.0..0.5", "strategy.type=AllReduce,LocalSGD")
    plan = planned(*words, count=20)
    assert plan == planned(*words, count=20)
    assert plan != planned(*words, count=20, seed=1)
    assert len({trial.changes for trial in plan}) == 20
    for trial in plan:
        rate, width, drop, _ = (change.partition("=")[2] for change in trial.changes)
        assert 1e-4 <= float(rate) <= 1e-1
        assert 16 <= int(width) <= 128
        assert 0 <= float(drop) <= 0.5
    small = sum(float(trial.changes[0].partition("=")[2]) < 3e-3 for trial in planned(*words, count=200))
    assert 70 < small < 130, "log: is even over the powers of ten"
    assert len(planned("seed=1..3", count=50)) == 3, "no job stands in it twice"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "name what to try"),
        (("a",), "write a field and its values"),
        (("a=",), "write a field and its values"),
        (("a=,",), "there is no value"),
        (("a=1", "a=2"), "stands in --over twice"),
        (("a=1..9",), "of which a grid takes no part"),
        (("a=9..1",), "the first less than the second"),
        (("a=log:0..1",), "above 0"),
        (("a=1e..2",), "no two numbers"),
        (("a=1e999..2e999",), "must be numbers"),
        ((f"a={','.join(map(str, range(40)))}", f"b={','.join(map(str, range(40)))}"), f"and {MOST_JOBS} are the most"),
    ],
)
def test_words_that_make_no_plan_say_why(words: tuple[str, ...], why: str) -> None:
    with pytest.raises(SweepError, match=why):
        planned(*words)


@given(st.lists(st.text(max_size=12), max_size=3), st.none() | st.integers(-1, 5))
def test_any_words_have_a_clear_end(words: list[str], count: int | None) -> None:
    try:
        plan = planned(*words, count=count)
    except SweepError:
        return
    assert plan
    assert fingerprint(plan, {}) == fingerprint(list(plan), {})


def ended(name: str, phase: str = "Succeeded", **progress: object) -> TrialOutcome:
    """A trial that has ended."""
    status = TrainingJobStatus.read({"phase": phase, "progress": progress, "message": "It is over."})
    return TrialOutcome(Trial(name, (f"a={name}",)), phase, status)


def test_the_best_is_found_by_a_figure_of_whatever_kind() -> None:
    outcomes = [
        ended("s-1", loss=0.3, evaluation={"figures": {"accuracy": 0.8}}),
        ended("s-2", loss=0.4, evaluation={"figures": {"accuracy": 0.9}}),
        ended("s-3", "Failed", loss=0.1, evaluation={"figures": {"accuracy": 1.0}}),
        ended("s-4"),
    ]
    for metric, mode, name in (("loss", None, "s-1"), ("accuracy", None, "s-2"), ("eval accuracy", "min", "s-1")):
        aim = SweepAim.for_metric(metric, mode)
        found = best(outcomes, aim)
        assert found
        assert found.trial.name == name
        assert ending(outcomes, aim, ["b=1"]) == [
            f"Best by {metric} ({aim.value(found.status):g}): {name}. Again: --set b=1 --set a={name}"
        ]
    peaked = ended("s-5", evaluation={"figures": {"accuracy": 0.1}})
    points = ({"step": 1, "figures": {"accuracy": 0.95}}, {"step": 2, "figures": {"accuracy": 0.1}})
    peaked = dataclasses.replace(
        peaked, status=TrainingJobStatus.read({**peaked.status.to_dict(), "evaluations": points})
    )
    for best_of_run, name in ((False, "s-2"), (True, "s-5")):
        found = best([*outcomes, peaked], SweepAim.for_metric("accuracy", None, best_of_run=best_of_run))
        assert found
        assert found.trial.name == name
    rows = [line.split()[0] for line in table(outcomes, SweepAim.for_metric("loss", None))]
    assert rows == ["NAME", "s-1", "s-2", "s-3", "s-4"]
    assert "They have accuracy, loss" in ending(outcomes, SweepAim.for_metric("accuracie", None), [])[0]
    assert ending([ended("s-1", "Failed")], SweepAim.for_metric("loss", None), []) == [
        "None of 1 has succeeded. s-1: It is over."
    ]

"""What may change while a job runs, and how rules are written down."""

from __future__ import annotations

import re
from typing import Any

import pytest
from trainmaster.api.job import TrainingJob, TrainingJobSpec
from trainmaster.api.rules import RULES, violations

from tests.api.changes import changed, good_job

CLAIM = {"persistentVolumeClaim": {"claimName": "a"}}
REFUSED: dict[str, dict[str, Any]] = {
    "strategy": {"spec.strategy.type": "LocalSGD"},
    "training": {"spec.training.steps": 501},
    "checkpoint.storage": {"spec.checkpoint.storage": CLAIM},
    "checkpoint.resumeFrom": {"spec.checkpoint.resumeFrom": {"job": "letters"}},
    "checkpoint.everySteps": {"spec.checkpoint.everySteps": 3},
    "checkpoint.memoryEverySteps": {"spec.checkpoint.memoryEverySteps": 3},
    "workers.gpus": {"spec.workers.gpus": 1},
    "reproducible": {"spec.reproducible": True},
}
ALLOWED: dict[str, dict[str, Any]] = {
    "workers": {"spec.workers.replicas": 3},
    "suspend": {"spec.suspend": True},
    "image": {"spec.workers.image": "a:2"},
    "restarts": {"spec.failurePolicy.maxRestarts": 3},
    "checkpoints kept": {"spec.checkpoint.keep": 5},
}


@pytest.mark.parametrize(("field", "change"), REFUSED.items(), ids=REFUSED.keys())
def test_fixed_while_it_runs(field: str, change: dict[str, Any]) -> None:
    """Another model or another place for checkpoints is another run, and all ranks of a run go by one plan."""
    old, new = TrainingJob.parse(good_job()), TrainingJob.parse(changed(good_job(), change))
    (violation,) = violations(new, old)

    assert violation.location == ("spec", *field.split("."))
    assert "Set suspend to true first" in violation.cure


@pytest.mark.parametrize("change", [*REFUSED.values(), *ALLOWED.values()], ids=[*REFUSED, *ALLOWED])
def test_free_while_suspended(change: dict[str, Any]) -> None:
    """Nothing runs, so nothing can be torn."""
    suspended = changed(good_job(), {"spec.suspend": True, "status.phase": "Suspended", "status.attempt": 1})

    assert violations(TrainingJob.parse(changed(suspended, change)), TrainingJob.parse(suspended)) == ()


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED.keys())
def test_fixed_until_it_is_suspended(change: dict[str, Any]) -> None:
    """That somebody wishes it ends no pod yet."""
    old = changed(good_job(), {"spec.suspend": True, "status.phase": "Running", "status.attempt": 1})
    new = changed(old, {**change, "spec.suspend": False})

    assert len(violations(TrainingJob.parse(new), TrainingJob.parse(old))) == 1


def test_free_in_a_job_that_is_made_suspended_before_any_operator_has_seen_it() -> None:
    old = TrainingJob.parse(changed(good_job(), {"spec.suspend": True}))
    assert violations(TrainingJob.parse(changed(good_job(), {"spec.training.steps": 7})), old) == ()


@pytest.mark.parametrize("change", ALLOWED.values(), ids=ALLOWED.keys())
def test_free_while_it_runs(change: dict[str, Any]) -> None:
    """The number of workers, and how to treat failures."""
    assert violations(TrainingJob.parse(changed(good_job(), change)), TrainingJob.parse(good_job())) == ()


OVER = "the job is over, and takes no change but of ttlSecondsAfterFinished"


@pytest.mark.parametrize("change", [*REFUSED.values(), *ALLOWED.values()], ids=[*REFUSED, *ALLOWED])
@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_nothing_changes_in_a_job_that_is_over_and_no_suspension_is_proposed(
    phase: str, change: dict[str, Any]
) -> None:
    old = changed(good_job(), {"status.phase": phase, "status.attempt": 1})
    (violation,) = violations(TrainingJob.parse(changed(old, change)), TrainingJob.parse(old))
    assert (violation.location, violation.message) == (("spec",), OVER)
    assert "Create another job, with checkpoint.resumeFrom" in violation.cure
    kept = TrainingJob.parse(changed(old, {"spec.ttlSecondsAfterFinished": 7}))
    assert violations(kept, TrainingJob.parse(old)) == ()


def test_the_rule_on_jobs_that_are_over_knows_all_fields() -> None:
    (rule,) = [rule for rule in RULES if rule.name == "over"]
    fields = {info.alias for info in TrainingJobSpec.model_fields.values()}
    assert {path[1] for path in rule.reads() if path[0] == "spec"} == fields - {"ttlSecondsAfterFinished"}


@pytest.mark.parametrize(("old", "new"), [(None, "tpu"), ("tpu", None), ("NVIDIA-H200", "tpu")])
def test_an_accelerator_that_changes_the_number_of_ranks_is_fixed(old: str | None, new: str | None) -> None:
    before, after = (changed(good_job(), {"spec.workers.accelerator": value} if value else {}) for value in (old, new))
    found = violations(TrainingJob.parse(after), TrainingJob.parse(before))
    assert "workers.accelerator cannot change from or to tpu while the job runs" in [one.message for one in found]
    other = changed(good_job(), {"spec.workers.accelerator": "NVIDIA-H100"})
    assert violations(TrainingJob.parse(other), TrainingJob.parse(good_job())) == ()


def test_names_differ() -> None:
    """A rule is spoken of by its name."""
    assert len({rule.name for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_texts_fit_each_other(rule: Any) -> None:
    """One sentence says what is wrong, another what to type; figures have their values; `reads` finds something."""
    assert not rule.message.endswith(".")
    assert not rule.cure.endswith(".")
    assert rule.cure[0].isupper()
    assert rule.reads()
    assert set(re.findall(r"{(\w+)}", rule.message + rule.cure)) == set(rule.figures)

"""Hold the rules between the fields of a TrainingJob, each once: as CEL for the API server, as Python for us.

`api/schema.py` puts them into the CRD; `api/document.py` runs them on a file, where they get line numbers. Rules about
what an API server cannot know (does the script exist?) are not here.
"""

from __future__ import annotations

from trainmaster.api.rules import (
    accelerator,
    changes,
    code_rules,
    evaluation,
    fitting,
    framework_rules,
    lifecycle,
    model_rules,
    numerics_rules,
    pod_rules,
    reproducible,
    resource,
    strategy_rules,
    template,
    tracker_rules,
    training_rules,
    twice,
)
from trainmaster.api.rules.rule import Rule, Violation, check

RULES: tuple[Rule, ...] = (
    *resource.RULES,
    *strategy_rules.RULES,
    *fitting.RULES,
    *training_rules.RULES,
    *code_rules.RULES,
    *tracker_rules.RULES,
    *evaluation.RULES,
    *pod_rules.RULES,
    *template.RULES,
    *twice.RULES,
    *lifecycle.RULES,
    *changes.RULES,
    *reproducible.RULES,
    *accelerator.RULES,
    *numerics_rules.RULES,
    *model_rules.RULES,
    *framework_rules.RULES,
)

__all__ = ["RULES", "Rule", "Violation", "violations"]


def violations(job: object, old: object = None) -> tuple[Violation, ...]:
    """Return each rule that `job` breaks; with `old`, also the rules about the change from `old` to `job`."""
    return check(RULES, job, old)

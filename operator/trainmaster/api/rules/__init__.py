"""Hold the rules between the fields of a TrainingJob, each once: as CEL for the API server, as Python for us.

`api/schema.py` puts them into the CRD; `api/document.py` runs them on a file, where they get line numbers. Rules about
what an API server cannot know (does the script exist?) are not here.
"""

from __future__ import annotations

from trainmaster.api.rules import (
    accelerator,
    changes,
    code,
    evaluation,
    fitting,
    frameworks,
    lifecycle,
    model,
    numerics,
    pods,
    reproducible,
    resource,
    strategy,
    template,
    trackers,
    training,
    twice,
)
from trainmaster.api.rules.rule import Rule, Violation, check

RULES: tuple[Rule, ...] = (
    *resource.RULES,
    *strategy.RULES,
    *fitting.RULES,
    *training.RULES,
    *code.RULES,
    *trackers.RULES,
    *evaluation.RULES,
    *pods.RULES,
    *template.RULES,
    *twice.RULES,
    *lifecycle.RULES,
    *changes.RULES,
    *reproducible.RULES,
    *accelerator.RULES,
    *numerics.RULES,
    *model.RULES,
    *frameworks.RULES,
)

__all__ = ["RULES", "Rule", "Violation", "violations"]


def violations(job: object, old: object = None) -> tuple[Violation, ...]:
    """Return each rule that `job` breaks; with `old`, also the rules about the change from `old` to `job`."""
    return check(RULES, job, old)

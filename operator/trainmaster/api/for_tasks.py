"""List the fields that say something to a task alone, and are not refused beside a command.

They were written for a task, or by habit. The job trains as it would without them, so `trainmaster check` and `explain`
tell that they reach nobody. What a command would expect to be obeyed (a precision, a batch) is refused in `rules/`.
"""

from trainmaster.api.job import TrainingJobSpec
from trainmaster.wire.strategies import STRATEGIES


def unheard(spec: TrainingJobSpec) -> list[tuple[str, str]]:
    """Return path and sentence of each field of this spec that its command does not hear of."""
    if not spec.training.command:
        return []
    found = []
    if spec.training.seed != type(spec.training).model_fields["seed"].default:
        cure = f"give it to the script as a word of command, for example --seed={spec.training.seed}"
        found.append(("spec.training.seed", f"is for a task; a script draws as it seeds itself: {cure}"))
    attribute = STRATEGIES[spec.strategy.type].options
    if attribute and getattr(spec.strategy, attribute) is not None:
        field = type(spec.strategy).model_fields[attribute].alias or attribute
        why = "is for a task; how the processes of a command exchange what they computed is the script's own affair"
        # A job of type Mesh must have one, whoever obeys it.
        cure = "set spec.strategy.type to AllReduce and remove it" if attribute == "mesh" else "remove it"
        found.append((f"spec.strategy.{field}", f"{why}: {cure}"))
    return found

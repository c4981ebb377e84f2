"""Find a command of a launcher's that no rank will carry out, refused while nothing runs yet.

The ranks refuse by the same words (`wire/launchers.py`), and know more: what `auto` and `gpu` come to on their machine.
The API server cannot ask this.
"""

from __future__ import annotations

from trainmaster.api.job import TrainingJob
from trainmaster.api.problem import Location
from trainmaster.api.wording import RuleWords
from trainmaster.wire import launchers, torchrun
from trainmaster.wire.nested_launch import refuse_nested

_COMMAND: Location = ("spec", "training", "command")


def refused_launch(job: TrainingJob) -> tuple[Location, RuleWords] | None:
    """Return the place and the words of what is wrong; None where nothing is, or it shows only on the machine."""
    spec = job.spec
    if not spec.training.command:
        return None
    try:
        launch = launchers.launched(spec.training.command)
        if launch is None:
            refuse_nested(spec.training.command, spec.worker_ranks)
        asked = launch.per_node if launch else None
        if launch and spec.elasticity is None and (asked is None or asked.isdigit()):
            each = None if asked is None else int(asked)
            torchrun.check_size(launch, spec.workers.replicas, spec.ranks_each, each)
    except torchrun.CommandError as error:
        what, _, cure = str(error).removeprefix("training.command: ").partition(": ")
        return _COMMAND, RuleWords(what, cure[:1].upper() + cure[1:] or "Correct the command")
    return None

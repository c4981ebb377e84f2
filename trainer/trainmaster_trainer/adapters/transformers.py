"""Report what a Trainer of transformers does, and find the checkpoint that it goes on from.

    from trainmaster_trainer.adapters.transformers import Report, newest

    trainer = Trainer(model, TrainingArguments(folder, enable_jit_checkpoint=True), callbacks=[Report()], ...)
    trainer.train(resume_from_checkpoint=newest(folder))

`enable_jit_checkpoint` has the Trainer save when it is asked to stop.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from typing_extensions import override

from trainmaster_trainer import session

_WHOLE = "trainer_state.json"  # which is written last
_NOT_FIGURES = ("epoch", "step", "total", "total_flos")


class Report(TrainerCallback):  # type: ignore[misc]  # the library is not in the environment of the type checker
    """Report tells each optimizer step, and what the Trainer logs: its loss, and evaluations."""

    @override
    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Say where training goes on, and how long it is."""
        session.report(step=state.global_step, total=state.max_steps)

    @override
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Say that a step is done."""
        session.report(step=state.global_step)

    @override
    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any) -> None:
        """Say what is logged at this step."""
        figures = {name: value for name, value in (logs or {}).items() if isinstance(value, (int, float))}
        loss = figures.pop("loss", None)
        told = {name: value for name, value in figures.items() if name not in _NOT_FIGURES}
        if state.is_world_process_zero and (loss is not None or told):
            session.report(state.global_step, None, loss, **told)


def newest(folder: str | Path) -> str | None:
    """Return the newest whole checkpoint in a Trainer's folder; None where there is none.

    The library itself would take one that a killed process has left half written.
    """
    found = {path: re.fullmatch(r"checkpoint-(\d+)", path.name) for path in Path(folder).glob("checkpoint-*")}
    steps = {int(match[1]): path for path, match in found.items() if match and (path / _WHOLE).exists()}
    return str(steps[max(steps)]) if steps else None

"""Report what a Trainer of Lightning does, and find the checkpoint that it goes on from.

    from trainmaster_trainer.adapters.lightning import Report, newest

    saving = ModelCheckpoint(folder, every_n_train_steps=50, save_top_k=-1, save_on_exception=True)
    trainer = Trainer(callbacks=[Report(), saving], ...)
    trainer.fit(model, loader, ckpt_path=newest(folder))

`save_on_exception` has the Trainer save when it is asked to stop.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback
from typing_extensions import override

from trainmaster_trainer import session

_OURS = ("loss", "step", "total")


class Report(Callback):  # type: ignore[misc]  # the library is not in the environment of the type checker
    """Report tells each optimizer step, its loss, and what the module logs."""

    @override
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Say where training goes on, and how long it is, where that is known."""
        steps = trainer.estimated_stepping_batches
        session.report(step=trainer.global_step, total=int(steps) if math.isfinite(steps) and steps > 0 else None)

    @override
    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Say that a step is done, with its loss; a batch whose gradients only add up is none."""
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        session.report(trainer.global_step, None, loss, **(_figures(trainer) if trainer.is_global_zero else {}))

    @override
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Say what an evaluation has measured."""
        if trainer.is_global_zero and not trainer.sanity_checking:
            session.report(trainer.global_step, None, None, **_figures(trainer))


def _figures(trainer: Any) -> dict[str, Any]:
    """Return what the module has logged, also where the Trainer has no logger."""
    return {str(name): value for name, value in trainer.callback_metrics.items() if name not in _OURS}


def newest(folder: str | Path) -> str | None:
    """Return the checkpoint in a folder with the most steps; None where there is none. Lightning writes whole files."""
    found = {path: re.search(r"step=(\d+)", path.name) for path in Path(folder).glob("*.ckpt")}
    steps = {int(match[1]): path for path, match in found.items() if match}
    return str(steps[max(steps)]) if steps else None

"""Callbacks tell the progress of a script whose framework has the loop: one for Keras, one for XGBoost.

    from trainmaster_trainer import callbacks

    model.fit(x, y, epochs=3, callbacks=[callbacks.keras_progress()])
    xgboost.train(settings, rows, 100, evals=[(rows, "train")], callbacks=[callbacks.xgboost_progress(total=100)])

Each is a line over `session.report`, with what that says of reports. They do nothing outside of Trainmaster.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any

from trainmaster_trainer import session

__all__ = ["keras_progress", "xgboost_progress"]
_VALIDATION = "val_"


def keras_progress() -> Any:
    """Return a callback for `fit` of Keras 3, or of tf-keras where TF_USE_LEGACY_KERAS is 1.

    A step is a batch. With BackupAndRestore, or `initial_epoch`, steps go on from the epoch that `fit` begins with.
    """
    keras = importlib.import_module("tf_keras" if os.environ.get("TF_USE_LEGACY_KERAS") == "1" else "keras")

    class Progress(keras.callbacks.Callback):  # type: ignore[misc, name-defined]
        """Progress counts batches."""

        done = 0

        def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002
            """Go on where earlier epochs, of this process or of one before it, have ended."""
            self.done = epoch * (self.params.get("steps") or 0) or self.done

        def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002
            """Report a step with its loss and metrics."""
            self.done += 1
            total = (self.params.get("epochs") or 0) * (self.params.get("steps") or 0)
            session.report(step=self.done, total=total or None, **_named(logs or {}))

        def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002
            """Report what the validation has measured."""
            measured = {name: value for name, value in (logs or {}).items() if name.startswith(_VALIDATION)}
            if measured:
                session.report(step=self.done, **_named(measured))

    return Progress()


def xgboost_progress(total: int | None = None) -> Any:
    """Return a callback for `xgboost.train`. A step is a round, `xgb_model`'s included; `total` is how many there are.

    The loss is the first metric of the first set in `evals`; all of them are figures of the step.
    """
    xgboost = importlib.import_module("xgboost")

    class Progress(xgboost.callback.TrainingCallback):  # type: ignore[misc, name-defined]
        """Progress reports rounds."""

        def after_iteration(self, model: Any, epoch: int, evals_log: Mapping[str, Any]) -> bool:  # noqa: ARG002
            """Report the round that is done; return that training goes on."""
            figures = {
                f"{data}_{name}": values[-1]
                for data, all_of_it in evals_log.items()
                for name, values in all_of_it.items()
            }
            loss = next(iter(figures.values()), None)
            session.report(step=model.num_boosted_rounds(), total=total, loss=loss, **_named(figures))
            return False

    return Progress()


def _named(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return figures without those that have the name of a count."""
    return {name: value for name, value in figures.items() if name not in ("step", "total")}

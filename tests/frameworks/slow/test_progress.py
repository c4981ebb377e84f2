"""One line in a script of Keras or XGBoost tells its progress."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
import trainmaster
import trainmaster_trainer

from tests.frameworks.jobs import a_job, python
from tests.local.command import Command

OURS = os.pathsep.join(str(next(iter(one.__path__))).rpartition("/")[0] for one in (trainmaster, trainmaster_trainer))
KERAS = """
import keras, numpy as np
from trainmaster_trainer import callbacks
x = np.ones((64, 4)); y = np.ones((64, 1))
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
progress = callbacks.keras_progress()
model.fit(x, y, batch_size=16, epochs=3, verbose=0, validation_data=(x, y), callbacks=[progress])
"""
XGBOOST = """
import xgboost, numpy as np
from trainmaster_trainer import callbacks
rows = xgboost.DMatrix(np.eye(20), np.arange(20) % 2)
progress = callbacks.xgboost_progress(total=12)
xgboost.train({"objective": "binary:logistic"}, rows, 12, evals=[(rows, "train")], callbacks=[progress])
"""


@pytest.mark.parametrize(
    ("framework", "environment", "script", "figure"),
    [("JAX", "jax", KERAS, "val_loss"), ("XGBoost", "boost", XGBOOST, "train_logloss")],
)
def test_steps_loss_and_figures_are_told(
    command: Command, framework: str, environment: str, script: str, figure: str
) -> None:
    job = a_job(framework, [python(environment), "-c", script], 1, PYTHONPATH=OURS, KERAS_BACKEND="jax")
    assert command.start(job).end() == 0
    progress = command.status["progress"]
    assert (progress["step"], progress["totalSteps"]) == (12, 12)
    lines: list[dict[str, Any]] = [
        json.loads(line) for line in (command.workdir / "checkpoints" / "metrics.jsonl").read_text().splitlines()
    ]
    assert lines[-1]["step"] == 12
    assert progress["loss"] == pytest.approx(lines[-1]["loss"], abs=1e-3)
    assert figure in json.dumps(lines[-1])

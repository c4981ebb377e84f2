"""Train 20 rounds of trees, each process on its share of the rows; a death goes on from a file of every fifth round."""

import os
import signal
from pathlib import Path

import numpy as np
import xgboost
from xgboost import collective

ROUNDS = 20
kept = Path(os.environ["TRAINMASTER_CHECKPOINTS"], "trees.json")
x = np.random.default_rng(0).normal(size=(400, 8))
y = (x[:, 0] + x[:, 1] ** 2 > 1).astype(int)
settings = {"objective": "binary:logistic", "tree_method": "hist", "max_depth": 3, "nthread": 1}


class Keep(xgboost.callback.TrainingCallback):
    """Keep saves the model, and ends process 1 where it was asked to."""

    def after_iteration(self, model, epoch, evals_log):
        """Go on after each round."""
        done = model.num_boosted_rounds()
        if rank == 0 and done % 5 == 0:
            model.save_model(kept.with_suffix(".new.json"))
            kept.with_suffix(".new.json").replace(kept)
        if rank == 1 and done == 12 and os.environ["TRAINMASTER_ATTEMPT"] == os.environ.get("DIE_IN_ATTEMPT"):
            os.kill(os.getpid(), signal.SIGKILL)
        return False


where = {
    "dmlc_tracker_uri": os.environ["DMLC_TRACKER_URI"],
    "dmlc_tracker_port": int(os.environ["DMLC_TRACKER_PORT"]),
    "dmlc_task_id": os.environ["DMLC_TASK_ID"],
}
with collective.CommunicatorContext(**where):
    size, rank = collective.get_world_size(), collective.get_rank()
    assert rank == int(os.environ["RANK"])
    total = collective.allreduce(np.array([rank + 1.0]), collective.Op.SUM)[0]
    Path(f"rank-{rank}").touch()
    while os.environ.get("GATE") and not Path(os.environ["GATE"]).exists():
        pass
    mine = slice(rank * 400 // size, (rank + 1) * 400 // size)
    before = xgboost.Booster(model_file=kept) if kept.exists() else None
    done = before.num_boosted_rounds() if before else 0
    rows = xgboost.DMatrix(x[mine], y[mine])
    trees = xgboost.train(settings, rows, ROUNDS - done, xgb_model=before, callbacks=[Keep()])
everything = xgboost.DMatrix(x, y)
alone = xgboost.train(settings, everything, ROUNDS)
away = abs(trees.predict(everything) - alone.predict(everything)).max()
print(f"RIGHT processes={size} total={total:g} from={done}" if away < 0.05 else f"WRONG by {away}", flush=True)

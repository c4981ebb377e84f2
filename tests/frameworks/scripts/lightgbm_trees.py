"""Train trees over all machines of LightGBM; the model is the same in each of them, and knows all rows.

One of them is killed in an attempt after some trees.
"""

import hashlib
import os
import signal

import lightgbm
import numpy as np

size, rank = int(os.environ["LIGHTGBM_NUM_MACHINES"]), int(os.environ["RANK"])
x = np.random.default_rng(0).normal(size=(400, 8))
y = (x[:, 0] + x[:, 1] ** 2 > 1).astype(int)
mine = slice(rank * 400 // size, (rank + 1) * 400 // size)
settings = {"objective": "binary", "num_threads": 1, "verbose": -1, "min_data_in_leaf": 5}
group = {
    "tree_learner": "data",
    "machines": os.environ["LIGHTGBM_MACHINES"],
    "local_listen_port": int(os.environ["LIGHTGBM_LOCAL_LISTEN_PORT"]),
    "num_machines": size,
    "pre_partition": True,
}


def die(state):
    """Kill this process in the middle of the training of all."""
    if state.iteration == 10 and rank == 1 and os.environ["TRAINMASTER_ATTEMPT"] == os.environ.get("DIE_IN_ATTEMPT"):
        os.kill(os.getpid(), signal.SIGKILL)


trees = lightgbm.train({**settings, **group}, lightgbm.Dataset(x[mine], y[mine]), 20, callbacks=[die])
alone = lightgbm.train(settings, lightgbm.Dataset(x, y), 20)
right = ((trees.predict(x) > 0.5) == y).mean()
digest = hashlib.sha256(trees.model_to_string().partition("end of trees")[0].encode()).hexdigest()
good = right > 0.97 and abs(right - ((alone.predict(x) > 0.5) == y).mean()) < 0.02
print(f"RIGHT machines={size} model={digest}" if good else f"WRONG {right}", flush=True)

"""Train a line by MultiWorkerMirroredStrategy with checkpoints of TensorFlow's own, and compare it with NumPy's."""

import json
import os
import signal

import numpy as np
import tensorflow as tf

STEPS, RATE = 50, 0.05
collectives = tf.distribute.experimental.CommunicationImplementation[os.environ.get("COLLECTIVES", "AUTO")]
strategy = tf.distribute.MultiWorkerMirroredStrategy(
    communication_options=tf.distribute.experimental.CommunicationOptions(implementation=collectives)
)
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
x = np.random.default_rng(0).normal(size=(64, 8)).astype("f4")
y = x @ np.arange(8, dtype="f4")
with strategy.scope():
    weights = tf.Variable(tf.zeros(8))
done = tf.Variable(0, dtype=tf.int64)
whole = tf.data.Dataset.from_tensor_slices((x, y)).batch(64).repeat(STEPS)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
batches = iter(strategy.experimental_distribute_dataset(whole.with_options(options)))


@tf.function
def step(batch):
    """Take one step of SGD on all processes together."""

    def mine(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((tf.linalg.matvec(x, weights) - y) ** 2) / 64.0
        gradient = tape.gradient(loss, weights)
        weights.assign_sub(RATE * tf.distribute.get_replica_context().all_reduce("SUM", gradient))

    strategy.run(mine, args=batch)


folder = os.environ["TRAINMASTER_CHECKPOINTS"]
checkpoint = tf.train.Checkpoint(weights=weights, done=done)
kept = tf.train.CheckpointManager(checkpoint, folder if index == 0 else f"{folder}/other-{index}", max_to_keep=1)
newest = tf.train.latest_checkpoint(folder)
if newest:
    checkpoint.restore(newest)
first = int(done)
for _ in range(first):
    next(batches)
for number in range(first, STEPS):
    if number == 25 and index == 1 and os.environ["TRAINMASTER_ATTEMPT"] == os.environ.get("DIE_IN_ATTEMPT"):
        os.kill(os.getpid(), signal.SIGKILL)
    step(next(batches))
    done.assign_add(1)
    if (number + 1) % 10 == 0:
        kept.save()

alone = np.zeros(8, "f4")
for _ in range(STEPS):
    alone -= RATE * 2 * x.T @ (x @ alone - y) / 64
away = float(abs(weights.numpy() - alone).max())
size = strategy.num_replicas_in_sync
print(f"RIGHT processes={size} from={first}" if away < 1e-3 else f"WRONG by {away}", flush=True)

"""Train a line by ParameterServerStrategy: the chief coordinates, all others serve and never end by themselves."""

import itertools
import json
import os
import sys

import numpy as np
import tensorflow as tf

config = json.loads(os.environ["TF_CONFIG"])
role = config["task"]["type"]
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if role != "chief":
    tf.distribute.Server(
        resolver.cluster_spec(), job_name=role, task_index=resolver.task_id, protocol="grpc", start=True
    ).join()
partitions = tf.distribute.experimental.partitioners.FixedShardsPartitioner(len(config["cluster"]["ps"]))
strategy = tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitions)
if os.environ.get("CHIEF_ENDS_WITH"):
    sys.exit(int(os.environ["CHIEF_ENDS_WITH"]))
x = np.random.default_rng(0).normal(size=(256, 8)).astype("f4")
y = x @ np.arange(8, dtype="f4")
with strategy.scope():
    weights = tf.Variable(tf.zeros([8, 1]))
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)


def dataset():
    """Return the batches of a worker."""
    return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(256).batch(32).repeat()


batches = iter(coordinator.create_per_worker_dataset(dataset))


@tf.function
def step(batches):
    """Take one step of SGD, with the shards of the weights where they lie."""

    def mine(x, y):
        error = tf.squeeze(x @ tf.convert_to_tensor(weights), 1) - y
        gradient = tf.expand_dims(tf.linalg.matvec(x, error, transpose_a=True), 1) * 2 / 32
        first = 0
        for shard in weights.variables:
            shard.assign_sub(0.05 * gradient[first : first + shard.shape[0]])
            first += shard.shape[0]

    strategy.run(mine, args=next(batches))


endless = os.environ["TRAINMASTER_ATTEMPT"] == os.environ.get("ENDLESS_ATTEMPT")  # until somebody kills a process
for number in itertools.count():
    if number == 200 and not endless:
        break
    if number == 100:
        print("HALFWAY of attempt", os.environ["TRAINMASTER_ATTEMPT"], flush=True)
    coordinator.schedule(step, args=(batches,))
coordinator.join()
away = abs(tf.convert_to_tensor(weights).numpy().ravel() - np.arange(8)).max()
shards = len(weights.variables)
print(f"RIGHT shards={shards}" if away < 1e-2 else f"WRONG by {away}", flush=True)

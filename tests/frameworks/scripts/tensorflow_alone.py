"""Train a line by one of TensorFlow's strategies of a single process, on parts of a CPU as its devices."""

import os

import numpy as np
import tensorflow as tf

STEPS, RATE = 30, 0.05
kind = os.environ["STRATEGY"]
(processor,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * 4)
devices = [f"/cpu:{number}" for number in range(4)]
strategy = {
    "OneDevice": lambda: tf.distribute.OneDeviceStrategy(devices[1]),
    "Mirrored": lambda: tf.distribute.MirroredStrategy(devices),
    "HierarchicalCopy": lambda: tf.distribute.MirroredStrategy(devices, tf.distribute.HierarchicalCopyAllReduce()),
    "ReductionToOneDevice": lambda: tf.distribute.MirroredStrategy(devices, tf.distribute.ReductionToOneDevice()),
    "CentralStorage": lambda: tf.distribute.experimental.CentralStorageStrategy(devices, devices[0]),
}[kind]()
x = np.random.default_rng(0).normal(size=(64, 8)).astype("f4")
y = x @ np.arange(8, dtype="f4")
with strategy.scope():
    weights = tf.Variable(tf.zeros(8))
batches = strategy.experimental_distribute_dataset(
    tf.data.Dataset.from_tensor_slices((x, y)).batch(64, drop_remainder=True).repeat(STEPS)
)


@tf.function
def step(batch):
    """Take one step of SGD with the gradients of all devices, each of which has its share of the batch."""

    def mine(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((tf.linalg.matvec(x, weights) - y) ** 2) / 64.0
        return tape.gradient(loss, weights), tf.ones(())

    gradients, ones = strategy.run(mine, args=batch)
    weights.assign_sub(RATE * strategy.reduce("SUM", gradients, axis=None))
    return strategy.reduce("SUM", ones, axis=None)


for batch in batches:
    devices_that_took_part = int(step(batch))
alone = np.zeros(8, "f4")
for _ in range(STEPS):
    alone -= RATE * 2 * x.T @ (x @ alone - y) / 64
away = float(abs(weights.numpy() - alone).max())
print(f"RIGHT devices={devices_that_took_part}" if away < 1e-3 else f"WRONG by {away}", flush=True)

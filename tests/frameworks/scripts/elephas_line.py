"""Train a line by Elephas on all of Spark's workers, synchronously or not, and tell where it was trained."""

import os
import socket

import keras
import numpy as np
from elephas.spark_model import AsynchronousSparkModel, SparkModel
from elephas.utils.rdd_utils import to_simple_rdd
from pyspark.sql import SparkSession

context = SparkSession.builder.getOrCreate().sparkContext
x = np.random.default_rng(0).normal(size=(256, 8)).astype("f4")
y = (x @ np.arange(8)).astype("f4")[:, None]
model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.05), "mse")
before = float(model.evaluate(x, y, verbose=0))
if os.environ["MODE"] == "synchronous":
    trainer = SparkModel(model, num_workers=2)
else:
    with socket.create_server((os.environ["SPARK_LOCAL_IP"], 0)) as free:  # its own is 4000, which a laptop has once
        port = free.getsockname()[1]
    trainer = AsynchronousSparkModel(model, num_workers=2, mode=os.environ["MODE"], frequency="epoch", port=port)
trainer.fit(to_simple_rdd(context, x, y), epochs=12, batch_size=16, verbose=0, validation_split=0.0)
after = float(trainer.master_network.evaluate(x, y, verbose=0))
places = context.parallelize(range(4), 4).map(lambda _: os.environ["TRAINMASTER_INDEX"]).distinct().collect()
right = after < before / 50
print(f"RIGHT {type(trainer).__name__} workers={sorted(places)}" if right else f"WRONG {before} {after}", flush=True)

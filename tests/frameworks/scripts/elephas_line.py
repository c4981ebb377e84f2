"""Train a line by Elephas on all of Spark's workers, synchronously or not, and tell where it was trained."""

import os

import keras
import numpy as np
from elephas.spark_model import SparkModel
from elephas.utils.rdd_utils import to_simple_rdd
from pyspark.sql import SparkSession

context = SparkSession.builder.getOrCreate().sparkContext
x = np.random.default_rng(0).normal(size=(256, 8)).astype("f4")
y = (x @ np.arange(8)).astype("f4")[:, None]
model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.05), "mse")
before = float(model.evaluate(x, y, verbose=0))
trainer = SparkModel(model, frequency="epoch", mode=os.environ["MODE"], num_workers=2)
for _ in range(3):
    trainer.fit(to_simple_rdd(context, x, y), epochs=4, batch_size=16, verbose=0, validation_split=0.0)
after = float(trainer.master_network.evaluate(x, y, verbose=0))
places = context.parallelize(range(4), 4).map(lambda _: os.environ["TRAINMASTER_INDEX"]).distinct().collect()
right = after < before / 50
print(f"RIGHT workers={sorted(places)}" if right else f"WRONG {before} {after}", flush=True)

"""A PySpark script that is told nothing: a stage in which all of Spark's workers meet, then a sum over all rows."""

import os
import signal
from pathlib import Path

from pyspark import BarrierTaskContext
from pyspark.sql import SparkSession


def of_worker(pid):
    """The process of Spark's worker, above this one."""
    while b"worker.Worker" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def meet(rows):
    """Wait for all other tasks of the stage, and tell what each has."""
    mine = f"{os.environ['TRAINMASTER_INDEX']}:{sum(rows)}"
    told = sorted(BarrierTaskContext.get().allGather(mine))
    if mine == told[-1] and os.environ["TRAINMASTER_ATTEMPT"] == os.environ.get("DIE_IN_ATTEMPT"):
        os.kill(of_worker(os.getpid()), signal.SIGKILL)
    yield told


if os.environ.get("WRONG"):
    raise ValueError("bad learning rate")
context = SparkSession.builder.getOrCreate().sparkContext
others = int(os.environ["WORLD_SIZE"]) - 1
met = context.parallelize(range(100), others).barrier().mapPartitions(meet).collect()
places = ",".join(told.partition(":")[0] for told in met[0])  # which of them has which rows is Spark's affair
total = sum(int(told.partition(":")[2]) for told in met[0])
secret = context.getConf().get("spark.authenticate")
print(f"RIGHT tasks={len(met)} workers={places} total={total} secret={secret}", flush=True)
Path("met").touch()
while os.environ.get("GATE") and not Path(os.environ["GATE"]).exists():
    pass

"""Scripts of Spark: driver, master and workers from one job, with a stage in which all workers meet."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.jobs import a_job, line_of_the_ledger, of_a_taken_port, python, running, said, until
from tests.local.command import Command, wait_gone

MET = ["tasks=2 workers=1,2 total=4950 secret=true"]


def a_script(name: str = "spark_sum.py", **env: str) -> dict[str, Any]:
    """A job of a driver and two workers."""
    return a_job("Spark", [python("spark"), name], 3, **env)


def test_all_workers_take_part_also_after_a_death_and_nothing_is_left(command: Command) -> None:
    """Spark's worker of the last replica is killed in the middle of a stage."""
    assert command.start(a_script(DIE_IN_ATTEMPT="1")).end() == 0
    assert said(command, "RIGHT") == MET
    line = line_of_the_ledger(command)
    assert (line["exit"], line["replica"]) == ("SIGKILL", "worker-2 rank 2")
    assert command.status["message"].startswith("worker-0, which leads the others, finished.")
    until(lambda: not command.processes() and not [*Path("/tmp").glob("tm-spark-*")])  # noqa: S108 of Java's packages


def test_a_master_that_dies_first_is_named_and_all_begin_anew(command: Command, folder: Path) -> None:
    command.start(a_script(GATE="gate"))
    until((folder / "met").exists, 300)
    (master,) = running(command, "master.Master")
    (folder / "met").unlink()
    os.kill(master, signal.SIGKILL)
    assert wait_gone(master)
    command.until_event("Restarting")
    (folder / "gate").touch()
    assert command.end() == 0
    assert said(command, "RIGHT")[-1:] == MET
    assert "Spark's master ended by SIGKILL" in line_of_the_ledger(command)["evidence"]
    until(lambda: not command.processes())


def test_strangers_without_the_key_are_turned_away(command: Command, folder: Path) -> None:
    """A PySpark script of somebody else cannot use the cluster, though it knows where the master is."""
    (folder / "stranger.py").write_text(STRANGER)
    assert command.start(a_script("stranger.py")).end() == 0
    assert said(command, "RIGHT") == ["turned away"]


STRANGER = """
import os, subprocess, sys
program = '''
from pyspark.sql import SparkSession
import os
session = SparkSession.builder.master(os.environ["SPARK_MASTER_URL"]).getOrCreate()
print("IN", session.sparkContext.parallelize(range(4)).sum())
'''
clean = {name: value for name, value in os.environ.items() if name != "SPARK_CONF_DIR"}
try:
    ran = subprocess.run([sys.executable, "-c", program], env=clean, capture_output=True, text=True, timeout=90)
    said = ran.stdout + ran.stderr
except subprocess.TimeoutExpired as error:
    said = ((error.stdout or b"") + (error.stderr or b"")).decode()
print("RIGHT turned away" if "IN " not in said else f"WRONG {said[-2000:]}", flush=True)
print(said[-3000:])
"""


def test_the_errors_of_a_script_and_of_an_image_are_told(command: Command) -> None:
    assert command.start(a_script(WRONG="1")).end() == 1
    assert "ValueError: bad learning rate" in command.status["restarts"][-1]["evidence"]
    until(lambda: not command.processes())


def test_an_image_without_spark_is_named(command: Command) -> None:
    assert command.start(a_job("Spark", [python("boost"), "spark_sum.py"], 3)).end() == 1
    assert "No module named 'pyspark'" in command.status["message"]
    assert command.status.get("restartCount", 0) == 0


ALONE = """
from pyspark.sql import SparkSession
context = SparkSession.builder.getOrCreate().sparkContext
print("RIGHT", context.master, context.parallelize(range(5)).sum())
"""


def test_one_worker_alone_is_spark_without_a_cluster(command: Command) -> None:
    assert command.start(a_job("Spark", [python("spark"), "-c", ALONE], 1)).end() == 0
    assert said(command, "RIGHT") == ["local[1] 10"]


@pytest.mark.parametrize(
    ("mode", "model"),
    [("synchronous", "SparkModel"), ("asynchronous", "AsynchronousSparkModel")],
)
def test_elephas_trains_on_all_workers(command: Command, mode: str, model: str) -> None:
    """Asynchronously all push to a server of Elephas' beside the driver."""
    job = a_script("elephas_line.py", MODE=mode, TF_CPP_MIN_LOG_LEVEL="2")
    assert command.start(job).end(500) == 0
    assert said(command, "RIGHT") == [f"{model} workers=['1', '2']"]
    until(lambda: not command.processes())


def test_a_port_that_is_taken_is_said_by_the_companion() -> None:
    assert "ddress already in use" in of_a_taken_port("Spark", "spark")

"""Run Spark in the job's own replicas: its master beside the first worker, which drives; the others are its workers.

All are given one file of settings, so that a PySpark script needs none: `SparkSession.builder.getOrCreate()`.
"""

from __future__ import annotations

import hashlib
from typing import Dict, Tuple

from trainmaster_trainer.agent.companions import Companion
from trainmaster_trainer.agent.frameworks.position import Instructions, Position

MASTER = "Spark's master"
_SETTINGS = "conf/spark-defaults.conf"
# By the interpreter of the script, whose pyspark brings Spark's programs along.
_LAUNCH = """
import os, sys
import pyspark
home = os.environ.get("SPARK_HOME") or os.path.dirname(pyspark.__file__)
os.environ["SPARK_HOME"] = home
program = os.path.join(home, "bin", "spark-class")
os.execv(program, [program, *sys.argv[1:]])
"""
_PACKAGE = "org.apache.spark.deploy"


def instruct(position: Position) -> Instructions:
    """Return master and settings for the first worker, and Spark's worker in place of the command for the others."""
    me, first, folder = position.me, position.first, position.folder
    alone = len(position.peers) == 1
    variables = {
        "SPARK_CONF_DIR": f"{folder}/conf",
        "SPARK_LOCAL_IP": me.address,
        "SPARK_MASTER_URL": _settings(position)["spark.master"],
    }
    defaults = {
        "PYSPARK_PYTHON": position.interpreter,
        "SPARK_LOCAL_DIRS": f"{folder}/local",
        "SPARK_DAEMON_JAVA_OPTS": f"-Djava.io.tmpdir={_temporary(position)}",
    }
    files = {_SETTINGS: "".join(f"{name} {value}\n" for name, value in _settings(position).items())}
    listening = ("--host", me.address, "--port", str(me.port), "--webui-port", "0")
    master = Companion(MASTER, _program(position, "master.Master", *listening))
    own = ("--cores", str(position.slots), "--work-dir", f"{folder}/work")
    return Instructions(
        variables,
        defaults,
        files,
        command=() if position.leads else _program(position, "worker.Worker", *listening, *own, f"spark://{first.at}"),
        companions=(master,) if position.leads and not alone else (),
        launches=True,
        temporary=(_temporary(position),),
        awaits="" if alone else MASTER,
    )


def _program(position: Position, name: str, *arguments: str) -> Tuple[str, ...]:
    return (position.interpreter, "-c", _LAUNCH, f"{_PACKAGE}.{name}", *arguments)


def _temporary(position: Position) -> str:
    """Return a folder for libraries that Java's packages unpack and load: the attempt's may not be for programs."""
    return f"/tmp/tm-spark-{hashlib.sha256(position.key.encode()).hexdigest()[:12]}"  # noqa: S108 it is made for us alone


def _settings(position: Position) -> Dict[str, str]:
    """Return the settings of all three. Whoever does not know the key is turned away by master, workers and driver."""
    address, others = position.me.address, len(position.peers) - 1
    temporary = f"-Djava.io.tmpdir={_temporary(position)}"
    settings = {
        "spark.driver.defaultJavaOptions": temporary,
        "spark.executor.defaultJavaOptions": temporary,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",  # a bar, which is no line of a log
        "spark.driver.host": address,
        "spark.driver.bindAddress": address,
    }
    if not others:
        return {"spark.master": f"local[{position.slots}]", **settings}
    return {
        "spark.master": f"spark://{position.first.at}",
        "spark.authenticate": "true",
        "spark.authenticate.secret": position.key,
        "spark.network.crypto.enabled": "true",
        "spark.master.rest.enabled": "false",  # it cannot authenticate
        "spark.port.maxRetries": "0",  # else a master whose port is taken listens at another one
        # The first stage begins when all workers are there.
        "spark.cores.max": str(position.slots * others),
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
        **settings,
    }

"""Import an installed package, say in which process it was imported, and wait to be killed. Arguments: an exit code."""

import gc
import importlib.util
import os
import subprocess
import sys
import time

os.environ["HEAVY"] = "set before"
import heavy  # type: ignore[import-not-found]
import own_module  # type: ignore[import-not-found]  # noqa: F401 of the script's own folder
from witness import say  # type: ignore[import-not-found]

importlib.util.find_spec("heavy.never")
FILES = [open(os.devnull) for _ in range(30)]  # noqa: PTH123, SIM115
gc.collect()  # nothing that the process before left behind may close them
for file in FILES:
    os.fstat(file.fileno())
subprocess.Popen(["sleep", "3600"])
say("imported", where=heavy.PID, variable=heavy.VARIABLE, never="heavy.never" in sys.modules)
if len(sys.argv) > 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "1":
    sys.exit(int(sys.argv[1]))
while True:
    time.sleep(3600)

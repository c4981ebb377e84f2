"""Have shared memory and a child, and end without a word for either: argument `dies`; otherwise stay."""

import os
import signal
import subprocess
import sys
from multiprocessing import resource_tracker, shared_memory

from witness import say  # type: ignore[import-not-found]

memory = shared_memory.SharedMemory(create=True, size=1)
child = subprocess.Popen(["sleep", "1000"])
say("begin", memory=memory.name, tracker=resource_tracker._resource_tracker._pid, child=child.pid)  # type: ignore[attr-defined]
if sys.argv[1:] == ["dies"]:
    os.kill(os.getpid(), signal.SIGKILL)
while True:
    signal.pause()

"""System calls of the agent that fail, and ends of whole groups of processes."""

from __future__ import annotations

import subprocess
import sys

NO_PROCESS_LEFT = """
import os, resource, signal
from trainmaster_trainer.agent import process

if os.getuid() == 0:
    os.setuid(65534)  # root has no limit
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
try:
    process.fork()
except BlockingIOError:
    print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""


def test_a_fork_that_fails_leaves_signals_as_they_were() -> None:
    """Without SIGCHLD the warm parent would never see a rank end again."""
    ran = subprocess.run([sys.executable, "-c", NO_PROCESS_LEFT], check=True, stdout=subprocess.PIPE, text=True)
    assert ran.stdout == "set()\n"

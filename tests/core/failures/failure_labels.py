"""What a person says of a failure: its class, what is decided at once and when it comes again, and what it costs.

Written down here independently of core/failures/classes.py: the labelled cases hold the table to it.
"""

from typing import NamedTuple


class Label(NamedTuple):
    """`again`: the decision when the same comes a second time at the same step. `costs`: takes from maxRestarts."""

    failure_class: str
    first: str
    again: str
    costs: bool


BUG = Label("PythonError", "Restart", "Stop", True)
MEMORY = Label("OutOfMemory", "Restart", "Stop", True)
DEVICE_MEMORY = Label("DeviceOutOfMemory", "Restart", "Stop", True)
READER = Label("DataWorkerDied", "Restart", "Stop", True)
DISK = Label("OutOfStorage", "Restart", "Restart", True)
DEVICE = Label("DeviceFault", "Restart", "Restart", False)
WEATHER = Label("Infrastructure", "Restart", "Restart", False)
AWAY = Label("ServiceUnavailable", "Restart", "Restart", False)
ECHO = Label("PeerLost", "Restart", "Restart", True)
WRONG = Label("Configuration", "Stop", "Stop", False)
NAN = Label("NonFiniteLoss", "Restart", "Stop", False)
APART = Label("CopiesDiffer", "Restart", "Stop", False)
ROT = Label("CorruptCheckpoint", "Restart", "Restart", False)
HUNG = Label("Hang", "Restart", "Restart", False)
STALLED = Label("Stalled", "Restart", "Restart", False)
KILLED = Label("Signal", "Restart", "Restart", True)
CRASHED = Label("Crash", "Restart", "Restart", True)
ASKED = Label("Terminated", "Restart", "Restart", True)
EXITED = Label("ProcessExit", "Restart", "Restart", True)
FAILED = Label("AgentFailed", "Restart", "Restart", True)
ENDED = Label("ReplicaEnded", "Restart", "Restart", True)
MOVED = Label("Disruption", "Restart", "Restart", False)
DELETED = Label("ReplicaDeleted", "Restart", "Restart", False)

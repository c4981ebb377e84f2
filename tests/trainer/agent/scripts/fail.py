"""End in the way that the argument says."""

import os
import sys
import threading

from witness import say  # type: ignore[import-not-found]


class MisconfiguredError(Exception):
    """As the trainer's own exceptions for wrong configurations."""

    trainmaster_configuration_error = True


def fail(way: str) -> None:
    """One way for each test."""
    if way == "raise":
        raise ValueError("no good")
    if way == "configuration":
        raise MisconfiguredError("steps must be positive")
    if way == "save":
        from trainmaster_trainer.checkpoint.save import SaveFailedError  # noqa: PLC0415 (it takes seconds)

        raise SaveFailedError("rank 0: [Errno 28] No space left on device")
    if way == "message":
        sys.exit("a reason for people")
    if way.isdigit():
        sys.exit(int(way))
    if way.startswith("SIG"):
        os.kill(os.getpid(), int(way[3:]))
    if way == "thread":
        threading.Timer(0.1, lambda: say("thread")).start()
    if way == "second":
        if os.environ["RANK"] == "1":
            raise ValueError("rank one")
        threading.Event().wait()


fail(sys.argv[1])

"""The real intake behind its real listener, as a process of its own: only the token is one that a test knows.

Prints its port, then serves until it is ended.
"""

import asyncio
import sys
from http import HTTPStatus

from trainmaster.cli import operator
from trainmaster.intake import HeartbeatRefusedError, Intake, Speaker
from trainmaster.listening.listener import Listener

GOOD = "good"


async def verify(token: str) -> Speaker:
    """Believe whoever has the token."""
    if token != GOOD:
        raise HeartbeatRefusedError("not this pod's token", HTTPStatus.UNAUTHORIZED)
    return Speaker("the-pod", lambda _: None)


async def serve(host: str) -> None:
    """Serve for ever."""
    listener = Listener(Intake(verify, lambda _: None).application())
    sys.stdout.write(f"{await listener.start(host, 0)}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    operator.log("INFO")
    asyncio.run(serve(sys.argv[1]))

"""One of several members that come and go: says whom the roster names, and answers on its own socket who it is."""

import os
import select
import socket
import sys
from pathlib import Path

from trainmaster.wire import codec, names
from trainmaster.wire.messages import Roster
from witness import say  # type: ignore[import-not-found]

PATH = Path(os.environ[names.ENV_ROSTER])
listener = socket.socket(fileno=int(os.environ[names.ENV_LISTEN]))
seen = b""
while True:
    data = PATH.read_bytes()
    if data != seen:
        roster, seen = codec.decode(Roster, data), data
        said = {f"{member.role}-{member.index}": member.start for member in roster.members}
        say(
            "roster",
            members=said,
            port=listener.getsockname()[1],
            key=roster.rendezvous.key,
            fresh="torch" not in sys.modules,
        )
    if select.select([listener], [], [], 0.01)[0]:
        peer, _ = listener.accept()
        peer.sendall(f"{os.environ['RANK']} {os.getpid()}".encode())
        peer.close()

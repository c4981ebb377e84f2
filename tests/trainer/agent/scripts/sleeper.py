"""Say that it runs, and stay. Arguments: nothing, `stubborn` (ignores SIGTERM) or `saving` (saves on SIGTERM)."""

import signal
import sys

from witness import say  # type: ignore[import-not-found]

WAY = sys.argv[1] if len(sys.argv) > 1 else ""
if WAY == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if WAY == "saving":
    signal.signal(signal.SIGTERM, lambda *_: (say("saved"), sys.exit(0)))
say("begin")
while True:
    signal.pause()

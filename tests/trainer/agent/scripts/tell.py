"""Say what a rank sees of the world; then write a last word that no buffer may swallow."""

import os
import sys
from pathlib import Path

from witness import say  # type: ignore[import-not-found]

LEFT_OPEN = Path(sys.argv[1]).open("w") if len(sys.argv) > 1 else None  # noqa: SIM115 users do that
if LEFT_OPEN is not None:
    LEFT_OPEN.write("never closed")
say(
    "world",
    name=__name__,
    file=__file__,
    arguments=sys.argv,
    path=sys.path[0],
    folder=str(Path.cwd()),
    main=sys.modules["__main__"].__dict__ is globals(),
    environment=dict(os.environ),
    stdin=sys.stdin.read(),
    session=os.getsid(0) == os.getpid(),
    descriptors=sorted(int(path.name) for path in Path("/proc/self/fd").iterdir()),
    threads=len(list(Path("/proc/self/task").iterdir())),
)
sys.stdout.write("last word")

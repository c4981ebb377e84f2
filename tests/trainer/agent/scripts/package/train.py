"""Run as `python -m package.train`; says how it found itself."""

import sys

from witness import say  # type: ignore[import-not-found]

say("module", name=__name__, spec=__spec__.name if __spec__ else None, arguments=sys.argv, path=sys.path[0])

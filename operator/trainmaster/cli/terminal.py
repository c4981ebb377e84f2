"""What the commands print: every line goes through here, so that no foreign text reaches a terminal as it is.

The live view draws by rich and uses `printable` itself; a lint rule keeps all others of `print`.
"""

import sys
from collections.abc import Iterable

from trainmaster.wire.printable import printable


def tell(lines: Iterable[str]) -> None:
    """Print the answer of a command to standard output."""
    for line in lines:
        print(printable(line), flush=True)


def complain(*lines: str) -> None:
    """Print what is wrong, or what is going on, to standard error."""
    for line in lines:
        print(printable(line), file=sys.stderr, flush=True)

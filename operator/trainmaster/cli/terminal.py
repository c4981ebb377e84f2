"""Print what the commands print: every line is made printable, so that no control characters reach a terminal.

The live view draws by rich and uses `printable` itself; a lint rule forbids print() elsewhere.
"""

import sys
from collections.abc import Iterable

from trainmaster.wire.printable import printable, printable_in_colour, printable_without_colour


def tell(lines: Iterable[str]) -> None:
    """Print the answer of a command to standard output."""
    for line in lines:
        print(printable(line))
    sys.stdout.flush()  # once: there may be a million lines


def tell_of_a_log(line: str) -> None:
    """Print a line of a log: in its colours on a terminal, and in plain letters elsewhere."""
    print(printable_in_colour(line) if sys.stdout.isatty() else printable_without_colour(line), flush=True)


def complain(*lines: str) -> None:
    """Print what is wrong, or what is going on, to standard error."""
    for line in lines:
        print(printable(line), file=sys.stderr, flush=True)

"""The command line of the one-machine cluster.

python -m tools.onebox up        build what is missing, start the cluster, install the chart
python -m tools.onebox down      take it down and leave nothing behind
python -m tools.onebox images    build and load the images only
python -m tools.onebox status    what runs
"""

import argparse
import sys
from collections.abc import Callable, Mapping

from tools.onebox.cluster import Cluster
from tools.onebox.shell import OneboxError, say, step


def main() -> int:
    """Run one command; what the user can mend is one message and not a traceback."""
    cluster = Cluster()
    commands: Mapping[str, Callable[[], object]] = {
        "up": cluster.up,
        "down": cluster.down,
        "images": cluster.load_images,
        "status": lambda: sys.stdout.write(f"{cluster.status()}\n"),
    }
    parser = argparse.ArgumentParser(prog="python -m tools.onebox", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("command", choices=commands)
    command = parser.parse_args().command
    try:
        with step(command):
            commands[command]()
    except OneboxError as problem:
        say(f"onebox: {problem}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

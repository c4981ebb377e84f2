"""`python -m tests.simulation --seeds 10000`: random lives on all cores. `--seed 17` replays one, and tells it."""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.campaign import Campaign, live, spread, story
from tests.simulation.lives import LONELY
from tests.simulation.pairs import PAIRS

TELL_SECONDS = 10.0


def main() -> int:
    """The answer is the exit code: 0 when every life ended as it should."""
    arguments = _arguments()
    if arguments.seed is not None:
        return _replay(arguments.seed)
    began = time.monotonic()
    campaign = spread(first=arguments.first, lives=arguments.seeds or None, told=_Teller())
    seconds = time.monotonic() - began
    sys.stdout.write(
        f"{campaign.lives} lives, {campaign.calls} calls of the operator, {campaign.faults} faults, "
        f"{campaign.deaths} of them deaths of a process, "
        f"{len(campaign.failed)} failed; {seconds:.0f} s, {campaign.faults / seconds:.0f} faults/s\n"
    )
    for name, count in campaign.injected.most_common():
        sys.stdout.write(f"  {count:8d} {name}\n")
    sys.stdout.write("\n\n".join(campaign.failed[:5]) + "\n" if campaign.failed else "")
    return 1 if campaign.failed else 0


class _Teller:
    """A line of progress now and then."""

    def __init__(self) -> None:
        self._next = time.monotonic() + TELL_SECONDS

    def __call__(self, campaign: Campaign) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + TELL_SECONDS
            sys.stderr.write(f"{campaign.lives} lives, {campaign.faults} faults, {len(campaign.failed)} failed\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many lives; 0: until one goes wrong")
    parser.add_argument(
        "--first",
        type=int,
        default=0,
        help=f"the first seed; from {LONELY} on, lives of members that come and go one by one; from {PAIRS} on, "
        "scenarios in which the operator dies twice",
    )
    parser.add_argument("--seed", type=int, help="live through this one only, and tell its story")
    return parser.parse_args()


def _replay(seed: int) -> int:
    world, found = live(seed)
    sys.stdout.write(story(seed, world, found or ["nothing is wrong with it"]) + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

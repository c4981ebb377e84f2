"""`python -m tests.simulation --seeds 10000`: random lives on all cores. `--seed 17` replays one, and tells it."""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import sys
import time

from tests.simulation.campaign import Campaign, run, story
from tests.simulation.lives import Life

PORTION = 50


def main() -> int:
    """The answer is the exit code: 0 when every life ended as it should."""
    arguments = _arguments()
    if arguments.seed is not None:
        return _replay(arguments.seed)
    began = time.monotonic()
    campaign = _campaign(range(arguments.first, arguments.first + arguments.seeds))
    seconds = time.monotonic() - began
    faults = sum(campaign.injected.values())
    sys.stdout.write(
        f"{campaign.lives} lives, {campaign.calls} calls of the operator, {faults} faults, "
        f"{len(campaign.failed)} failed; {seconds:.0f} s, {campaign.calls / seconds:.0f} calls/s\n"
    )
    for name, count in campaign.injected.most_common():
        sys.stdout.write(f"  {count:8d} {name.replace('_', ' ')}\n")
    sys.stdout.write("\n\n".join(campaign.failed[:5]) + "\n" if campaign.failed else "")
    return 1 if campaign.failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many lives")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="live through this one only, and tell its story")
    return parser.parse_args()


def _campaign(seeds: range) -> Campaign:
    portions = [seeds[start : start + PORTION] for start in range(0, len(seeds), PORTION)]
    total = Campaign()
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
        for campaign in pool.map(run, portions):
            total = total.add(campaign)
            if sys.stderr.isatty():
                sys.stderr.write(f"\r{total.lives} lives, {len(total.failed)} failed")
    return total


def _replay(seed: int) -> int:
    world, found = Life.of(seed).live()
    sys.stdout.write(story(seed, world, found or ["nothing is wrong with it"]) + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

"""ParameterServer Async with 1 to 4 servers and 4 workers behind links of 100 Mbit/s. Needs root.

Where one server's link is the limit, the speed grows with the number of servers. Two bring little over one: from two
on each shard has a live copy at its neighbour, so a gradient passes two servers' links (2S/n each instead of S).
Four servers have half of one's traffic each, so twice the speed is what the bytes allow.
"""

from bench import results
from bench.links import switched
from bench.ranks import run_script

WORKERS = 4
MOST = 4
STEPS = 40
MEGABITS = 100


def main() -> str:
    """Measure; gives the last line."""
    with switched(WORKERS + MOST, MEGABITS) as hosts:
        places = [f"{host.namespace}={host.address}" for host in hosts]
        found = run_script("servers.py", WORKERS, MOST, STEPS, *places)
    speeds = {int(servers): figures["steps_per_second"] for servers, figures in found.items()}
    ratio = speeds[MOST] / speeds[1]
    results.save("servers", {"megabits": MEGABITS, "workers": WORKERS, "steps_per_second": speeds, "ratio": ratio})
    return f"servers: {ratio:.1f}x one server ({MOST} servers)"

"""All-reduce by driver, ring and hierarchy as the number of ranks grows, two to a host behind links of 50 Mbit/s. Root.

What the links predict, with S bytes, N ranks on W = N/2 hosts: the driver's host receives (N-2)S and then sends as
much; a host of the ring sends 2S(N-1)/N while it receives as much; the hierarchy 2S(W-1)/W. The figure is how far the
measured times with most ranks are from that. (`driver_ring` has one rank to a host, and no hierarchy.)
"""

from typing import Any

from bench import results
from bench.links import DEVICE, switched
from bench.ranks import run_script

ROUNDS = 2
EACH = 2  # ranks of a host
HOSTS = (1, 2, 3, 4)
SIZE = 3_000_000
MEGABITS = 50


def main() -> str:
    """Measure; gives the last line."""
    series: dict[str, dict[int, float]] = {}
    for hosts in HOSTS:
        for name, seconds in _measure(hosts).items():
            series.setdefault(name, {})[EACH * hosts] = results.median(seconds)
            print(f"{name}, {EACH * hosts} ranks: {results.median(seconds):.2f} s", flush=True)
    most = EACH * HOSTS[-1]
    predicted = {name: {EACH * hosts: _predicted(name, hosts) for hosts in HOSTS} for name in series}
    off = {name: series[name][most] / predicted[name][most] - 1 for name in series}
    figures = {"seconds": series, "predicted": predicted, "off": off, "size": SIZE, "megabits": MEGABITS}
    ratios = {f"driver_to_{name}": series["driver"][most] / series[name][most] for name in ("ring", "hierarchical")}
    results.save("links_series", {**figures, **ratios, "ranks": most})
    return "links_series: " + ", ".join(f"{name} {share:+.1%} of predicted" for name, share in off.items())


def _predicted(name: str, hosts: int) -> float:
    ranks = EACH * hosts
    sizes = {
        "driver": 2 * (ranks - EACH),
        "ring": 2 * (ranks - 1) / ranks if hosts > 1 else 0,
        "hierarchical": 2 * (hosts - 1) / hosts,
    }
    return sizes[name] * SIZE / (MEGABITS * 1e6 / 8)


def _measure(count: int) -> dict[str, Any]:
    with switched(count, MEGABITS) as hosts:
        environment = {"MASTER_ADDR": hosts[0].address, "MASTER_PORT": "29400", "GLOO_SOCKET_IFNAME": DEVICE}
        namespaces = [host.namespace for host in hosts]
        seconds: dict[str, Any] = run_script("driver_ring.py", ROUNDS, SIZE, EACH, *namespaces, **environment)[
            "seconds"
        ]
    return seconds

"""All-reduce over 8 hosts behind links of 50 Mbit/s: through a driver against along a ring. Needs root.

Aim: the ratio that the bytes predict, within 15 %. The driver receives (N-1)S and then sends (N-1)S; a rank of the
ring sends 2S(N-1)/N and receives as much at the same time. So the driver takes N times as long.
"""

from bench import results
from bench.links import DEVICE, switched
from bench.ranks import run_script

ROUNDS = 3
RANKS = 8
SIZE = 6_000_000
MEGABITS = 50


def main() -> str:
    """Measure; gives the last line."""
    with switched(RANKS, MEGABITS) as hosts:
        environment = {"MASTER_ADDR": hosts[0].address, "MASTER_PORT": "29400", "GLOO_SOCKET_IFNAME": DEVICE}
        namespaces = [host.namespace for host in hosts]
        found = run_script("driver_ring.py", ROUNDS, SIZE, 1, *namespaces, **environment)
    seconds, sent, received = found["seconds"], found["sent"], found["received"]
    predicted = (sent["driver"] + received["driver"]) / sent["ring"]
    ratios = [driver / ring for driver, ring in zip(seconds["driver"], seconds["ring"], strict=True)]
    ratio = results.median(ratios)
    for name, times in seconds.items():
        print(f"{name}: {results.median(times):.2f} s, rank 0 sent {sent[name]} bytes, received {received[name]}")
    off = ratio / predicted - 1
    results.save("driver_ring", {**found, "ratios": ratios, "ratio": ratio, "predicted": predicted, "off": off})
    return f"driver_ring: driver {ratio:.2f}x ring, {predicted:.2f}x predicted from bytes ({off:+.1%})"

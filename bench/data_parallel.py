"""Data parallelism of two ranks on one host: the strategy AllReduce against DDP with gloo, and against one rank.

Aims: at least 1.5 times DDP with gloo where communication takes most of a step; where computing does, at least 0.95 of
two times the samples per second of one rank (one thread each, so two free cores are needed).
"""

from bench import results
from bench.ranks import run_ranks

ROUNDS = 5
RANKS = 2


def main() -> str:
    """Measure; gives the last line."""
    millis = run_ranks("data_parallel.py", RANKS, ROUNDS)
    bound, free = millis["communication"], millis["computing"]
    ratios = [gloo / ours for gloo, ours in zip(bound["gloo"], bound["trainmaster"], strict=True)]
    parts = [one / two for one, two in zip(free["one rank"], free["trainmaster"], strict=True)]
    for name, times in millis.items():
        print(f"{name}: " + ", ".join(f"{who} {results.median(each):.1f} ms" for who, each in times.items()))
    ratio, efficiency = results.median(ratios), results.median(parts)
    figures = {"milliseconds": millis, "ratios": ratios, "ratio": ratio, "efficiency": efficiency}
    results.save("data_parallel", figures)
    return f"data_parallel: {ratio:.2f}x DDP with gloo; {efficiency:.2f} of two times one rank where computing is most"

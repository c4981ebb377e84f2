"""Data parallelism of two ranks on one host: the strategy AllReduce against DDP with gloo, and against one rank.

Aims: at least 1.5 times DDP with gloo where communication takes most of a step; where computing does, at least 0.95 of
two times the samples per second of one rank (one thread each, so two free cores are needed). The ceiling of the latter
is what two ranks reach that exchange nothing, and only wait for one another after each step: cores that share caches,
memory and a clock are less than two times one, and of two the slower one counts.
"""

from bench import results
from bench.ranks import run_ranks

ROUNDS = 21
RANKS = 2


def main() -> str:
    """Measure; gives the last line."""
    found = run_ranks("data_parallel.py", RANKS, ROUNDS)
    bound, free = found["communication"]["wall"], found["computing"]["wall"]
    for name, each in found.items():
        medians = {who: (results.median(each["wall"][who]), results.median(each["core"][who])) for who in each["wall"]}
        print(
            f"{name}: " + ", ".join(f"{who} {wall:.1f} ms (core {core:.1f})" for who, (wall, core) in medians.items())
        )
    ratio = _ratio(bound["gloo"], bound["trainmaster"])
    efficiency, apart, ceiling = (
        _ratio(free["one rank"], free[who]) for who in ("trainmaster", "side by side", "in step")
    )
    of_core = _ratio(found["communication"]["core"]["gloo"], found["communication"]["core"]["trainmaster"])
    figures = {"milliseconds": found, "ratio": ratio, "core_ratio": of_core, "efficiency": efficiency}
    of_ceiling = _ratio(free["in step"], free["trainmaster"])
    results.save("data_parallel", {**figures, "apart": apart, "ceiling": ceiling, "of_ceiling": of_ceiling})
    told = (
        f"{efficiency:.2f} of two times one rank where computing is most ({ceiling:.2f} in step without any exchange)"
    )
    return f"data_parallel: {ratio:.2f}x DDP with gloo; {told}"


def _ratio(theirs: list[float], ours: list[float]) -> float:
    """The median over rounds: neighbours in time are compared."""
    return results.median([one / other for one, other in zip(theirs, ours, strict=True)])

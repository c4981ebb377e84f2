"""Data parallelism of two ranks on one host: the strategy AllReduce against DDP with gloo, and against one rank.

Aims: at least 1.5 times DDP with gloo where communication takes most of a step; where computing does, at least 0.95 of
two times the samples per second of one rank (one thread each, so two free cores are needed). The ceiling of the latter
is what two ranks reach that exchange nothing, and only wait for one another after each step: cores that share caches,
memory and a clock are less than two times one, and of two the slower one counts. In steps of 50 ms it counts more than
in those of 200: both are measured.
"""

from bench import results
from bench.ranks import run_ranks

ROUNDS = 21
RANKS = 2


def main() -> str:
    """Measure; gives the last line."""
    found = run_ranks("data_parallel.py", RANKS, ROUNDS)
    bound = found["communication"]["wall"]
    for name, each in found.items():
        medians = {who: (results.median(each["wall"][who]), results.median(each["core"][who])) for who in each["wall"]}
        print(
            f"{name}: " + ", ".join(f"{who} {wall:.1f} ms (core {core:.1f})" for who, (wall, core) in medians.items())
        )
    ratio = _ratio(bound["gloo"], bound["trainmaster"])
    of_core = _ratio(found["communication"]["core"]["gloo"], found["communication"]["core"]["trainmaster"])
    short, long = (_of_two(found[name]["wall"]) for name in ("computing", "computing long"))
    figures = {"milliseconds": found, "ratio": ratio, "core_ratio": of_core, **long}
    results.save("data_parallel", {**figures, **{f"{name}_short": figure for name, figure in short.items()}})
    told = [f"{one['efficiency']:.2f} ({one['ceiling']:.2f} in step without any exchange)" for one in (long, short)]
    return f"data_parallel: {ratio:.2f}x DDP with gloo; of two times one rank {told[0]}, in short steps {told[1]}"


def _of_two(wall: dict[str, list[float]]) -> dict[str, float]:
    """Shares of two times one rank's samples per second; `of_ceiling`: of what two in step reach."""
    names = {"efficiency": "trainmaster", "apart": "side by side", "ceiling": "in step"}
    found = {name: _ratio(wall["one rank"], wall[who]) for name, who in names.items()}
    return {**found, "of_ceiling": _ratio(wall["in step"], wall["trainmaster"])}


def _ratio(theirs: list[float], ours: list[float]) -> float:
    """The median over rounds: neighbours in time are compared."""
    return results.median([one / other for one, other in zip(theirs, ours, strict=True)])

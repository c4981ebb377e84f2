"""All-reduce between two ranks of one host: through shared memory against gloo, on the same tensors in turn.

Aim: 5 times gloo at 1 MiB and 2.5 times at 32 MiB.
"""

from bench import results
from bench.ranks import run_ranks

ROUNDS = 9
RANKS = 2
MEBIBYTE = 1 << 20


def main() -> str:
    """Measure; gives the last line."""
    micros = run_ranks("all_reduce.py", RANKS, ROUNDS)
    ratios = {}
    for size, of_gloo in micros["gloo"].items():
        of_memory = micros["memory"][size]
        ratio = [theirs / ours for theirs, ours in zip(of_gloo, of_memory, strict=True)]
        ratios[size] = {"median": results.median(ratio), "worst": min(ratio)}
        line = f"{size} bytes: gloo {results.median(of_gloo):.0f} us, memory {results.median(of_memory):.0f} us"
        print(f"{line}, {results.median(ratio):.1f}x, worst round {min(ratio):.1f}x", flush=True)
    at_1_mib, at_32_mib = (ratios[str(size)]["median"] for size in (MEBIBYTE, 32 * MEBIBYTE))
    figures = {"microseconds": micros, "ratios": ratios, "at_1_mib": at_1_mib, "at_32_mib": at_32_mib}
    results.save("all_reduce", figures)
    return f"all_reduce: {at_1_mib:.1f}x gloo at 1 MiB, {at_32_mib:.1f}x at 32 MiB"

"""`python -m bench [NAME ...]`: run the named measurements, or all of them. The last line is the figure."""

import signal
import sys
from importlib import import_module

from bench import plots
from docs import strategy_pages

NAMES = (
    "advise",
    "all_reduce",
    "checkpoint",
    "corruption",
    "data_parallel",
    "driver_ring",
    "evaluation",
    "first_step",
    "fleet",
    "framework_restart",
    "framework_start",
    "gpu",
    "hostile",
    "input",
    "kill_every",
    "links_series",
    "loss_curves",
    "metrics",
    "model_parallel",
    "operator",
    "parameter_server",
    "pod_loss",
    "reproducible",
    "restart",
    "servers",
    "scale",
    "session",
    "step_time",
    "straggler",
    "submit",
    "throughput",
    "transport",
)


def main(names: list[str]) -> int:
    """Run each and print its line."""
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"no such measurement: {', '.join(unknown)}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as an exception, so that what was started is ended
    for name in names or NAMES:
        print(import_module(f"bench.{name}").main(), flush=True)
    plots.draw()
    strategy_pages.write()  # it quotes the results and shows the plots
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

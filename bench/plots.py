"""Draws docs/plots/*.svg from the result files. Called after every `make bench`; measures nothing."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "trainmaster"  # the same figures give the same file

from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402

from bench.results import FOLDER  # noqa: E402

PLOTS = Path(__file__).parents[1] / "docs" / "plots"
Result = dict[str, Any]


def loss_curves(axes: Axes, result: Result) -> None:
    """Loss against samples."""
    for name, points in result["curves"].items():
        axes.plot(*zip(*points, strict=True), label=name, linewidth=1)
    axes.set(xlabel="samples", ylabel="loss", title="The same task and seed under every strategy")
    axes.legend(fontsize="small", ncols=2)


def all_reduce(axes: Axes, result: Result) -> None:
    """How many times gloo's speed, by size."""
    names = [f"{int(size) >> 10} KiB" for size in result["ratios"]]
    axes.bar(names, [ratio["median"] for ratio in result["ratios"].values()])
    axes.axhline(1, color="grey", linewidth=1)
    axes.set(ylabel="times gloo's speed", title="All-reduce between two ranks of one host, through shared memory")


def predictions(axes: Axes, result: Result) -> None:
    """Predicted against measured step times."""
    for row in result["rows"]:
        axes.scatter(row["measured"] * 1e3, row["predicted"] * 1e3, color="tab:blue", s=12)
        axes.annotate(row["strategy"], (row["measured"] * 1e3, row["predicted"] * 1e3), fontsize=6)
    most = max(max(row["measured"], row["predicted"]) for row in result["rows"]) * 1.1e3
    axes.plot([0, most], [0, most], color="grey", linewidth=1)
    axes.set(xlabel="measured, ms", ylabel="predicted, ms", title="The cost model's step times")


# Result file to how it is drawn.
DRAWN: dict[str, Callable[[Axes, Result], None]] = {
    "loss_curves": loss_curves,
    "all_reduce": all_reduce,
    "advise": predictions,
}


def draw() -> None:
    """All plots whose results are there."""
    PLOTS.mkdir(exist_ok=True)
    for name, plot in DRAWN.items():
        path = FOLDER / f"{name}.json"
        if path.exists():
            figure, axes = plt.subplots(figsize=(6.4, 4), layout="constrained")
            plot(axes, json.loads(path.read_text()))
            figure.savefig(PLOTS / f"{name}.svg", metadata={"Date": None})
            plt.close(figure)

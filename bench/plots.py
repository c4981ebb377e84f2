"""Draws docs/plots/*.svg from the result files. Called after every `make bench`; measures nothing."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "trainmaster"  # the same figures give the same file

from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

from bench.plot_style import GREY, Points, beside, clean, colour, curves, note  # noqa: E402
from bench.results import FOLDER  # noqa: E402

PLOTS = Path(__file__).parents[1] / "docs" / "plots"
Result = dict[str, Any]
_SAME = 0.01  # curves whose last losses differ by less are one line to the eye


def loss_curves(figure: Figure, result: Result) -> None:
    """Loss against samples. Those that lie on OneDevice's line share its name."""
    axes = _axes(figure, "samples", "loss")
    found: dict[str, Points] = {name: [tuple(point) for point in points] for name, points in result["curves"].items()}
    last = found["OneDevice"][-1][1]
    same = [name for name, points in found.items() if abs(points[-1][1] / last - 1) < _SAME]
    axes.set_ylim(0.97 * min(y for points in found.values() for _, y in points), max(p[0][1] for p in found.values()))
    for name, points in sorted(found.items(), key=lambda line: line[0] == "OneDevice"):  # that one on top
        axes.plot(*zip(*points, strict=True), color=colour(name), linewidth=1, alpha=0.9)
    beside(axes, {name: points[-1] for name, points in found.items() if name == "OneDevice" or name not in same})
    if len(same) > 1:
        note(axes, "On OneDevice's line lie\n" + ",\n".join(same[1:]), left=False)
    axes.set_title("The same task and seed under every strategy", fontsize=10, loc="left")


def throughput(figure: Figure, result: Result) -> None:
    """Samples per second against workers, beside the same with a straggler."""
    left, right = figure.subplots(1, 2, sharey=True)
    each, slow = result["ideal"]["each"], result["ideal"]["slow"]
    counts = sorted({int(count) for line in result["even"].values() for count in line})
    titles = ("All workers alike", f"The last worker {each / slow:.0f} times slower")
    for axes, kind, title in zip((left, right), ("even", "straggler"), titles, strict=True):
        clean(axes)
        axes.set(xlabel="workers", xticks=counts, ylim=(0, 1.08 * each * counts[-1]))
        axes.set_title(title, fontsize=10, loc="left")
        ideal = [each * count if kind == "even" else each * (count - 1) + slow for count in counts]
        axes.plot(counts, ideal, color=GREY, linewidth=1, linestyle=":")
        note(axes, "dotted: every worker's own pace")
        curves(axes, {name: _points(line) for name, line in result[kind].items()}, marker="o")
    left.set_ylabel("samples per second")


def links_series(figure: Figure, result: Result) -> None:
    """Seconds of an all-reduce against ranks, with what the bytes predict."""
    megabytes, megabits = result["size"] / 1e6, result["megabits"]
    axes = _axes(figure, "ranks, two to a host", f"seconds for {megabytes:.0f} MB")
    lines = {name: _points(line) for name, line in result["seconds"].items()}
    axes.set(
        xticks=[int(x) for x, _ in lines["ring"]], ylim=(0, 1.1 * max(y for line in lines.values() for _, y in line))
    )
    for name, predicted in result["predicted"].items():
        axes.plot(*zip(*_points(predicted), strict=True), color=colour(name), linewidth=1, linestyle=":")
    curves(axes, lines, marker="o")
    axes.set_title(f"All-reduce over links of {megabits} Mbit/s; dotted: by the bytes", fontsize=10, loc="left")


def servers(figure: Figure, result: Result) -> None:
    """Steps per second against the number of parameter servers."""
    axes = _axes(figure, "parameter servers", "steps per second")
    points = _points(result["steps_per_second"])
    ideal = [(count, points[0][1] * count / points[0][0]) for count, _ in points]
    axes.set(xticks=[int(count) for count, _ in points], ylim=(0, 1.05 * max(y for _, y in (*points, *ideal))))
    axes.plot(*zip(*ideal, strict=True), color=GREY, linewidth=1, linestyle=":")
    beside(axes, {"as many times one server": ideal[-1]})
    curves(axes, {"ParameterServer": points}, marker="o")
    axes.set_title("One server's link is the limit", fontsize=10, loc="left")


def all_reduce(figure: Figure, result: Result) -> None:
    """How many times gloo's speed, by size."""
    axes = _axes(figure, "size of the tensor", "times gloo's speed")
    names = [_in_bytes(int(size)) for size in result["ratios"]]
    values = [ratio["median"] for ratio in result["ratios"].values()]
    bars = axes.bar(names, values, color=colour("AllReduce"), width=0.6)
    axes.bar_label(bars, fmt="%.1f", fontsize=8)
    axes.axhline(1, color=GREY, linewidth=1)
    axes.annotate("gloo", (len(names) - 0.55, 1), (0, 4), textcoords="offset points", fontsize=8, color=GREY)
    axes.set_title("All-reduce between two ranks of one host, through shared memory", fontsize=10, loc="left")


def predictions(figure: Figure, result: Result) -> None:
    """Predicted over measured step times: a row of dots for each strategy."""
    axes = _axes(figure, "predicted step time / measured step time", "")
    names = list(dict.fromkeys(row["strategy"] for row in result["rows"]))[::-1]
    for row in result["rows"]:
        axes.scatter(
            row["predicted"] / row["measured"], names.index(row["strategy"]), color=colour(row["strategy"]), s=22
        )
    axes.axvline(1, color=GREY, linewidth=1)
    axes.grid(axis="y", visible=False)
    axes.set(yticks=range(len(names)), yticklabels=names, xlim=(0, max(2.0, 1.05 * result["highest"])))
    axes.set_title("The cost model of `trainmaster advise` against what the jobs then did", fontsize=10, loc="left")


def _axes(figure: Figure, x: str, y: str) -> Axes:
    axes = figure.subplots()
    axes.set(xlabel=x, ylabel=y)
    clean(axes)
    return axes


def _points(line: Mapping[str, float]) -> Points:
    """[(x, y)] of a result's member, whose keys JSON has made texts of."""
    return sorted((float(x), y) for x, y in line.items())


def _in_bytes(size: int) -> str:
    return f"{size >> 20} MiB" if size >> 20 else f"{size >> 10} KiB"


# Result file to how it is drawn, and how wide.
DRAWN: dict[str, tuple[Callable[[Figure, Result], None], float]] = {
    "loss_curves": (loss_curves, 7.2),
    "throughput": (throughput, 8.4),
    "links_series": (links_series, 6.4),
    "servers": (servers, 6.4),
    "all_reduce": (all_reduce, 6.4),
    "advise": (predictions, 6.4),
}


def draw(folder: Path = PLOTS, suffix: str = "svg") -> None:
    """All plots whose results are there."""
    folder.mkdir(exist_ok=True)
    for name, (plot, width) in DRAWN.items():
        path = FOLDER / f"{name}.json"
        if path.exists():
            figure = plt.figure(figsize=(width, 3.6), layout="constrained")
            plot(figure, json.loads(path.read_text()))
            metadata = {"Date": None} if suffix == "svg" else None
            figure.savefig(folder / f"{name}.{suffix}", metadata=metadata, dpi=110)
            plt.close(figure)


if __name__ == "__main__":
    draw()

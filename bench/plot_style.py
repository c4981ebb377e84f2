"""How all plots look: one colour for a strategy everywhere, and names beside the lines instead of a legend."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

Points = Sequence[tuple[float, float]]

# Okabe and Ito's colours, which colour-blind readers can tell apart; a strategy keeps its own in every plot.
COLOURS = {
    "OneDevice": "#000000",
    "AllReduce": "#0072B2",
    "LocalSGD": "#009E73",
    "ParameterServer": "#D55E00",
    "Gossip": "#CC79A7",
    "FullySharded": "#56B4E9",
    "Pipeline": "#E69F00",
    "driver": "#D55E00",
    "ring": "#0072B2",
    "hierarchical": "#009E73",
}
GREY = "#777777"
_GAP = 0.055  # of the height between two names


def colour(name: str) -> str:
    """Of a strategy or an algorithm."""
    return COLOURS.get(name, GREY)


def curves(axes: Axes, lines: Mapping[str, Points], *, marker: str = "") -> None:
    """Lines with their names at their right ends; call it after the limits of y are set."""
    for name, points in lines.items():
        axes.plot(*zip(*points, strict=True), color=colour(name), linewidth=1.6, marker=marker, markersize=4)
    beside(axes, {name: (points[-1][0], points[-1][1]) for name, points in lines.items()})


def beside(axes: Axes, ends: Mapping[str, tuple[float, float]]) -> None:
    """A name at the right of each end; those that would lie on one another are stacked, within the axes."""
    low, high = axes.get_ylim()
    order = sorted(ends, key=lambda name: ends[name][1])
    places: list[float] = []
    for name in order:
        least = places[-1] + _GAP if places else float("-inf")
        places.append(max((ends[name][1] - low) / (high - low), least))
    too_high = max(0.0, places[-1] - 1)
    for name, place in zip(order, places, strict=True):
        where = (ends[name][0], low + (place - too_high) * (high - low))
        style: dict[str, Any] = {"va": "center", "color": colour(name), "fontsize": 8, "annotation_clip": False}
        axes.annotate(name, where, (6, 0), textcoords="offset points", **style)


def note(axes: Axes, text: str, *, left: bool = True) -> None:
    """A remark in the upper left or right corner, inside."""
    place = (0.03, 0.96) if left else (0.97, 0.96)
    axes.text(*place, text, transform=axes.transAxes, ha="left" if left else "right", va="top", fontsize=8, color=GREY)


def clean(axes: Axes) -> None:
    """No frame above and at the right, light lines to read values by."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)

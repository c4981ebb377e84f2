"""Draw the curves, the attempts and the goodput of a report as SVG, without a script."""

from collections.abc import Sequence
from datetime import datetime

from trainmaster.api.status import Goodput, TrainingJobStatus
from trainmaster.cli.curves import Curve
from trainmaster.cli.markup import Markup, element
from trainmaster.cli.subjects import Subject
from trainmaster.core.figures import short, tenths

WIDTH, HEIGHT = 860, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 12, 12, 26
_BAR = 26
COLOURS = ("#2166c2", "#c2410c", "#15803d", "#9333ea", "#b45309", "#0e7490", "#be123c", "#4d7c0f")
_ACCOUNTS = (
    ("training", "#15803d"),
    ("saving", "#0e7490"),
    ("starting", "#b45309"),
    ("waiting", "#6b7280"),
    ("recovering", "#c2410c"),
    ("lost_work", "#be123c"),
)

Point = tuple[float, float]


def colour(number: int) -> str:
    """Return the colour of a training by its place in the report."""
    return COLOURS[number % len(COLOURS)]


def figure(name: str, subjects: Sequence[Subject]) -> Markup:
    """Return the curves of one figure, one for each training that has it, with its restarts as upright lines."""
    drawn = [
        (number, subject, subject.curves.by_name[name])
        for number, subject in enumerate(subjects)
        if name in subject.curves.by_name
    ]
    points = [point for _, _, curve in drawn for point in curve.points]
    steps = (min(step for step, _ in points), max(step for step, _ in points))
    values = (min(value for _, value in points), max(value for _, value in points))
    parts: list[str] = [*_axes(steps, values)]
    for number, subject, curve in drawn:
        parts += _restarts(subject, steps)
        parts.append(_line(curve, steps, values, colour(number)))
    label = f"{name} over steps {steps[0]} to {steps[1]}"
    return element("svg", parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=label)


def _line(curve: Curve, steps: tuple[int, int], values: Point, stroke: str) -> Markup:
    places = [(_x(step, steps), _y(value, values)) for step, value in curve.points]
    text = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    if len(places) == 1:
        return element("circle", cx=f"{places[0][0]:.1f}", cy=f"{places[0][1]:.1f}", r=3, fill=stroke)
    return element("polyline", points=text, fill="none", stroke=stroke, stroke_width=1.6, stroke_linejoin="round")


def _axes(steps: tuple[int, int], values: Point) -> list[str]:
    floor = HEIGHT - _BOTTOM
    parts: list[str] = []
    for part in range(5):
        value = values[0] / 4 * (4 - part) + values[1] / 4 * part
        y = _y(value, values) if values[1] > values[0] else floor
        parts.append(element("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=f"{y:.1f}", y2=f"{y:.1f}", class_="grid"))
        parts.append(element("text", short(value), x=_LEFT - 6, y=f"{y + 4:.1f}", text_anchor="end"))
        if values[1] <= values[0]:
            break
    parts.append(element("text", f"step {steps[0]}", x=_LEFT, y=HEIGHT - 6))
    parts.append(element("text", str(steps[1]), x=WIDTH - _RIGHT, y=HEIGHT - 6, text_anchor="end"))
    return parts


def _restarts(subject: Subject, steps: tuple[int, int]) -> list[str]:
    parts: list[str] = []
    for record in subject.status.restarts:
        if steps[0] <= record.step <= steps[1]:
            x = f"{_x(record.step, steps):.1f}"
            told = element("title", f"{subject.name}: {record.failure_class} at step {record.step}")
            parts.append(element("line", told, x1=x, x2=x, y1=_TOP, y2=HEIGHT - _BOTTOM, class_="restart"))
    return parts


def _x(step: int, steps: tuple[int, int]) -> float:
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * _share(step, *steps)


def _y(value: float, values: Point) -> float:
    return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * _share(value, *values)


def _share(value: float, low: float, high: float) -> float:
    return (value / 2 - low / 2) / (high / 2 - low / 2) if high / 2 > low / 2 else 0.0


def goodput(spent: Goodput) -> Markup:
    """Return a bar of where the time went, with its legend."""
    parts, legend, x = [], [], 0.0
    for account, fill in _ACCOUNTS:
        seconds = getattr(spent, account)
        if seconds <= 0:
            continue
        width = WIDTH * seconds / spent.total
        words = f"{account.replace('_', ' ')} {tenths(seconds)} ({100 * seconds / spent.total:.0f}%)"
        told = element("title", words)
        parts.append(element("rect", told, x=f"{x:.1f}", y=0, width=f"{width:.1f}", height=_BAR, fill=fill))
        legend.append(element("span", element("i", "", style=f"background:{fill}"), words))
        x += width
    bar = element("svg", parts, viewBox=f"0 0 {WIDTH} {_BAR}", role="img", aria_label="where the time went")
    return element("div", bar, element("p", legend, class_="legend"))


def attempts(status: TrainingJobStatus) -> Markup | None:
    """Return the attempts as bars over time, each up to its failure; None where there was one alone."""
    began = (status.goodput.since if status.goodput else None) or status.start_time
    ended = status.completion_time or (status.goodput.time if status.goodput else None)
    if not status.restarts or began is None or ended is None or ended <= began:
        return None
    total = (ended - began).total_seconds()

    def place(time: datetime) -> float:
        return WIDTH * min(max((time - began).total_seconds() / total, 0.0), 1.0)

    parts: list[str] = []
    start = 0.0
    for record in status.restarts:
        end, lost = place(record.time), WIDTH * min((record.seconds_lost or 0.0) / total, 1.0)
        parts.append(_attempt(start, end, f"attempt {record.attempt}, ended by {record.failure_class}"))
        told = element("title", f"{record.failure_class}: {record.seconds_lost or 0:.3g} s until the next step")
        parts.append(
            element("rect", told, x=f"{end:.1f}", y=0, width=f"{max(lost, 2):.1f}", height=_BAR, class_="lost")
        )
        start = min(end + lost, WIDTH)
    parts.append(_attempt(start, float(WIDTH), f"attempt {status.attempt}"))
    return element("svg", parts, viewBox=f"0 0 {WIDTH} {_BAR}", role="img", aria_label="attempts over time")


def _attempt(start: float, end: float, words: str) -> Markup:
    told = element("title", words)
    width = max(end - start, 1)
    return element("rect", told, x=f"{start:.1f}", y=0, width=f"{width:.1f}", height=_BAR, class_="attempt")

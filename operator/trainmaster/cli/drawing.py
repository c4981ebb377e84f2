"""Draw curves in letters: Braille dots, two by four to a letter, or stars where the terminal has no such letters."""

from collections.abc import Sequence

from trainmaster.core.figures import short

Points = Sequence[tuple[int, float]]

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a Braille letter, by row and column
_BLANK = 0x2800
_ACROSS, _DOWN = 2, 4


class Canvas:
    """A canvas is a grid of dots with a scale: steps to the right, values upwards."""

    def __init__(self, columns: int, rows: int, steps: tuple[int, int], values: tuple[float, float]) -> None:
        self._columns, self._rows = columns, rows
        self._steps, self._values = steps, values
        self._grid = [[0] * columns for _ in range(rows)]

    def draw(self, points: Points) -> None:
        """Draw a line through the points."""
        places = [self._place(step, value) for step, value in points]
        for (x0, y0), (x1, y1) in zip(places, places[1:] or places, strict=False):
            for part in range(length := max(abs(x1 - x0), abs(y1 - y0), 1)):
                self._dot(round(x0 + (x1 - x0) * part / length), round(y0 + (y1 - y0) * part / length))
        if places:
            self._dot(*places[-1])

    def column(self, step: int) -> int:
        """Return the column of letters in which a step is drawn."""
        return self._place(step, self._values[0])[0] // _ACROSS

    def lines(self, *, braille: bool) -> list[str]:
        """Return the letters, the uppermost row first."""
        if braille:
            return ["".join(chr(_BLANK + dots) for dots in row) for row in self._grid]
        return ["".join("*" if dots else " " for dots in row) for row in self._grid]

    def _place(self, step: int, value: float) -> tuple[int, int]:
        width, height = self._columns * _ACROSS - 1, self._rows * _DOWN - 1
        return round(width * _share(step, self._steps)), height - round(height * _share(value, self._values))

    def _dot(self, x: int, y: int) -> None:
        self._grid[y // _DOWN][x // _ACROSS] |= _DOTS[y % _DOWN][x % _ACROSS]


def _share(value: float, ends: tuple[float, float]) -> float:
    low, high = (end / 2 for end in ends)  # the difference of two numbers near the largest ones is infinite
    return min(max((value / 2 - low) / (high - low), 0.0), 1.0) if high > low else 0.0


def panel(points: Points, scale: tuple[float, float], size: tuple[int, int], *, braille: bool) -> list[str]:
    """Return a curve with its axes. `size` is in letters, the axes included; `scale` the lowest and highest value."""
    labels = [short(scale[1]), short(scale[0])]
    margin = max(map(len, labels)) + 1
    columns, rows = max(size[0] - margin - 1, 10), size[1]
    steps = (points[0][0], points[-1][0])
    canvas = Canvas(columns, rows, steps, scale)
    canvas.draw(points)
    side = "│" if braille else "|"
    heads = [labels[0], *[""] * (rows - 2), labels[1]]
    drawn = [
        f"{head:>{margin - 1}} {side}{line}" for head, line in zip(heads, canvas.lines(braille=braille), strict=True)
    ]
    corner, floor = ("└", "─") if braille else ("+", "-")
    first, last = f"step {steps[0]}", str(steps[1])
    gap = max(columns + 1 - len(first) - len(last), 1)
    return [
        *(line.rstrip(" ⠀") for line in drawn),
        f"{' ' * margin}{corner}{floor * columns}",
        f"{' ' * margin}{first}{' ' * gap}{last}",
    ]


def marks(steps: Sequence[int], points: Points, scale: tuple[float, float], width: int) -> str:
    """Return a row for below a panel that points at these steps; empty where none of them is in it."""
    margin = max(len(short(value)) for value in scale) + 1
    canvas = Canvas(max(width - margin - 1, 10), 1, (points[0][0], points[-1][0]), scale)
    columns = {canvas.column(step) for step in steps if points[0][0] <= step <= points[-1][0]}
    return (
        " " * (margin + 1) + "".join("^" if at in columns else " " for at in range(max(columns) + 1)) if columns else ""
    )

"""`make pictures` calls this: docs/plots/run.svg, what a terminal shows of a run that loses a worker.

It runs in the documentation's own environment, which has a terminal emulator, and starts the real `trainmaster run`.
"""

import fcntl
import io
import itertools
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

import pyte
from rich.console import Console
from rich.style import Style
from rich.text import Text

PICTURE = Path(__file__).parent / "plots" / "run.svg"
ROWS, COLUMNS = 40, 112
JOB = Path("examples/digits/job.yaml")


def main(trainmaster: str) -> None:
    """Run, and write the picture."""
    screen = pyte.Screen(COLUMNS, ROWS)
    with tempfile.TemporaryDirectory() as folder:
        words = ["run", str(JOB), "--workdir", f"{folder}/run", "--fault", "kill:worker/1@step=120"]
        _follow([trainmaster, *words], pyte.ByteStream(screen))
        lines = [
            Text(f"$ trainmaster run {JOB} --fault kill:worker/1@step=120", Style(bold=True)),
            *_lines(screen, folder),
        ]
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for line in lines:
        console.print(line, soft_wrap=True)
    svg = console.export_svg(title="trainmaster run", unique_id="run")
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)  # the reader's own font: nothing is fetched
    PICTURE.write_text("\n".join(line.rstrip() for line in svg.splitlines() if line.strip()) + "\n")


def _follow(command: list[str], stream: pyte.ByteStream) -> None:
    """Run the command in a terminal of its own, and feed what it prints to the emulator."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, env=environment) as child:
        os.close(theirs)
        while True:
            try:
                data = os.read(ours, 1 << 16)
            except OSError:  # the child has closed its end
                break
            if not data:
                break
            stream.feed(data)
    os.close(ours)
    if child.returncode:
        sys.exit(f"{' '.join(command)} ended with {child.returncode}")


def _lines(screen: pyte.Screen, folder: str) -> list[Text]:
    """Return the lines of the screen with their colours, the name of the folder shortened."""
    lines = []
    for row in range(screen.lines):
        cells = [screen.buffer[row][column] for column in range(screen.columns)]
        line = Text()
        for (color, bold), run in itertools.groupby(cells, lambda cell: (cell.fg, cell.bold)):
            text = "".join(cell.data for cell in run)
            line.append(text.replace(folder, "/tmp"), Style(color=_color(color), bold=bold))  # noqa: S108  only shown
        line.rstrip()
        lines.append(line)
    while lines and not lines[-1].plain:
        lines.pop()
    return lines


def _color(name: str) -> str | None:
    names = {"default": None, "brown": "yellow"}
    return names.get(name, f"#{name}" if len(name) == len("ffffff") and name.isalnum() and not name.isalpha() else name)


if __name__ == "__main__":
    main(sys.argv[1])

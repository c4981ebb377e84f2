"""The tutorial's files do what the tutorial says: trained, killed, gone on from the same step, exported, loaded."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.local.command import BIN, Command

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text()
FENCE = re.compile(
    r"^```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
MODEL = "/tmp/tutorial/model.safetensors"  # noqa: S108  as the page names it


def test_the_tutorial_holds_word_by_word(command: Command) -> None:
    blocks = [found.groupdict() for found in FENCE.finditer(PAGE)]
    for block in blocks:
        if block["title"]:
            (command.folder / block["title"]).write_text(block["text"])
    (fault,) = re.findall(r"--fault (\S+)", PAGE)
    assert command.start(command.folder / "job.yaml", "--fault", fault).end() == 0
    (line,) = command.status["restarts"]
    assert (line["step"], line["class"]) == (150, "Signal")
    assert line["stepsLost"] <= 50, "on a busy machine copies in memory are rarer; a checkpoint was saved at 100"
    assert command.status["progress"]["summary"] == "300/300"
    model = command.folder / "model.safetensors"
    subprocess.run([BIN, "export", str(command.workdir), "-o", str(model)], check=True, capture_output=True)
    (loads,) = (block["text"] for block in blocks if block["language"] == "python" and not block["title"])
    subprocess.run([sys.executable, "-c", loads.replace(MODEL, str(model))], check=True)

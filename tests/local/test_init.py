"""What `trainmaster init` writes trains as it is, and the list of runs knows how."""

import pytest
from trainmaster.cli.main import main

from tests.local.command import Command


@pytest.mark.parametrize(("kind", "changes"), [((), ("--set", "training.steps=20")), (("--script",), ())])
def test_what_init_writes_trains(
    command: Command,
    kind: tuple[str, ...],
    changes: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(command.folder)
    assert main(["init", "begin", *kind]) == 0
    workdir = command.folder / ".trainmaster" / "first"
    options = ("--workdir", str(workdir), *changes)
    assert command.start(command.folder / "begin" / "job.yaml", *options, EPOCHS="2").end() == 0
    capsys.readouterr()
    assert main(["plot", "first"]) == 0
    assert "first (Succeeded)" in capsys.readouterr().out
    assert main(["list", "--local"]) == 0
    assert "AllReduce" in capsys.readouterr().out, "the run has kept its job"

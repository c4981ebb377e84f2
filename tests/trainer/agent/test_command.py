"""What a command line of a TrainingJob means."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from trainmaster.wire.torchrun import CommandError
from trainmaster_trainer.agent import foreign_script, main_module
from trainmaster_trainer.agent.command import EXECUTE, MODULE, SCRIPT, parse

ME = "/venv/bin/python3"

TABLE = [
    ("python train.py", SCRIPT, "train.py", (), False),
    ("python3 train.py --lr 1 -m x", SCRIPT, "train.py", ("--lr", "1", "-m", "x"), False),
    (f"python3.{sys.version_info[1]} -u train.py -u", SCRIPT, "train.py", ("-u",), True),
    (f"{ME} train.py", SCRIPT, "train.py", (), False),
    ("python -m package.train a", MODULE, "package.train", ("a",), False),
    ("python -u -m package.train", MODULE, "package.train", (), True),
    ("/opt/conda/bin/python train.py", EXECUTE, "/opt/conda/bin/python", ("/opt/conda/bin/python", "train.py"), False),
    ("python -c pass", EXECUTE, ME, (ME, "-c", "pass"), False),
    ("python -O train.py", SCRIPT, "train.py", (), False),
    ("python -i train.py", EXECUTE, ME, (ME, "-i", "train.py"), False),
    ("python -V", EXECUTE, ME, (ME, "-V"), False),
    ("python -W", EXECUTE, ME, (ME, "-W"), False),
    ("python train.pyc", EXECUTE, ME, (ME, "train.pyc"), False),
    ("python3.1 train.py", EXECUTE, "python3.1", ("python3.1", "train.py"), False),
    ("python", EXECUTE, ME, (ME,), False),
    ("bash train.sh", EXECUTE, "bash", ("bash", "train.sh"), False),
    ("./python-wrapper x", EXECUTE, "./python-wrapper", ("./python-wrapper", "x"), False),
    ("torchrun train.py --lr 1", SCRIPT, "train.py", ("--lr", "1"), True),
    ("/venv/bin/torchrun --nproc-per-node 2 --standalone train.py -m", SCRIPT, "train.py", ("-m",), True),
    ("torchrun --nproc_per_node=2 --nnodes=1:4 --rdzv-backend c10d train.py", SCRIPT, "train.py", (), True),
    ("torchrun --nnodes 2 -m package.train x", MODULE, "package.train", ("x",), True),
    ("torchrun --no_python ./run.sh x", EXECUTE, "./run.sh", ("./run.sh", "x"), False),
    ("python -m torch.distributed.run --nnodes 2 train.py", SCRIPT, "train.py", (), True),
    ("python -W ignore -m torch.distributed.run train.py", SCRIPT, "train.py", (), True),
    ("python -W ignore -m deepspeed.launcher.runner train.py", SCRIPT, "train.py", (), True),
    ("deepspeed --num_gpus 2 train.py --lr 1", SCRIPT, "train.py", ("--lr", "1"), True),
    ("deepspeed --module package.train", MODULE, "package.train", (), True),
    ("deepspeed --no_python ./run.sh x", EXECUTE, "./run.sh", ("./run.sh", "x"), False),
]


@pytest.mark.parametrize(("line", "kind", "target", "arguments", "unbuffered"), TABLE)
def test_table(line: str, kind: str, target: str, arguments: tuple[str, ...], unbuffered: bool) -> None:
    found = parse(line.split(), ME)
    assert (found.kind, found.target, found.arguments, found.unbuffered) == (kind, target, arguments, unbuffered)


def test_accelerate_makes_its_variables_by_the_python_that_it_belongs_to(tmp_path: Path) -> None:
    """Ours goes on as a rank afterwards; another one becomes the script."""
    (tmp_path / "python").touch()
    (tmp_path / "accelerate").touch(mode=0o755)
    ours = parse(["python", "-m", "accelerate.commands.launch", "--cpu", "t.py"], ME)
    other = parse([f"{tmp_path}/accelerate", "launch", "--cpu", "t.py"], ME)
    assert (ours.kind, ours.target, ours.arguments[3:]) == (EXECUTE, ME, ("--cpu", "t.py"))
    assert (other.target, other.arguments[2:]) == (f"{tmp_path}/python", ("[]", "--cpu", "t.py"))
    assert json.loads(ours.arguments[2])
    assert ours.note.startswith("accelerate is not needed here")


def test_torchrun_is_told_to_the_reader() -> None:
    assert "torchrun" in parse(["torchrun", "train.py"], ME).note
    assert not parse(["python", "train.py"], ME).note


def test_a_shells_script_is_read_for_launchers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several ranks each would start a whole group. A program that is no text is left alone."""
    monkeypatch.chdir(tmp_path)
    Path("run.sh").write_text("torchrun --nproc_per_node=2 t.py\n")
    Path("go").write_text("#!/usr/bin/env bash\nexec bash run.sh\n")
    for words in (["bash", "run.sh"], ["./go"], ["sh", "-c", "./go"]):
        with pytest.raises(CommandError, match="starts torchrun in each of the 2 ranks"):
            foreign_script.refuse(words, None, 2)
        foreign_script.refuse(words, None, 1)
    foreign_script.refuse(["ls"], None, 2)


@pytest.mark.parametrize("line", ["torchrun train.py", "python train.py", "python -m torch.distributed.run train.py"])
def test_a_script_of_another_framework_is_refused_in_whichever_environment_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    (tmp_path / "bin").mkdir()
    for program in ("python", "torchrun"):
        (tmp_path / "bin" / program).touch(mode=0o755)
    (tmp_path / "lib/python3.11/site-packages/torch").mkdir(parents=True)
    (tmp_path / "train.py").write_text("import jax\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    with pytest.raises(main_module.BadConfigurationError, match="JAX"):
        foreign_script.refuse(line.split(), None, 2)

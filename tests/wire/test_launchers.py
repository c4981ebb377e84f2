"""What deepspeed and `accelerate launch` would start, and what of that is refused."""

from __future__ import annotations

import pytest
from trainmaster.wire import torchrun
from trainmaster.wire.launchers import launched
from trainmaster.wire.torchrun import CommandError

TABLE = [
    ("accelerate launch train.py --lr 1", "accelerate", "train.py", ("--lr", "1"), (None, None)),
    ("/venv/bin/accelerate launch --num_processes=4 train.py", "accelerate", "train.py", (), (None, "4")),
    ("accelerate launch --num-processes 4 --num_machines 2 --multi_gpu t.py", "accelerate", "t.py", (), ((2, 2), "2")),
    (
        "python -m accelerate.commands.launch --config_file c -m p.train x",
        "accelerate",
        "p.train",
        ("x",),
        (None, None),
    ),
    ("accelerate-launch --cpu t.py", "accelerate", "t.py", (), (None, None)),
    ("deepspeed train.py --deepspeed ds.json", "deepspeed", "train.py", ("--deepspeed", "ds.json"), (None, None)),
    ("deepspeed --num_nodes 2 --num_gpus 4 --module p.train", "deepspeed", "p.train", (), ((2, 2), "4")),
    ("torchrun --nnodes 2 t.py", "torchrun", "t.py", (), ((2, 2), None)),
]


@pytest.mark.parametrize(("line", "launcher", "program", "arguments", "size"), TABLE)
def test_table(line: str, launcher: str, program: str, arguments: tuple[str, ...], size: tuple[object, object]) -> None:
    found = launched(line.split())
    assert found
    assert (found.launcher, found.program, found.arguments) == (launcher, program, arguments)
    assert (found.nodes, found.per_node) == size


@pytest.mark.parametrize("line", ["python train.py", "accelerate config", "accelerate", "bash deepspeed.sh"])
def test_what_is_no_launcher(line: str) -> None:
    assert launched(line.split()) is None


def test_deepspeed_tells_the_local_rank_by_an_argument_unless_it_is_not_to() -> None:
    told, untold = launched(["deepspeed", "t.py"]), launched(["deepspeed", "--no_local_rank", "t.py"])
    assert told
    assert untold
    assert (told.tells_local_rank, told.local_rank_option, untold.tells_local_rank) == (True, "--local_rank", False)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("deepspeed --include localhost:0,1 t.py", "deepspeed's --include is not supported: which machines take part"),
        ("deepspeed --autotuning run t.py", "it starts many jobs of its own"),
        ("accelerate launch --tpu t.py", "use spec.workers.accelerator: tpu"),
        ("accelerate launch --multi_gpu", "is given no program to start"),
        ("accelerate launch --num_processes", "--num_processes has no value"),
        ("accelerate launch --num_processes many t.py", "--num_processes is a number from 1 on, not 'many'"),
        ("accelerate launch --num_processes 3 --num_machines 2 t.py", "cannot share 3 processes among 2 machines"),
        ("accelerate launch --help", "prints a text and starts nothing"),
        ("accelerate launch -m --no_python t", "exclude one another"),
    ],
)
def test_what_is_refused_and_why(line: str, said: str) -> None:
    with pytest.raises(CommandError, match=said):
        launched(line.split())


def test_a_job_of_another_size_is_refused_in_the_launchers_words() -> None:
    found = launched(["accelerate", "launch", "--num_processes", "4", "t.py"])
    assert found
    torchrun.check_size(found, 4, 1, 4)
    torchrun.check_size(found, 1, 4, 4)
    with pytest.raises(CommandError, match=r"accelerate is to start 4 processes.*correct --num_processes"):
        torchrun.check_size(found, 2, 1, 4)


def test_without_a_number_there_are_as_many_processes_as_the_job_has() -> None:
    found = launched(["deepspeed", "t.py"])
    assert found
    torchrun.check_size(found, 3, 8, None)

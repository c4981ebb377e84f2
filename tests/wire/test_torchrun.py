"""What torchrun would start, and what of that a job of this size refuses."""

import re

import pytest
from trainmaster.wire.torchrun import CommandError, check_size, launched


@pytest.mark.parametrize(
    ("options", "replicas", "ranks", "per_node"),
    [
        ("", 1, 1, None),
        ("", 4, 1, None),
        ("--standalone --nproc-per-node 3", 3, 1, 3),
        ("--nproc-per-node 2", 5, 2, 2),
        ("--nnodes 2 --nproc-per-node 4", 2, 4, 4),
        ("--nnodes 2 --nproc-per-node 4", 8, 1, 4),
        ("--nnodes 1:4 --nproc-per-node 2", 3, 2, 2),
    ],
)
def test_a_job_that_has_as_many_processes(options: str, replicas: int, ranks: int, per_node: int | None) -> None:
    launch = launched(["torchrun", *options.split(), "t.py"])
    assert launch
    check_size(launch, replicas, ranks, per_node)


@pytest.mark.parametrize(
    ("options", "replicas", "ranks", "per_node", "said"),
    [
        (
            "--nproc-per-node 3",
            1,
            1,
            3,
            "start 3 processes, and the job has 1 worker of 1: set spec.workers.replicas to 3",
        ),
        ("--nproc-per-node 6", 2, 4, 6, "or spec.workers.gpus to 6 where each process has a GPU"),
        ("--nnodes 2 --nproc-per-node 2", 3, 2, 2, "2 processes on 2 nodes, and the job has 3 workers of 2"),
        ("--nnodes 2:3", 4, 1, None, "1 processes on 2 to 3 nodes, and the job has 4 workers of 1"),
    ],
)
def test_a_job_of_another_size(options: str, replicas: int, ranks: int, per_node: int | None, said: str) -> None:
    launch = launched(["torchrun", *options.split(), "t.py"])
    assert launch
    with pytest.raises(CommandError, match=re.escape(said)):
        check_size(launch, replicas, ranks, per_node)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("torchrun --log-dir logs t.py", "torchrun's --log-dir is not supported"),
        ("torchrun -r 3 t.py", "torchrun's --redirects is not supported"),
        ("torchrun --numa-binding node t.py", "ranks are not bound to cores"),
        ("torchrun --unheard-of t.py", "torchrun would not take this"),
        ("torchrun --nproc-per-node 2", "torchrun would not take this"),
        ("torchrun --nnodes two t.py", "--nnodes is a number or MIN:MAX"),
        ("torchrun --no-python -m t", "exclude one another"),
        ("python -m torch.distributed.launch --no-python t", "needs --use-env"),
    ],
)
def test_options_that_cannot_be_obeyed_are_refused(command: str, said: str) -> None:
    with pytest.raises(CommandError, match=re.escape(said)):
        launched(command.split())


@pytest.mark.parametrize(
    ("command", "program", "arguments"),
    [
        ("torchrun --nproc-per-node 2 -- t.py --nnodes 3", "t.py", ("--nnodes", "3")),
        ("/opt/bin/torchrun t.py", "t.py", ()),
        ("python -u -m torch.distributed.run --standalone t.py", "t.py", ()),
        ("python3 -m torch.distributed.launch t.py", "t.py", ()),
    ],
)
def test_the_program_that_is_started(command: str, program: str, arguments: tuple[str, ...]) -> None:
    launch = launched(command.split())
    assert launch
    assert (launch.program, launch.arguments) == (program, arguments)


@pytest.mark.parametrize("command", ["python t.py", "python -m t torch.distributed.run", "python", "./torchrun.sh"])
def test_other_commands_are_no_torchrun(command: str) -> None:
    assert launched(command.split()) is None

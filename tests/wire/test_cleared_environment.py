"""Whether the programs of a command can be told to count their steps, by its words alone."""

import pytest
from trainmaster.wire.cleared_environment import not_counted

SCRIPTS = {"run.sh": "set -e\ncd /code\n\npython -I train.py \\\n  --lr 1\n"}


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["bash", "-c", "cd . && python -I train.py"], "`python -I`"),
        (["sh", "-ec", "exec /opt/bin/python3.12 -uE -m train"], "`python3.12 -uE`"),
        (["bash", "run.sh"], "`python -I`"),
        (["env", "-i", "HOME=/root", "python", "train.py"], "`env -i`"),
        (["env", "-", "bash", "-c", "python train.py"], "`env -`"),
        (["sudo", "-u", "me", "python", "train.py"], "`sudo`"),
        (["bash", "-c", "python -E prepare.py; sudo python train.py"], "`sudo`"),
        (["sudo", "-E", "python", "train.py"], ""),
        (["env", "A=1", "python", "train.py"], ""),
        (["bash", "-c", "sudo mount /data && python train.py"], ""),
        (["bash", "-c", "python -I -m pip install . && python train.py"], ""),
        (["bash", "-c", "python -I -m pip install . && torchrun train.py"], ""),
        (["bash", "-c", "python -I prepare.py; accelerate launch train.py"], ""),
        (["bash", "-c", "python -I prepare.py && nice ./train.py"], ""),
        (["bash", "-c", "python -I -m torch.distributed.run train.py"], ""),
        (["bash", "-c", "env -i torchrun train.py"], "`env -i`"),
        (["bash", "-c", "sudo chmod +x run.sh && my-train"], ""),
        (["bash", "-c", "python train.py -E -I"], ""),
        (["bash", "-c", "python -X dev -W Error train.py"], ""),
        (["bash", "absent.sh"], ""),
        (["bash"], ""),
        (["./train", "-I"], ""),
    ],
)
def test_a_command_that_keeps_the_environment_from_its_programs_is_told(command: list[str], why: str) -> None:
    said = not_counted(command, lambda name: SCRIPTS.get(name, ""))
    assert (f"steps are not counted, as {why} keeps" in said) == bool(why)
    assert bool(said) == bool(why)

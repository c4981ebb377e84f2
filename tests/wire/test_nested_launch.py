"""A launcher behind a shell would start a whole group in each rank: it is found, and nothing else is."""

from __future__ import annotations

import pytest
from trainmaster.wire.nested_launch import refuse_nested
from trainmaster.wire.torchrun import CommandError

TORCHRUN = "python -m torch.distributed.run"
REFUSED = [
    (["bash", "-c", "cd x && torchrun --nproc_per_node=2 t.py"], "bash starts torchrun"),
    (["bash", "-lc", "export A=1; exec torchrun t.py"], "bash starts torchrun"),
    (["sh", "-c", f"pip install x\nA=1 {TORCHRUN} t.py"], f"sh starts {TORCHRUN}"),
    (["sh", "-c", "if true; then /opt/bin/torchrun \\\n --standalone t.py; fi"], "sh starts torchrun"),
    (["bash", "-c", "accelerate launch --num_machines 1 t.py | tee log"], "bash starts accelerate launch"),
    (["sh", "-c", "(deepspeed t.py)"], "sh starts deepspeed"),
    (["sh", "-c", "uv run torchrun t.py"], "sh starts torchrun"),
    (["env", "A=1", "torchrun", "--nnodes=1", "t.py"], "env starts torchrun"),
    (["numactl", "-N", "0", "python3.11", "-u", "-m", "torch.distributed.run", "t.py"], f"numactl starts {TORCHRUN}"),
    (["bash", "-x", "run.sh", "2"], "bash starts torchrun"),
    (["./run.sh"], "run.sh starts torchrun"),
    (["bash", "-c", "source env && ./outer.sh"], "bash starts torchrun"),
    (["A=1", "torchrun", "t.py"], "A=1 is no program: set variables in spec.workers.env"),
]
LET_BE = [
    ["bash", "-c", "python train.py --launcher torchrun"],
    ["bash", "-c", "echo torchrun t.py"],
    ["bash", "-c", "# torchrun t.py\npython t.py"],
    ["bash", "-c", "torchrun --nnodes=$N --node_rank=$RANK t.py"],
    ["bash", "-c", "torchrun --nnodes 2 t.py"],
    ["bash", "-c", "accelerate launch --config_file a.yaml t.py"],
    ["bash", "-c", "echo 'an open\nquote' && python t.py"],
    ["env", "A=1", "python", "t.py"],
    ["python", "t.py", "torchrun"],
    ["bash", "itself.sh"],
    ["bash", "nowhere.sh"],
    ["bash"],
    ["bash", "-c"],
    [""],
]
SCRIPTS = {
    "run.sh": "#!/bin/bash\nset -e\ntorchrun --nproc_per_node=$1 t.py\n",
    "./run.sh": "#!/bin/bash\ntorchrun t.py\n",
    "./outer.sh": "#!/bin/sh\nexec bash run.sh 2\n",
    "itself.sh": "bash itself.sh\n",
}


@pytest.mark.parametrize(("command", "said"), REFUSED)
def test_what_is_refused_where_there_are_several_ranks(command: list[str], said: str) -> None:
    with pytest.raises(CommandError, match=said):
        refuse_nested(command, 2, lambda name: SCRIPTS.get(name, ""))


@pytest.mark.parametrize("command", LET_BE)
def test_what_is_let_be(command: list[str]) -> None:
    refuse_nested(command, 2, lambda name: SCRIPTS.get(name, ""))


def test_one_rank_may_start_what_it_likes() -> None:
    refuse_nested(["bash", "-c", "torchrun --nproc_per_node=2 t.py"], 1)

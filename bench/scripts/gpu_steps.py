"""One rank of DDP over NCCL on a GPU, bf16, AdamW: 134 million weights, so that the state is 1.6 GB.

Arguments: the folder of the notes, the number of steps, and who keeps the state: `own` saves it by torch.save every 100
steps, `session` has Trainmaster keep it. Each step appends `step time pid` to FOLDER/rank-0.txt, and
what comes before the first one `stage time pid` to FOLDER/stages.txt.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH, LAYERS, EVERY = 4096, 8, 100


def main() -> None:
    """Train on noise."""
    folder, steps, keeper = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    stages = (folder / "stages.txt").open("a", buffering=1)

    def reached(stage: str) -> None:
        stages.write(f"{stage} {time.time():.6f} {os.getpid()}\n")

    reached("imported")
    torch.cuda.set_device(0)
    torch.zeros(1, device="cuda")
    reached("cuda")
    dist.init_process_group("nccl")
    dist.all_reduce(torch.ones(1, device="cuda"))
    torch.cuda.synchronize()
    reached("nccl")
    torch.manual_seed(0)
    layers = [part for _ in range(LAYERS) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    replica = DistributedDataParallel(nn.Sequential(*layers).cuda(), device_ids=[0])
    optimizer = torch.optim.AdamW(replica.parameters(), lr=1e-4)
    reached("model")
    done, after_step = _own(folder, replica, optimizer) if keeper == "own" else _session(replica, optimizer)
    reached("restored")
    inputs = torch.randn(8192, WIDTH, device="cuda")
    with (folder / "rank-0.txt").open("a", buffering=1) as notes:
        for step in range(done + 1, steps + 1):
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = replica(inputs).float().square().mean()
            loss.backward()
            optimizer.step()
            torch.cuda.synchronize()  # so that the note tells of a step that was taken
            after_step(step)
            notes.write(f"{step} {time.time():.6f} {os.getpid()}\n")
    dist.destroy_process_group()


def _own(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[int, Callable[[int], object]]:
    path = folder / "checkpoint.pt"
    done = 0
    if path.exists():
        kept = torch.load(path)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        done = int(kept["step"])

    def save(step: int) -> None:
        if step % EVERY == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, f"{path}.new")
            Path(f"{path}.new").replace(path)

    return done, save


def _session(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[int, Callable[[int], object]]:
    from trainmaster_trainer import session  # noqa: PLC0415 the other contestant does without

    state = session.state(model=model, optimizer=optimizer)
    return state.restore(), state.step


if __name__ == "__main__":
    main()

"""The line that scripts of torch's own libraries train, what one process makes of it, and the death in the middle."""

import os
import signal
from pathlib import Path

import torch

STEPS, RATE, SAVE_EVERY, DIES_AT = 40, 0.05, 10, 25
FOLDER = Path(os.environ.get("TRAINMASTER_CHECKPOINTS", "."))


def data():
    """Return the rows of all processes, and what they come to."""
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    return x, x.sum(1, keepdim=True)


def model():
    """Return the same model in each process."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def loss_of(guess, y):
    """Return the mean of squares."""
    return ((guess - y) ** 2).mean()


def share(rank, size):
    """Return the rows of one of the processes."""
    x, y = data()
    mine = slice(rank * len(x) // size, (rank + 1) * len(x) // size)
    return x[mine], y[mine]


def alone():
    """Return the weights after all steps of one process that has all rows."""
    one, (x, y) = model(), data()
    optimizer = torch.optim.SGD(one.parameters(), RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(one(x), y).backward()
        optimizer.step()
    return [parameter.detach() for parameter in one.parameters()]


def maybe_die(step, here=True):
    """Kill this process in the middle of the first attempt, where that is asked for."""
    if here and step == DIES_AT and os.environ["TRAINMASTER_ATTEMPT"] == os.environ.get("DIE_IN_ATTEMPT"):
        os.kill(os.getpid(), signal.SIGKILL)


def tell(weights, first, expected=None, **figures):
    """Print whether the weights are those of one process, and where this attempt began."""
    pairs = zip(weights, expected or alone(), strict=True)
    away = max((mine - right).abs().max().item() for mine, right in pairs)
    told = " ".join(f"{name}={value:g}" for name, value in {"from": first, **figures}.items())
    print(f"RIGHT {told}" if away < 1e-5 else f"WRONG by {away}", flush=True)

"""The least that a synchronous parameter server on one host can cost: a limit, and nothing that anybody could use.

Two trainers and a server share three flat tensors (the parameters, a gradient of each trainer) and wait for one another
by semaphores. There are no messages, tickets, samples, progress, keys, checkpoints or failures.

Arguments: steps, hidden width, hidden layers. Prints the steps/s of a trainer.
"""

import ctypes
import mmap
import os
import sys

import torch
from rpc_parameter_server import compute, make_model  # type: ignore[import-not-found]  # its neighbour in this folder
from torch import Tensor, nn
from trainmaster_trainer.shared_memory.semaphores import SIZE, Semaphore

TRAINERS = 2
FLOAT = 4  # bytes
HEAD = 4096


class Shared:
    """Memory for the semaphores, the parameters and the gradients."""

    def __init__(self, count: int) -> None:
        self._memory = mmap.mmap(-1, HEAD + (1 + TRAINERS) * count * FLOAT)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self.pushed, *self.answered = [Semaphore(address + SIZE * index) for index in range(1 + TRAINERS)]
        for semaphore in (self.pushed, *self.answered):
            semaphore.create(0)
        self.parameters, *self.gradients = [self._tensor(index, count) for index in range(1 + TRAINERS)]

    def _tensor(self, index: int, count: int) -> Tensor:
        return torch.frombuffer(self._memory, dtype=torch.float32, offset=HEAD + index * count * FLOAT, count=count)


def trainer(model: nn.Module, shared: Shared, index: int, steps: int) -> float:
    """Steps per second."""
    parameters = list(model.parameters())
    places = views(shared.gradients[index], parameters)

    def exchange(model: nn.Module) -> nn.Module:
        torch._foreach_copy_(places, [parameter.grad for parameter in parameters if parameter.grad is not None])
        shared.pushed.post()
        shared.answered[index].wait(lambda: None)
        return model

    return float(compute(model, steps, exchange))


def serve(shared: Shared, steps: int) -> None:
    """Add up, step, answer."""
    optimizer = torch.optim.SGD([shared.parameters], lr=0.001, momentum=0.9)
    shared.parameters.grad = torch.zeros_like(shared.parameters)
    for _ in range(steps):
        for _ in range(TRAINERS):
            shared.pushed.wait(lambda: None)
        torch.add(*shared.gradients, out=shared.parameters.grad)
        shared.parameters.grad /= TRAINERS
        optimizer.step()
        for semaphore in shared.answered:
            semaphore.post()


def views(flat: Tensor, like: list[nn.Parameter]) -> list[Tensor]:
    """Pieces of `flat`, shaped like these."""
    pieces = torch.split(flat, [parameter.numel() for parameter in like])
    return [piece.view_as(parameter) for piece, parameter in zip(pieces, like, strict=True)]


def main() -> None:
    """The server, and the trainers in processes of their own."""
    steps, width, layers = (int(argument) for argument in sys.argv[1:4])
    torch.set_num_threads(1)
    model = make_model(width, layers)
    parameters = list(model.parameters())
    shared = Shared(sum(parameter.numel() for parameter in parameters))
    for place, parameter in zip(views(shared.parameters, parameters), parameters, strict=True):
        place.copy_(parameter.detach())
        parameter.data = place
    for index in range(TRAINERS):
        if os.fork() == 0:
            speed = trainer(model, shared, index, steps)
            if index == 0:
                print(speed, flush=True)
            os._exit(0)
    serve(shared, steps)
    for _ in range(TRAINERS):
        os.wait()


if __name__ == "__main__":
    main()

"""A pipeline by torch.distributed.rpc: rank 0 drives, each other rank has a stage, gradients flow by dist_autograd."""

import os

import line
import torch
from torch.distributed import autograd, rpc
from torch.distributed.optim import DistributedOptimizer

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
kept = line.FOLDER / "stages.pt"


class Stage:
    """Stage has some of the layers, in a process of its own."""

    def __init__(self, number, state):
        layers = line.model()
        self.layers = layers[:2] if number == 1 else layers[2:]
        if state:
            self.layers.load_state_dict(state)

    def forward(self, x):
        """Return what the layers make of a part of the batch."""
        return self.layers(x)

    def parameters(self):
        """Return references to the weights, for the optimizer."""
        return [rpc.RRef(parameter) for parameter in self.layers.parameters()]

    def state(self, step):
        """Return the weights; die in the middle, where that is asked for."""
        line.maybe_die(step, rank == size - 1)
        return self.layers.state_dict()


def drive():
    """Train by parts of a batch, of which one is in the second stage while the next is in the first."""
    first, states = torch.load(kept) if kept.exists() else (0, [None, None])
    stages = [rpc.remote(f"stage-{number}", Stage, args=(number, states[number - 1])) for number in (1, 2)]
    references = [reference for stage in stages for reference in stage.rpc_sync().parameters()]
    optimizer = DistributedOptimizer(torch.optim.SGD, references, lr=line.RATE)
    x, y = line.data()
    for number in range(first, line.STEPS):
        with autograd.context() as context:
            middle = [stages[0].rpc_async().forward(part) for part in x.chunk(4)]
            ends = [stages[1].rpc_async().forward(part.wait()) for part in middle]
            loss = line.loss_of(torch.cat(torch.futures.wait_all(ends)), y)
            autograd.backward(context, [loss])
            optimizer.step(context)
        states = [stage.rpc_sync().state(number + 1) for stage in stages]
        if (number + 1) % line.SAVE_EVERY == 0:
            torch.save((number + 1, states), kept.with_suffix(".new"))
            kept.with_suffix(".new").replace(kept)
    line.tell([value for state in states for value in state.values()], first, stages=len(stages))


options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=120)
rpc.init_rpc("driver" if rank == 0 else f"stage-{rank}", rank=rank, world_size=size, rpc_backend_options=options)
if rank == 0:
    drive()
rpc.shutdown()

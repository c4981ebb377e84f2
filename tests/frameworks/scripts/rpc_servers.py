"""A parameter server by torch.distributed.rpc: rank 0 has the model, and steps when all gradients are there."""

import os
import threading

import line
import torch
from torch.distributed import rpc

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
kept = line.FOLDER / "server.pt"


class Server:
    """Server has the model and its step; a step is taken with the mean of all trainers' gradients."""

    def __init__(self):
        self.model, self.done, self.pushes = line.model(), 0, 0
        if kept.exists():
            self.done, state = torch.load(kept)
            self.model.load_state_dict(state)
        self.first = self.done
        self.optimizer = torch.optim.SGD(self.model.parameters(), line.RATE)
        self.lock, self.waiting, self.stepped = threading.Lock(), [], torch.futures.Future()

    def state(self):
        """Return the step and the weights."""
        return self.done, [parameter.detach() for parameter in self.model.parameters()]

    @staticmethod
    @rpc.functions.async_execution
    def push(server, gradients):
        """Take the gradients of a trainer; its answer comes when all trainers' are there."""
        self = server.local_value()
        with self.lock:
            self.waiting.append(gradients)
            self.pushes += 1
            answer = self.stepped
            if len(self.waiting) == size - 1:
                for parameter, *found in zip(self.model.parameters(), *self.waiting, strict=True):
                    parameter.grad = sum(found) / len(found)
                self.optimizer.step()
                self.done, self.waiting, self.stepped = self.done + 1, [], torch.futures.Future()
                if self.done % line.SAVE_EVERY == 0:
                    torch.save((self.done, self.model.state_dict()), kept.with_suffix(".new"))
                    kept.with_suffix(".new").replace(kept)
                answer.set_result(self.state())
        return answer


def train(server):
    """Train as one of the trainers until all steps are done."""
    model, (x, y) = line.model(), line.share(rank - 1, size - 1)
    done, weights = server.rpc_sync().state()
    while done < line.STEPS:
        line.maybe_die(done, rank == size - 1)
        with torch.no_grad():
            for parameter, value in zip(model.parameters(), weights, strict=True):
                parameter.copy_(value)
        model.zero_grad()
        line.loss_of(model(x), y).backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        done, weights = rpc.rpc_sync(server.owner(), Server.push, args=(server, gradients))


options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=120)
rpc.init_rpc("server" if rank == 0 else f"trainer-{rank}", rank=rank, world_size=size, rpc_backend_options=options)
if rank == 0:
    local = Server()
    reference = rpc.RRef(local)
    torch.futures.wait_all([rpc.rpc_async(f"trainer-{other}", train, args=(reference,)) for other in range(1, size)])
    line.tell(local.state()[1], local.first, pushes=local.pushes)
rpc.shutdown()

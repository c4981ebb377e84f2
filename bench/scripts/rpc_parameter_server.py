"""The peer: a synchronous parameter server on torch.distributed.rpc, after torch's own example.

Written from pytorch/examples, distributed/rpc/batch/parameter_server.py (BatchUpdateParameterServer): trainers call
`update_and_fetch_model` with their gradients; the server waits for all of them, steps, and answers with the model.

Arguments: rank (0 is the server), world size, port, steps, hidden width, hidden layers. Trainer 1 prints steps/s.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import rpc


def make_model(width: int, layers: int) -> nn.Module:
    """The same as ours (bench/tasks.py)."""
    torch.manual_seed(0)
    hidden = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), *hidden, nn.Linear(width, 10))


class BatchUpdateParameterServer:
    """As in the example: one future for all trainers of a step."""

    def __init__(self, trainers: int, width: int, layers: int) -> None:
        self.model = make_model(width, layers)
        self.lock = threading.Lock()
        self.future: Any = torch.futures.Future()
        self.trainers = trainers
        self.waiting = 0
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.001, momentum=0.9)
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter)

    def get_model(self) -> nn.Module:
        """The first one."""
        return self.model

    @staticmethod
    @rpc.functions.async_execution  # type: ignore[untyped-decorator]
    def update_and_fetch_model(server: "rpc.RRef[BatchUpdateParameterServer]", grads: list[Tensor]) -> Any:
        """One trainer's gradients; the new model when all are there."""
        self = server.local_value()
        with self.lock:
            self.waiting += 1
            for parameter, grad in zip(self.model.parameters(), grads, strict=True):
                parameter.grad += grad
            future = self.future
            if self.waiting >= self.trainers:
                for parameter in self.model.parameters():
                    parameter.grad /= self.trainers
                self.waiting = 0
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=False)
                future.set_result(self.model)
                self.future = torch.futures.Future()
        return future


def train(server: "rpc.RRef[BatchUpdateParameterServer]", steps: int) -> float:
    """A trainer; its steps per second after the first tenth."""

    def exchange(model: nn.Module) -> nn.Module:
        grads = [parameter.grad for parameter in model.parameters()]
        update = BatchUpdateParameterServer.update_and_fetch_model
        fetched: nn.Module = rpc.rpc_sync(server.owner(), update, args=(server, grads))
        return fetched

    return compute(server.rpc_sync().get_model(), steps, exchange)


def compute(model: nn.Module, steps: int, exchange: Callable[[nn.Module], nn.Module]) -> float:
    """Forward, backward and an exchange that gives the next model; the steps per second after the first tenth."""
    torch.set_num_threads(1)
    inputs, labels = torch.randn(32, 64), torch.randint(0, 10, (32,))
    begun = 0.0
    for step in range(steps):
        if step == steps // 10:
            begun = time.perf_counter()
        model.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
        model = exchange(model)
    return (steps - steps // 10) / (time.perf_counter() - begun)


def main() -> None:
    """One process of it."""
    rank, world, port, steps, width, layers = (int(argument) for argument in sys.argv[1:7])
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=16, rpc_timeout=300)
    rpc.init_rpc("ps" if rank == 0 else f"trainer{rank}", rank=rank, world_size=world, rpc_backend_options=options)  # type: ignore[no-untyped-call]
    if rank == 0:
        server = rpc.RRef(BatchUpdateParameterServer(world - 1, width, layers))
        futures = [rpc.rpc_async(f"trainer{index}", train, args=(server, steps)) for index in range(1, world)]
        print(min(torch.futures.wait_all(futures)), flush=True)
    rpc.shutdown()


if __name__ == "__main__":
    main()

"""Take a mean over ranks in a communication hook of DistributedDataParallel (Li et al., VLDB 2020).

DDP hands over a bucket of gradients as soon as all of them are there, and goes on with the backward pass. A thread of
our own averages it meanwhile, one bucket after the other, in the order in which DDP fills them: the same on all ranks.

    replica.register_comm_hook(Communicator(mean_of, device), average)

No `from __future__ import annotations` here: DDP compares the annotations of a hook with its own types.
"""

import queue
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch._C._distributed_c10d import GradBucket  # torch.distributed exports it, but not to mypy
from torch.futures import Future

_Job = tuple[GradBucket, Future[Tensor], torch.cuda.Event | None]


class Communicator:
    """Communicator averages buckets in a thread.

    `mean_of` gets a bucket, whose tensor it replaces by the ranks' mean.
    """

    def __init__(self, mean_of: Callable[[GradBucket], object], device: torch.device) -> None:
        self.failure: Exception | None = None
        self._mean_of = mean_of
        self._device = device
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, args=(torch.get_num_threads(),), name="communication")
        self._thread.daemon = True  # a rank that fails must end without its peers' leave
        self._thread.start()

    def average(self, bucket: GradBucket) -> Future[Tensor]:
        """Return a future of the mean over all ranks, which takes the place of the bucket's tensor."""
        on_gpu = self._device.type == "cuda"
        future: Future[Tensor] = Future(devices=[self._device] if on_gpu else None)
        self._jobs.put((bucket, future, torch.cuda.current_stream().record_event() if on_gpu else None))
        return future

    def close(self) -> None:
        """End the thread after the work that it still has."""
        self._jobs.put(None)
        self._thread.join()

    def _work(self, threads: int) -> None:
        torch.set_num_threads(threads)  # it is a setting of each thread
        with self._stream():
            while (job := self._jobs.get()) is not None:
                self._do(*job)

    def _stream(self) -> AbstractContextManager[object]:
        if self._device.type != "cuda":
            return nullcontext()
        torch.cuda.set_device(self._device)
        return torch.cuda.stream(torch.cuda.Stream())  # type: ignore[no-untyped-call]

    def _do(self, bucket: GradBucket, future: Future[Tensor], filled: torch.cuda.Event | None) -> None:
        try:
            if filled is not None:
                torch.cuda.current_stream().wait_event(filled)
            self._mean_of(bucket)
        except Exception as error:  # noqa: BLE001 (the main thread must hear of whatever it was)
            self.failure = error
            future.set_exception(error)  # type: ignore[arg-type]
        else:
            future.set_result(bucket.buffer())


def average(state: Communicator, bucket: GradBucket) -> Future[Tensor]:
    """Have a bucket averaged. This is the hook; DDP demands these names of its arguments."""
    return state.average(bucket)

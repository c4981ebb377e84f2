"""Pin the pages of a slot, so that a GPU writes into them by itself, several times as fast as through a staging buffer.

Pinned pages stay in memory, which those of a slot in /dev/shm do anyhow. They must be unpinned before they are
unmapped: else what is mapped at this address next gets none of the writes, as the driver knows the old pages (seen on
an H100).
"""

from __future__ import annotations

import logging
import mmap
import weakref
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

log = logging.getLogger(__name__)


def pin_for(tensors: Iterable[Tensor], page: mmap.mmap, owner: object) -> bool:
    """Pin `page` if any of `tensors` is on a CUDA device, for as long as `owner` lives. Return whether it is pinned.

    `owner` must be what keeps the page mapped. A driver that refuses (a sandbox, say) costs speed and nothing else.
    """
    if not any(tensor.is_cuda for tensor in tensors):
        return False
    address = torch.frombuffer(page, dtype=torch.uint8).data_ptr()
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    refused = int(runtime.cudaHostRegister(address, len(page), 0))
    if refused:
        log.debug("cudaHostRegister refused %d bytes with error %d.", len(page), refused)
        with suppress(RuntimeError):  # the runtime remembers the error, and tells it to the next kernel that asks
            torch.zeros(1, device="cuda")
        return False
    weakref.finalize(owner, runtime.cudaHostUnregister, address).atexit = False  # the end of the process does it too
    return True


def copy_all(targets: list[Tensor], sources: list[Tensor], *, pinned: bool) -> None:
    """Copy each source to its target, and return when all have arrived. `pinned`: the targets' pages are."""
    torch._foreach_copy_(targets, sources, pinned)  # one call for all; torch's optimizers use it
    if pinned:
        for device in {source.device for source in sources if source.is_cuda}:
            torch.cuda.current_stream(device).synchronize()

"""Take a throwaway step in a child that stands by, so that a rank's first step finds everything touched once before.

What is new to a process the first time (pages that it shared with its parent, symbols, gloo's tables, the autograd
engine) costs 20 ms of the processor per rank; while a child stands by, no rank waits for it.
Nothing of it stays: generators, process groups, hooks and variables are as before.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
from typing import Any, Tuple

from trainmaster.wire import codec
from trainmaster.wire.training import TrainingPlan

from trainmaster_trainer.agent import rank_process


def rehearse() -> None:
    """Take the step where torch is imported and there is no GPU or TPU: only its rank may touch a device.

    With torch_xla in the image no step may be taken: the autograd engine counts the devices at a process's first
    backward pass, once, and XLA's are not there before the rank opens them.
    """
    torch = sys.modules.get("torch")
    distributed = sys.modules.get("torch.distributed")
    if torch is None or distributed is None or not distributed.is_available() or torch.cuda.is_available():
        return
    if importlib.util.find_spec("torch_xla") is not None:
        return
    before, hook = torch.get_rng_state(), sys.excepthook
    # Where gloo would look up the host's name; what it found would be of no use.
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    try:
        _begin()
        model, optimizer = _step(torch, distributed)
        _keep(torch, model, optimizer)
    except Exception:  # noqa: BLE001, S110 whatever is wrong with this torch, the rank will say it
        pass
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()
        torch.set_rng_state(before)
        sys.excepthook = hook  # a process group's own puts the rank in front of each line, and stays


def look_up() -> None:
    """Find out in the warm parent what each rank would find out for itself, while a restart waits for it."""
    _read_a_plan()
    slot, manifest = (sys.modules.get(f"trainmaster_trainer.checkpoint.{name}") for name in ("slot", "manifest_check"))
    if slot is not None and manifest is not None:
        codec.know(slot.Owner, manifest.Manifest)
    dynamo, distributed = sys.modules.get("torch._dynamo"), sys.modules.get("torch.distributed")
    # Parts of torch that have no public name: without them a rank is as good, and slower.
    with contextlib.suppress(Exception):  # `init_process_group` empties caches: full ones, page by page, each time
        dynamo.trace_rules.clear_lru_cache()  # type: ignore[union-attr]
    with contextlib.suppress(Exception):  # else it reads the metadata of all installed packages to find gloo
        distributed.Backend._ensure_backend_registered("gloo")  # type: ignore[union-attr]  # noqa: SLF001


def _read_a_plan() -> None:
    codec.decode(TrainingPlan, codec.encode(TrainingPlan("AllReduce", task="a:B", arguments={"c": 1})))


def _begin() -> None:
    """Begin as the process of a rank does, which will seed numpy's generator once more."""
    rank_process.as_if_started_afresh()
    _read_a_plan()


def _step(torch: Any, distributed: Any) -> Tuple[Any, Any]:
    """Take the step without a matrix product: at its first, MKL chooses instructions by the rank's own variables."""
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    model = torch.nn.PReLU()
    replica = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(replica.parameters(), lr=0.1)
    optimizer.zero_grad()
    replica(torch.ones(2)).sum().backward()
    optimizer.step()
    return model, optimizer


def _keep(torch: Any, model: Any, optimizer: Any) -> None:
    """Take a snapshot as a task's rank takes it, but keep it nowhere."""
    model_state = sys.modules.get("trainmaster_trainer.checkpoint.model_state")
    if model_state is None:
        return
    captured = model_state.ModelState(model, optimizer).capture()
    tensors = [*captured.tensors.values()]
    torch._foreach_copy_([torch.empty_like(tensor) for tensor in tensors], tensors)
    json.loads(json.dumps(captured.scalars))

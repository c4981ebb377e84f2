"""What ranks do in `test_data_parallel.py`: a strategy, step by step, looked at after each of them."""

import hashlib
from pathlib import Path
from typing import Any

import small_tasks  # type: ignore[import-not-found]  # a user's module: workingDirectory is this folder
from torch import Tensor, nn
from torch.distributed.tensor.debug import CommDebugMode
from trainmaster_trainer import randomness
from trainmaster_trainer.data import Batches
from trainmaster_trainer.group import Group
from trainmaster_trainer.numerics import Numerics
from trainmaster_trainer.strategies import find_strategy
from trainmaster_trainer.strategies.strategy import WholeModel


def train(
    group: Group, strategy: str, options: dict[str, Any], steps: int, task: str = "Line"
) -> tuple[WholeModel, Any]:
    """The strategy after each step."""
    randomness.seed_alike(1)
    user = getattr(small_tasks, task)()
    trained = find_strategy(strategy)(user, group, options)
    assert isinstance(trained, WholeModel)
    batches = Batches(user.dataset(), 10, steps, 1, group.device)
    after = []
    for step in range(1, steps + 1):
        trained.step(batches.take(step, trained.share))
        after.append(digest(trained.model))
    return trained, after


def digest(model: nn.Module) -> str:
    """Of all variables, buffers included."""
    whole = hashlib.sha256()
    for tensor in model.state_dict().values():
        whole.update(tensor.contiguous().numpy().tobytes())
    return whole.hexdigest()


def variables(group: Group, strategy: str, options: dict[str, Any]) -> list[str]:
    """A digest of this rank's variables after each step."""
    trained, after = train(group, strategy, options, 5, "LineWithRunningMeans")
    trained.close()
    return list(after)


def storage(group: Group) -> dict[str, Any]:
    """Where CentralStorage keeps parameters in this rank, and whether an optimizer."""
    trained, _ = train(group, "CentralStorage", {}, 2)
    files = {file_of(parameter.data) for parameter in trained.model.parameters()}
    kept = len(trained.optimizer.state) if hasattr(trained, "optimizer") else 0
    return {"files": sorted(files), "optimizer": kept}


def file_of(tensor: Tensor) -> str:
    """The inode of the mapping in which a tensor lies."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, _, _, _, inode, *_ = line.split()
        first, end = (int(address, 16) for address in span.split("-"))
        if first <= tensor.data_ptr() < end:
            return inode
    raise LookupError


def traffic(group: Group, strategy: str, options: dict[str, Any], steps: int, task: str = "Line") -> dict[str, int]:
    """Bytes that this rank moved."""
    trained: Any
    trained, _ = train(group, strategy, options, steps, task)
    counted = trained.gradients.traffic if strategy == "AllReduce" else trained._reducer.traffic
    trained.close()
    return {"sent": counted.sent, "received": counted.received}


def collectives(
    group: Group, strategy: str = "FullySharded", micro_batch: int | None = None, **options: Any
) -> dict[str, int]:
    """How often a strategy asks for each of torch's collectives in one step that is not its first."""
    randomness.seed_alike(1)
    user = small_tasks.Line()
    trained = find_strategy(strategy)(user, group, options)
    trained.use(Numerics(micro_batch=micro_batch))
    batch = Batches(user.dataset(), 30, 1, 1, group.device).take(1, trained.share)
    trained.step(batch)
    with CommDebugMode() as counted:  # type: ignore[no-untyped-call]
        trained.step(batch)
    return {str(name): count for name, count in counted.get_comm_counts().items()}

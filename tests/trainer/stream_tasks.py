"""A task whose samples are a stream. Reached by `workingDirectory: tests/trainer`."""

from typing import Any

from small_tasks import Line  # type: ignore[import-not-found]
from stream_kinds import KINDS, LENGTH, item  # type: ignore[import-not-found]
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel
from typing_extensions import override


class Streamed(Line):  # type: ignore[misc]
    """Learns from a stream of this kind; `Once` can be iterated once."""

    def __init__(self, kind: str = "Stateful", seconds: float = 0.0, dropout: float = 0.1) -> None:
        super().__init__(seconds=seconds, dropout=dropout)
        self.kind = kind

    @override
    def dataset(self) -> Any:
        return (item(number) for number in range(LENGTH)) if self.kind == "Once" else KINDS[self.kind]()


class Split(Streamed):
    """Whose two layers may be divided among ranks."""

    @override
    def tensor_plan(self, model: Any) -> dict[str, ParallelStyle]:
        return {"0": ColwiseParallel(), "2": RowwiseParallel()}

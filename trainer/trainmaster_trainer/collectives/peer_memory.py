"""Share memory among ranks of a process group: each makes a segment, and opens those of its peers.

The store tells a rank where its peers' segments are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from trainmaster_trainer.group import Group
from trainmaster_trainer.shared_memory.segment import Segment, create_segment, open_segment


class MemoryPeerLostError(RuntimeError):
    """MemoryPeerLostError says that a rank that shares memory with this one has ended, or was silent for too long."""


def connect(
    group: Group,
    name: str,
    ranks: Sequence[int],
    size: int,
    *,
    owners: Sequence[int] | None = None,
    prepare: Callable[[Segment], None] = lambda _: None,
) -> dict[int, Segment] | None:
    """Return the memory, `size` bytes each, of `owners` (all of `ranks` by default), by rank, for all of `ranks`.

    It is None, on all of them, if one cannot reach it. All of `ranks` call it; `name` is used once. `prepare` gets an
    owner's own memory before a peer sees it.
    """
    owners = ranks if owners is None else owners
    own = create_segment(size) if group.rank in owners else None
    page: dict[str, Any] = {}
    if own:
        prepare(own)
        page = own.page()
    pages = _tell(group, f"{name}/page", ranks, page)
    found = {peer: own if peer == group.rank else open_segment(pages[peer], size) for peer in owners}
    complete = {peer: segment for peer, segment in found.items() if segment}
    answers = _tell(group, f"{name}/found", ranks, len(complete) == len(owners))
    return complete if all(answers.values()) else None


def _tell(group: Group, key: str, ranks: Sequence[int], value: Any) -> dict[int, Any]:
    """Tell all ranks `value` through the store; return the values of all, by rank."""
    group.store.set(f"{key}/{group.rank}", json.dumps(value))
    return {peer: json.loads(group.store.get(f"{key}/{peer}")) for peer in ranks}

"""What a child that stands by does for practice must leave no trace."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from trainmaster.wire import codec
from trainmaster_trainer.agent import rank_process, rehearsal
from trainmaster_trainer.checkpoint import manifest_check, shard, slot


def test_nothing_of_the_rehearsal_stays() -> None:
    generator = torch.get_rng_state()
    rehearsal.rehearse()
    assert torch.equal(torch.get_rng_state(), generator)
    assert not dist.is_initialized()
    # Names of groups are counted: a rank that rehearsed meets one that did not.
    assert dist.distributed_c10d._world.group_count == 0


def test_it_takes_the_whole_step() -> None:
    """Silence is for a torch that cannot; here it can."""
    rehearsal._begin()
    model, optimizer = rehearsal._step(torch, dist)
    assert dist.is_initialized()
    dist.destroy_process_group()
    rehearsal._keep(torch, model, optimizer)
    assert model.weight.grad is not None


def test_what_the_warm_parent_looks_up_no_rank_has_to() -> None:
    codec._hints.cache_clear()
    rehearsal.look_up()
    looked_up = codec._hints.cache_info().misses
    for kind in (slot.Owner, manifest_check.Manifest, shard.ShardRecord):
        codec._hints(kind)
    assert codec._hints.cache_info().misses == looked_up
    assert "GLOO" in dist.Backend._plugins  # found, and not to be looked for again
    assert not dist.is_initialized()


def test_a_module_that_came_after_the_folder_was_looked_at_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a file system whose times are coarse nothing shows that the folder has changed."""
    monkeypatch.syspath_prepend(str(tmp_path))
    later = tmp_path / "later"
    monkeypatch.syspath_prepend(str(later))  # not there yet
    times = tmp_path.stat()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("came_late")
    (tmp_path / "came_late.py").write_text("")
    later.mkdir()
    (later / "came_later.py").write_text("")
    os.utime(tmp_path, ns=(times.st_atime_ns, times.st_mtime_ns))
    rank_process.as_if_started_afresh()
    importlib.import_module("came_late")
    importlib.import_module("came_later")
    del sys.modules["came_late"], sys.modules["came_later"]

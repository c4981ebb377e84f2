"""`session.state`: what strangers' scripts keep comes back to the last bit, and each mistake has a sentence."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DistributedSampler, TensorDataset
from trainmaster_trainer import session
from trainmaster_trainer.checkpoint.load import read
from trainmaster_trainer.checkpoint.neighbours import joined
from trainmaster_trainer.checkpoint.of_scripts import check_readable
from trainmaster_trainer.checkpoint.reading import CorruptCheckpointError
from trainmaster_trainer.checkpoint.slot import SlotError, look
from trainmaster_trainer.checkpoint.state import State
from trainmaster_trainer.errors import ConfigurationError

from tests.trainer.ranks import Job, NewJob
from tests.trainer.s3 import BUCKET, KEYS, server

ZOO = "keeping_scripts:zoo"
LINE = "keeping_scripts:line"


def a_script(new_job: NewJob, name: str = "job", **changes: Any) -> Job:
    """A job of a script, not a task; it saves every second step, and keeps no snapshots unless told to."""
    return new_job(name, task=None, command=("python", "script.py"), steps=0, global_batch_size=0, **changes)


def calls(job: Job, world: int, attempt: int, function: str, ranks_per_pod: int = 1, **arguments: Any) -> list[Any]:
    """Run one attempt; the answers, by rank."""
    running = job.calling(function, **arguments).start(world, attempt, ranks_per_pod)
    assert running.wait() == [0] * world, running.output()
    return [job.answer(rank, attempt) for rank in range(world)]


def test_whatever_has_a_state_goes_on_to_the_last_bit(new_job: NewJob, tmp_path: Path) -> None:
    """Tied weights, BF16, odd strides, an EMA, schedules, a scaler, generators, a loader for each rank.

    From a folder, from memory, from folders of each replica's own, and from an object store.
    """
    calm = calls(a_script(new_job, "calm"), 2, 1, ZOO, until=7, total=9)
    assert calm[0]["next"] != calm[1]["next"], "each rank has its own"
    (tmp_path / "s3").mkdir()
    with server(tmp_path / "s3") as port:
        store = {"checkpoint_url": f"s3://{BUCKET}/cut", "checkpoint_endpoint": f"http://127.0.0.1:{port}"}
        for name, job in {
            "folder": a_script(new_job, "folder", memory_every=0),
            "memory": dataclasses.replace(a_script(new_job, "memory", memory_every=1), memory=True),
            "private": a_script(new_job, "private", memory_every=0, checkpoint_shared=False),
            "store": a_script(new_job, "store", memory_every=0, variables=KEYS, **store),
        }.items():
            first = calls(job, 2, 1, ZOO, until=3, total=9)
            if name == "private":
                shutil.rmtree(job.checkpoints(1))  # the other replica's has all
            again = calls(job, 2, 2, ZOO, until=7, total=9)
            assert [one["done"] for one in (*first, *again)] == [0, 0, 3, 3]
            for one, other in zip(calm, again, strict=True):
                assert {**one, "done": 3} == other, name


def test_a_lost_replica_goes_on_from_its_neighbours_memory(new_job: NewJob) -> None:
    """Generators, loaders and running means included; two neighbours that are lost are too many.

    Sums of three ranks depend on how DistributedDataParallel cuts them, in their last bits.
    """
    calm = calls(a_script(new_job, "calm"), 3, 1, ZOO, until=6, total=9)
    job = dataclasses.replace(a_script(new_job, "lost", memory_every=1, checkpoint_every=100), memory=True)
    calls(job, 3, 1, ZOO, until=2, total=9)
    for attempt, (lost, until, source) in enumerate([([0], 4, "memory"), ([2], 5, "memory"), ([0, 1], 6, "")], 2):
        for pod in lost:
            shutil.rmtree(job.folder / f"memory-{pod}")
        again = calls(job, 3, attempt, ZOO, until=until, total=9)
        told = (job.folder / f"output-{attempt}-0").read_text()
        assert f"Resuming from step {again[0]['done']} of attempt {attempt - 1}" in told
        assert ("kept in memory" in told) == bool(source)
    for one, other in zip(calm, again, strict=True):
        numbers = [torch.tensor(each.pop("numbers")) for each in (one, other)]
        torch.testing.assert_close(*numbers, rtol=0.01, atol=0.001)  # some are sums of BF16
        assert {**one, "done": 5} == other


def test_a_script_of_very_short_steps_is_kept_as_seldom_as_costs_3_percent(new_job: NewJob) -> None:
    """A snapshot takes no thirtieth of a step that does nothing."""
    job = dataclasses.replace(a_script(new_job, checkpoint_every=1000), memory=True)
    calls(job, 1, 1, "keeping_scripts:quick", until=400)
    first, second = sorted(look(path).owner.step for path in (job.folder / "memory-0").iterdir())
    assert second - first > 1


def test_a_script_that_tells_of_some_steps_is_kept_after_those(new_job: NewJob) -> None:
    """Whether or not the interval of snapshots divides their numbers."""
    job = dataclasses.replace(a_script(new_job, checkpoint_every=1000, memory_every=3), memory=True)
    calls(job, 1, 1, "keeping_scripts:quick", until=40, stride=7)
    assert sorted(look(path).owner.step for path in (job.folder / "memory-0").iterdir()) == [28, 35]


def test_a_part_of_a_neighbour_that_is_none_is_refused() -> None:
    """Whatever its bytes are, it ends in an error of its own, and the training goes on from a checkpoint."""
    shared = {"model/mean": torch.zeros(3)}
    for table, data in (
        ([["model/mean", 11]], 12),
        ([["model/mean", 12]], 4),
        ([["ranks/0/json", 4]], 4),
        ([["ranks/1/json", -4]], 4),
        ([["ranks/1/json", 1 << 70]], 4),
        ([["ranks/1/json"]], 4),
        ({"a": 1}, 4),
        ([[["a"], 4]], 4),
    ):
        text = json.dumps(table).encode()
        blob = len(text).to_bytes(8, "little") + text + bytes(data)
        with pytest.raises(SlotError, match="the part of rank 1 that its neighbour kept cannot be read"):
            joined(shared, torch.frombuffer(bytearray(blob), dtype=torch.uint8), 1, {})
    nan = b"\x16" + bytes(7) + b'[["model/mean", 12]]  ' + struct.pack("<f", math.nan) * 3
    with pytest.raises(SlotError, match="model/mean holds NaN"):
        joined(shared, torch.frombuffer(bytearray(nan), dtype=torch.uint8), 1, {})
    for short in (b"", b"1234", bytes([255] * 8)):
        with pytest.raises(SlotError):
            joined(shared, torch.tensor([*short], dtype=torch.uint8), 1, {})


def test_what_differs_by_rank_needs_as_many_ranks(new_job: NewJob) -> None:
    """What is equal on all, and generators, do not."""
    job = a_script(new_job)
    calls(job, 2, 1, ZOO, until=2, total=9)
    refused = job.calling(ZOO, until=3, total=9).start(1, 2)
    assert refused.wait() == [78]
    assert "the state of noise was another one on each of 2 ranks, and there are 1 now" in refused.output()

    job = a_script(new_job, "alike")
    calls(job, 1, 1, "keeping_scripts:sharded", until=2)
    assert [one["done"] for one in calls(job, 2, 2, "keeping_scripts:sharded", until=3)] == [2, 2]


def test_it_begins_with_the_checkpoint_of_a_task_or_a_script(new_job: NewJob) -> None:
    """Of the task the model and its optimizer; a task cannot begin with a script's."""
    task = new_job("task").run(1)
    (trained,) = calls(a_script(new_job, "second", resume_from=str(task.checkpoints())), 1, 1, LINE, until=8)
    assert (trained["done"], trained["moments"]) == (6, 4)
    weights = read(task.checkpoints(), 6).state.tensors
    names = ("0.weight", "0.bias", "2.weight", "2.bias")
    assert trained["numbers"] == torch.cat([weights[f"model/{name}"].reshape(-1) for name in names]).tolist()

    script = a_script(new_job, "second").checkpoints()
    third = a_script(new_job, "third", resume_from=str(script))
    assert calls(third, 1, 1, LINE, until=9)[0]["done"] == 8
    assert calls(third, 1, 2, LINE, until=9)[0]["done"] == 9, "it goes on from its own"
    other = a_script(new_job, "other", resume_from=str(script))
    assert calls(other, 1, 1, LINE, until=9, adam=True)[0]["done"] == 8
    assert "has no optimizer of this type: that begins anew" in (other.folder / "output-1-0").read_text()
    refused = new_job("fourth", resume_from=str(script)).start(1)
    assert refused.wait() == [78]
    assert "the checkpoint was saved by a script (session.state)" in refused.output()


def test_a_step_on_rank_0_alone_is_told_when_the_other_ends(new_job: NewJob) -> None:
    """It waits for the other one, and says so."""
    said, _ = a_script(new_job).call(2, "keeping_scripts:missing")
    assert said.startswith("session.state: rank 0 waits in step(), and rank 1 has ended without calling it.")


def test_a_state_of_rank_0_alone_is_told_when_the_other_ends(new_job: NewJob) -> None:
    """That has no state which could say so: it would be waited for for half an hour."""
    said, _ = a_script(new_job).call(2, "keeping_scripts:unmet")
    assert said.startswith("session.state: rank 0 waits in restore(), and rank 1 has ended without calling it.")


def test_processes_that_a_rank_has_started_have_no_state(new_job: NewJob, tmp_path: Path) -> None:
    """Only one of them would be kept: the others would begin anew beside it after each restart."""
    (said,) = a_script(new_job).call(1, "spawning_scripts:spawning", file=str(tmp_path / "meeting"))
    assert "session.state: torch's default process group has 2 processes, and the job has 1 rank" in said


def test_a_script_that_never_calls_step_is_told_at_its_end(new_job: NewJob) -> None:
    """It has lost nothing yet, but would lose all of it by a restart."""
    running = a_script(new_job).calling("keeping_scripts:forgetful").start(1)
    assert running.wait() == [0], running.output()
    assert "step() was not called after restore(), so none of 3 optimizer steps is kept" in running.output()


def test_a_script_whose_last_step_is_not_saved_is_told_at_its_end(new_job: NewJob) -> None:
    """Nobody has said which one that is; export would give an older model."""
    running = a_script(new_job).calling("keeping_scripts:uneven", end=4).start(1)
    assert running.wait() == [0], running.output()
    assert "the script ends after step 3, which is not saved. Say how many steps there are" in running.output()


def test_a_rank_that_has_fewer_batches_is_named_by_the_other(new_job: NewJob) -> None:
    """Gloo names an address."""
    running = a_script(new_job, checkpoint_every=1000).calling("keeping_scripts:uneven").start(2)
    codes = running.wait()
    assert codes[0] != 0
    assert codes[1] == 0
    assert re.search(r"rank 0 calls step\(\d+\), and rank 1 has ended\. Take as many steps", running.output())


HOSTILE = {
    "a tensor that is not there": {"tensor": "nowhere"},
    "no text for a name": {"tensor": ["a"]},
    "a shape beyond its bytes": {"bytes": "b", "dtype": "float32", "shape": [1 << 40, 0], "is": "tensor"},
    "a shape of less than nothing": {"bytes": "b", "dtype": "uint8", "shape": [-1], "is": "tensor"},
    "a dtype that is a function": {"bytes": "b", "dtype": "load", "shape": [8], "is": "tensor"},
    "an array of objects": {"bytes": "b", "dtype": "O", "shape": [1], "is": "array"},
    "an array of records": {"bytes": "b", "dtype": [["a", "O"]], "shape": [1], "is": "array"},
    "a truth value that is neither": {"bytes": "b", "dtype": "bool", "shape": [8], "is": "tensor"},
    "a class": {"class": "os.system", "of": "x"},
    "a number of many digits": {"int": "9" * 100_000},
    "an infinite text": {"float": "1e999999"},
    "a key that has no hash": {"dict": [[[1], 2]]},
    "half of a pair": {"dict": [[1]]},
    "a device of a path": {"device": "/dev/null"},
    "hexadecimal letters": {"hex": "zz"},
}


@pytest.mark.parametrize("tree", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_tree_that_cannot_be_is_no_checkpoint(tree: Any) -> None:
    """It is found before the ranks agree on a checkpoint, and nothing that it names is called."""
    tensors = {"b": torch.full((8,), 7, dtype=torch.uint8)}
    for objects in ({"thing": tree}, {"thing": [tree]}, {"thing": {"tuple": [{"dict": [["a", tree]]}]}}):
        with pytest.raises(CorruptCheckpointError):
            check_readable(State(tensors, {"session": {"ranks": 1, "total": 0, "objects": objects}}))


def test_trees_are_not_deeper_than_python_can_follow() -> None:
    """Nor do they hold what is not there for some rank."""
    tree: Any = 1
    for _ in range(500):
        tree = [tree]
    for session_of in (
        {"ranks": 1, "total": 0, "objects": {"thing": tree}},
        {"ranks": 2, "total": 0, "objects": {"thing": None}},
        {"ranks": 1 << 60, "total": 0, "objects": {"thing": None}},
        {"ranks": 1, "total": "x", "objects": {}},
        {"ranks": 1, "total": 0, "objects": [1]},
        "session",
    ):
        with pytest.raises(CorruptCheckpointError):
            check_readable(State({}, {"session": session_of}))


def test_a_model_divided_by_fsdp_goes_on_at_any_number_of_ranks(new_job: NewJob) -> None:
    """From memory at the same number, from the checkpoint at another one."""
    sharded = "keeping_scripts:sharded"
    calm = calls(a_script(new_job, "calm"), 2, 1, sharded, until=6)[0]
    job = dataclasses.replace(a_script(new_job, "cut", memory_every=1), memory=True)
    calls(job, 2, 1, sharded, until=3)
    in_memory = calls(job, 2, 2, sharded, until=4)[0]
    more = calls(job, 3, 3, sharded, until=6)
    assert (in_memory["done"], more[2]["done"]) == (3, 4)
    torch.testing.assert_close(torch.tensor(more[0]["numbers"]), torch.tensor(calm["numbers"]))


def test_a_lost_replica_of_a_divided_model_goes_on_from_its_neighbours_copies(new_job: NewJob) -> None:
    """Its parts are of different sizes. Two neighbours that are lost are too many."""
    sharded = "keeping_scripts:sharded"
    (calm, *_) = calls(a_script(new_job, "calm"), 4, 1, sharded, until=6)
    job = dataclasses.replace(a_script(new_job, "lost", memory_every=1, checkpoint_every=100), memory=True)
    calls(job, 4, 1, sharded, ranks_per_pod=2, until=3)
    for attempt, (lost, until, source) in enumerate([([0], 4, "memory"), ([1], 5, "memory"), ([0, 1], 6, "")], 2):
        for pod in lost:
            shutil.rmtree(job.folder / f"memory-{pod}")
        again = calls(job, 4, attempt, sharded, ranks_per_pod=2, until=until)
        told = (job.folder / f"output-{attempt}-0").read_text()
        assert f"Resuming from step {until - 1} of attempt {attempt - 1}" in told
        assert ("kept in memory" in told) == bool(source), told
        assert {one["done"] for one in again} == {until - 1}
    assert again[0]["numbers"] == calm["numbers"]
    held = sorted(re.findall(r"rank-\d", " ".join(path.name for path in (job.folder / "memory-0").iterdir())))
    assert held == ["rank-0"] * 3 + ["rank-1"] * 3 + ["rank-2", "rank-3"], "one step was taken: one copy of each"


def test_where_memory_is_short_a_divided_model_is_kept_without_copies(new_job: NewJob) -> None:
    """A killed rank costs no step then, as without a neighbour."""
    job = dataclasses.replace(a_script(new_job, memory_every=1, checkpoint_every=100), memory=True)
    job = dataclasses.replace(job, variables={"LITTLE_MEMORY": "300000"})
    for attempt in (1, 2):
        done = calls(job, 2, attempt, "keeping_scripts:sharded", until=attempt + 1)[0]["done"]
    told = (job.folder / "output-1-0").read_text()
    assert done == 2
    assert "No copies of snapshots are kept, so a lost pod costs the steps since the last checkpoint" in told
    assert "kept in memory" in (job.folder / "output-2-0").read_text()


SAID = {
    "twice": "session.state is called twice",
    "restored twice": "restore() is called twice",
    "late": "Call it before the first step",
    "no restore": "Call restore() first",
    "from 0 on": "the first one after restore() is 1",
    "backwards": "step(2) came after step(2)",
    "no number": "step('3') is no whole number",
    "a class": "odd.state_dict()['inside'][0]['thing'] is an object, which a checkpoint cannot hold without pickle",
    "a lazy module": "has no shape before the first forward pass: run one before restore()",
    "other steps": "rank 0 calls step(1) while rank 1 calls step(2)",
    "other models": "First difference: model/bias is float32[3] on rank 0 and float32[4] on rank 1",
    "other names": "rank 0 gave model0, and rank 1 gave model1",
    "other weights": "after step 2, model on rank 0 and on rank 1 are not equal",
    "other objects": "it was given model, more, and this job's checkpoint has model",
    "other kind": "more is of type SGD, and was of type AdamW when this job's checkpoint was saved",
}


def test_each_mistake_has_a_sentence_with_its_cure(new_job: NewJob) -> None:
    """On all ranks alike, so that none waits for another."""
    for said in a_script(new_job).call(2, "keeping_scripts:mistakes"):
        assert said.keys() == SAID.keys()
        for mistake, sentence in SAID.items():
            assert sentence in said[mistake]
            assert said[mistake].startswith("session.state")


def test_outside_nothing_is_kept_and_mistakes_are_told_all_the_same() -> None:
    """Under plain Python and torchrun."""
    model = nn.Linear(1, 1)
    state = session.state(model=model)
    assert state.restore() == 0
    state.step(1)
    sampler: Any = DistributedSampler(TensorDataset(torch.ones(2)), num_replicas=1, rank=0)
    for objects, sentence in (
        ({}, "give what is to be kept"),
        ({"sampler": sampler}, "sampler= is a DistributedSampler, which has no state_dict"),
        ({"sampler": sampler}, "sampler.set_epoch(step // len(loader))"),
        ({"model": model, "net": model}, "model= and net= are the same object"),
        ({"ranks": model}, "ranks= is a name of our own"),
        (
            {"schedules": [model]},
            "schedules= is a list, which has no state_dict() and load_state_dict(). Give its members",
        ),
        ({"schedule": None}, "schedule= is a NoneType, which has no state_dict() and load_state_dict(). Leave it out"),
        ({"step": 3}, "step= is an int, which has no state_dict() and load_state_dict()"),
        ({"step": 3}, "restore() returns how many steps are done"),
        ({"average": torch.ones(2)}, "Keep it as a buffer of a module"),
        ({"model": nn.Linear}, "model= is the class Linear. Give an object of it"),
        ({"average": dict(model.state_dict())}, "Tensors are kept in a module"),
    ):
        with pytest.raises(ConfigurationError) as refused:
            session.state(**objects)
        assert sentence in str(refused.value)
    with pytest.raises(ConfigurationError, match="give each object a name, such as model=model"):
        session.state(model)

"""What becomes of a save when something around it fails for a moment: the last one, the ranks' store, pruning."""

import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from trainmaster.core.failures.classes import INFRASTRUCTURE, OUT_OF_STORAGE
from trainmaster.core.failures.signatures import class_of
from trainmaster.wire.messages import ErrorReport
from trainmaster.wire.names import EXIT_TERMINATED
from trainmaster.wire.training import TrainingPlan
from trainmaster_trainer.checkpoint import save
from trainmaster_trainer.checkpoint import writers as writers_module
from trainmaster_trainer.checkpoint.layout import saved_steps
from trainmaster_trainer.checkpoint.save import SaveFailedError, Saver
from trainmaster_trainer.checkpoint.state import State
from trainmaster_trainer.checkpoint.writers import OUTCOME, WriterLostError, Writers
from trainmaster_trainer.group import Group
from trainmaster_trainer.progress import Progress
from trainmaster_trainer.settings import Settings
from trainmaster_trainer.training_loop import leave

from tests.trainer.crew import Crew
from tests.trainer.ranks import NewJob, Running, alone
from tests.trainer.s3 import Proxy

LAST = ".saving-00000006-attempt-1-restart-0"


@contextmanager
def disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of its own (needs root, as the cluster tests do)."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def begun(checkpoints: Path) -> Saver:
    plan = TrainingPlan("OneDevice", steps=100, global_batch_size=4, checkpoint_every=10, checkpoint_keep=1)
    saver = Saver(Settings(plan, checkpoints, job_uid="uid", attempt=1), alone())
    saver.prepare()
    return saver


def put(saver: Saver, step: int, size: int = 10) -> None:
    saver.save(step, State({"model/w": torch.ones(size)}), before_commit=lambda: None)


def test_the_last_save_is_tried_until_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(save, "AGAIN_PAUSES", (0.0, 0.5, 0.5, 0.5, 0.5))
    with disk(tmp_path / "disk", "256k") as folder:
        saver = begun(folder / "checkpoints")
        ballast = folder / "ballast"
        ballast.write_bytes(bytes(200 << 10))
        put(saver, 100, 20_000)
        clearing = threading.Timer(0.7, ballast.unlink)
        clearing.start()
        saver.insist(lambda: put(saver, 100, 20_000), lambda: False)
        assert saver.committed_step == 100
        assert saved_steps(folder / "checkpoints") == [100]


@pytest.mark.parametrize(("option", "failure"), [("size=4k", OUT_OF_STORAGE), ("ro", INFRASTRUCTURE)])
def test_a_job_that_finds_no_place_for_checkpoints_names_the_folder(tmp_path: Path, option: str, failure: str) -> None:
    """Before its first step, and without a trace."""
    with disk(tmp_path / "disk", "4k") as folder:
        (folder / "checkpoints").mkdir()
        (folder / "ballast").write_bytes(bytes(4 << 10))
        subprocess.run(["mount", "-o", f"remount,{option}", folder], check=True)
        with pytest.raises(
            SaveFailedError, match=rf"No checkpoint can be kept in {folder}/checkpoints: .*Make room"
        ) as no:
            begun(folder / "checkpoints")
    assert class_of(ErrorReport("SaveFailedError", str(no.value))) == failure


def test_who_is_told_to_stop_does_not_insist(tmp_path: Path) -> None:
    with disk(tmp_path / "disk", "64k") as folder:
        saver = begun(folder / "checkpoints")
        stop = threading.Event()
        put(saver, 100, 200_000)
        threading.Timer(0.5, stop.set).start()
        tries: list[int] = []

        def again() -> None:
            tries.append(1)
            put(saver, 100, 200_000)

        with pytest.raises(SaveFailedError, match="No space left on device"):
            saver.insist(again, stop.is_set)
        assert len(tries) <= 1, "it ends in the second pause"


def obstruct(running: Running, folder: Path) -> None:
    """A file where the folder of the last save should be; a save that fails takes it away."""
    running.reach(1)
    (folder / LAST).write_text("")


@pytest.mark.parametrize("ranks_per_pod", [1, 2])
def test_all_ranks_try_the_last_save_again_together(new_job: NewJob, ranks_per_pod: int) -> None:
    shared = ranks_per_pod == 1
    job = new_job(arguments={"seconds": 0.3}, checkpoint_shared=shared)
    running = job.start(2, ranks_per_pod=ranks_per_pod)
    obstruct(running, job.checkpoints())
    assert running.wait() == [0, 0], running.output()
    assert "The checkpoint of step 6 was not written, the newest one is that of step 4" in running.output()
    assert job.manifest(6)["step"] == 6
    assert len(job.losses()) == 6


@pytest.mark.parametrize(("strategy", "servers"), [("ParameterServer", 1), ("Gossip", 0)])
def test_members_that_come_and_go_try_it_again_too(new_job: NewJob, strategy: str, servers: int) -> None:
    job = new_job(strategy=strategy, arguments={"seconds": 0.5})
    crew = Crew(job, 2, servers)
    try:
        crew.start().reach(1, rank=0)
        (job.checkpoints() / LAST).write_text("")
        crew.finish()
    finally:
        crew.close()
    assert "The checkpoint of step 6 was not written" in crew.output()
    assert job.manifest(6)["step"] == 6


def test_what_cannot_be_pruned_costs_no_save(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    saver = begun(tmp_path / "checkpoints")
    put(saver, 10)
    saver.wait()
    with disk(tmp_path / "checkpoints" / "step-00000010", "64k"):  # what is mounted cannot be renamed
        put(saver, 20)
        saver.wait()
    assert saver.committed_step == 20
    assert "The checkpoint of step 20 stands; after it: rank 0: [Errno 16]" in caplog.text
    put(saver, 30)
    saver.wait()
    assert saved_steps(tmp_path / "checkpoints") == [30]


def test_nor_does_what_cannot_be_deleted_in_a_store(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plan = TrainingPlan("OneDevice", steps=100, checkpoint_keep=1, checkpoint_url=f"file://{tmp_path}/store")
    saver = Saver(Settings(plan, tmp_path / "here", job_uid="uid", attempt=1), alone())
    saver.prepare()
    put(saver, 10)
    saver.wait()
    (manifest,) = (tmp_path / "store").glob("step-00000010*/manifest.json")
    subprocess.run(["mount", "--bind", manifest, manifest], check=True)  # what is mounted cannot be deleted
    try:
        put(saver, 20)
        saver.wait()
    finally:
        subprocess.run(["umount", "-l", manifest], check=True)
    assert saver.committed_step == 20
    assert "The checkpoint of step 20 stands; after it: rank 0: " in caplog.text


class Talk:
    """Two ranks that write together over one store; the second one's way there can be cut."""

    def __init__(self) -> None:
        self._server = dist.TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
        self.proxy = Proxy(self._server.port)

    def store(self, rank: int = 0) -> Store:
        """A connection as one of them has it."""
        port = self.proxy.port if rank else self._server.port
        store: Store = dist.TCPStore("127.0.0.1", port, 2, is_master=False, wait_for_workers=False)  # type: ignore[attr-defined]
        return store

    def rank(self, rank: int) -> Writers:
        """One of them."""
        return Writers(Group(rank, 2, 0, 1, torch.device("cpu"), PrefixStore("try", self.store(rank))), alone=False)


@pytest.fixture
def talk() -> Iterator[Talk]:
    talk = Talk()
    with talk.proxy:
        yield talk


def test_a_lost_connection_to_the_ranks_store_costs_no_save(talk: Talk) -> None:
    first, second = talk.rank(0), talk.rank(1)
    for number in range(3):
        talk.proxy.cut()  # between two saves
        with first.one_save(), second.one_save(), ThreadPoolExecutor(1) as beside:
            first.put(first.rank, {"record": "first"})
            second.put(second.rank, {"record": number})
            talk.proxy.cut()  # and in the middle of one, while it waits
            outcome = beside.submit(second.get, OUTCOME, 0)
            time.sleep(0.2)
            talk.proxy.cut()
            assert first.reports() == [{"record": "first"}, {"record": number}]
            first.put(OUTCOME, ["", False])
            assert outcome.result(100) == ["", False]


def test_saves_that_follow_one_another_use_one_connection(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection can take seconds, as torch looks up the name of each address that it connects to."""
    monkeypatch.setattr(writers_module, "_SIGN_SECONDS", 1000.0)  # signs of life have a connection of their own
    first, second = talk.rank(0), talk.rank(1)
    for number in range(4):
        with first.one_save(), second.one_save():
            first.put(first.rank, {})
            second.put(second.rank, number)
            assert first.reports() == [{}, number]
            first.put(OUTCOME, ["", False])
            assert second.get(OUTCOME, 0) == ["", False]
    assert talk.proxy.accepted == 2  # the rank's own, and that of all of its saves


def test_a_rank_that_dies_in_mid_save_is_waited_for_while_it_gives_signs_of_life(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers_module, "_LOOK", timedelta(seconds=0.05))
    monkeypatch.setattr(writers_module, "_SIGN_SECONDS", 0.01)
    first, second = talk.rank(0), talk.rank(1)
    store = talk.store()
    with first.one_save(), second.one_save(), ThreadPoolExecutor(1) as beside:  # the first one's storage is slow
        monkeypatch.setattr(writers_module, "_SILENCE_SECONDS", 2.0)
        outcome = beside.submit(second.get, OUTCOME, 0)
        while store.add("try/checkpoint/alive/0", 0) < 300:  # for longer than a silent one is waited for
            time.sleep(0.01)
        first.put(OUTCOME, ["", False])
        assert outcome.result(100) == ["", False]
    with second.one_save(), pytest.raises(WriterLostError, match="rank 0 has given no sign of life"):
        second.get(OUTCOME, 0)


def test_who_leaves_after_a_failed_save_does_not_say_that_it_saved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    saver = begun(tmp_path / "checkpoints")
    with disk(tmp_path / "checkpoints", "64k"):
        put(saver, 10, 200_000)
        assert leave(10, saver, Progress(None, 4)) == EXIT_TERMINATED
    assert "left at step 10, which is not saved: rank 0: [Errno 28] No space left on device" in caplog.text
    assert "saved and left" not in caplog.text


def test_a_save_that_is_tried_again_is_told_of_anew(talk: Talk) -> None:
    first, second = talk.rank(0), talk.rank(1)
    for problem in ("full", ""):
        with first.one_save(), second.one_save():
            first.put(first.rank, {})
            second.put(second.rank, {})
            first.reports()
            first.put(OUTCOME, [problem, False])
            assert second.get(OUTCOME, 0) == [problem, False]

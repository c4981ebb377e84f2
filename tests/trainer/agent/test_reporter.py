"""Heartbeats over real HTTP: held, at once, refused, and with the operator away."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from trainmaster.wire import codec, messages, names
from trainmaster.wire.agent_states import AgentState, Verb
from trainmaster.wire.manifest import MAX_MANIFEST, Cursor, Manifest
from trainmaster.wire.messages import Heartbeat, Orders, Rendezvous
from trainmaster.wire.progress_page import ProgressFile, ProgressPage
from trainmaster_trainer.agent import agent_settings, reporter
from trainmaster_trainer.agent.attempt_files import Files
from trainmaster_trainer.agent.reporter import Reporter, ReportPauses, ReportRefusedError, _pause_after
from trainmaster_trainer.agent.status_collector import StatusCollector, read_checkpoint
from trainmaster_trainer.agent.supervise import Agent

from tests.trainer.agent.intake import Intake
from tests.trainer.agent.test_settings import COMPLETE

KEY = ("worker", 3)
MANIFEST = Manifest(5, 1, 1, "AllReduce", Cursor(5, 20, 4, 1), 2.0, "abc", (), seconds=0.5)


class Reporting:
    """A reporter with what stands around it."""

    def __init__(self, folder: Path, intake: Intake) -> None:
        self.token = folder / "token"
        self.token.write_text(intake.token)
        places = {names.ENV_SCRATCH: str(folder), names.ENV_CHECKPOINTS: str(folder)}
        configuration = agent_settings.read({**COMPLETE, **places})
        self.files = Files(configuration)
        self.status_collector = StatusCollector(configuration, self.files)
        self.orders: queue.Queue[Orders] = queue.Queue()
        self.log: queue.Queue[str] = queue.Queue()
        self.gone: queue.Queue[str] = queue.Queue()
        self.reporter = Reporter(
            intake.url, str(self.token), self.status_collector, self.orders.put, self.log.put, gone=self.gone.put
        )

    def take(self, version: str) -> Orders:
        """Wait for these orders; the same may come several times."""
        while (orders := self.orders.get(timeout=200)).version != version:
            pass
        return orders


@pytest.fixture
def reporting(tmp_path: Path, intake: Intake) -> Iterator[Reporting]:
    one = Reporting(tmp_path, intake)
    yield one
    one.reporter.stop()


def test_orders_come_while_a_request_is_held(reporting: Reporting, intake: Intake) -> None:
    intake.hold_seconds = 20.0
    reporting.reporter.start()
    intake.wait(lambda: sum(heartbeat.hold for _, heartbeat in intake.heartbeats) == 2, "a second, held request")
    orders = Orders(Verb.WAIT, 5, "news")
    began = time.monotonic()
    intake.order(KEY, orders)
    reporting.take(orders.version)
    assert time.monotonic() - began < intake.hold_seconds / 2


def test_news_do_not_wait_for_the_held_request(reporting: Reporting, intake: Intake) -> None:
    intake.hold_seconds = 20.0
    reporting.reporter.start()
    intake.wait(lambda: len(intake.heartbeats) == 2, "a held request")
    reporting.status_collector.put_up(Agent("worker", 3, state=AgentState.FAILED, attempt=2), Rendezvous(1, "k"))
    reporting.reporter.report_now()
    (heartbeat,) = intake.wait_state(AgentState.FAILED, 2, KEY)
    assert not heartbeat.hold


def test_orders_that_another_line_has_overtaken_are_dropped(reporting: Reporting, intake: Intake) -> None:
    """The answer to the report is older than the orders that come by the held request, and arrives after them."""
    intake.hold_seconds = 20.0
    old, new = Orders(Verb.WAIT, 5, "old"), Orders(Verb.WAIT, 5, "new")
    answer, release = intake.answer, threading.Event()

    def late(authorization: str, body: bytes) -> tuple[int, bytes]:
        status, content = answer(authorization, body)
        if not codec.decode(Heartbeat, body).hold:
            release.wait(200)
        return status, content

    intake.answer = late  # type: ignore[method-assign]
    intake.order(KEY, old)
    reporting.reporter.start()
    reporting.take(old.version)
    reporting.reporter.report_now()
    intake.wait(lambda: any(not heartbeat.hold for _, heartbeat in intake.heartbeats), "the report")
    intake.order(KEY, new)
    reporting.take(new.version)
    release.set()
    reporting.reporter.report_now()  # the same line again: its first answer has been dealt with
    intake.wait(lambda: sum(not heartbeat.hold for _, heartbeat in intake.heartbeats) >= 2, "the next report")
    assert reporting.orders.empty(), "the old orders have been delivered after the new ones"


@pytest.mark.parametrize("repeats", [False, True], ids=["204", "an older operator"])
def test_orders_are_delivered_once_however_often_they_are_answered(
    reporting: Reporting, intake: Intake, repeats: bool
) -> None:
    intake.hold_seconds, intake.repeats = 0.05, repeats
    answers: list[tuple[int, int]] = []
    answer = intake.answer

    def noted(authorization: str, body: bytes) -> tuple[int, bytes]:
        status, content = answer(authorization, body)
        answers.append((status, len(content)))
        return status, content

    intake.answer = noted  # type: ignore[method-assign]
    orders = Orders(Verb.WAIT, 5, "to be told once", hold_seconds=0.05)
    intake.order(KEY, orders)
    reporting.reporter.start()
    intake.wait(lambda: sum(beat.orders_seen == orders.version for _, beat in intake.heartbeats) >= 4, "four repeats")
    assert reporting.orders.get(timeout=200) == orders
    assert reporting.orders.empty()
    assert reporting.log.empty()
    whole = len(codec.encode(orders))
    assert answers[:4] == [(200, whole), *[(200, whole) if repeats else (204, 0)] * 3]


def test_sequence_numbers_rise(reporting: Reporting, intake: Intake) -> None:
    intake.hold_seconds = 0.05
    reporting.reporter.start()
    intake.wait(lambda: len(intake.heartbeats) > 4, "heartbeats")
    numbers = [heartbeat.sequence for _, heartbeat in intake.heartbeats]
    assert len(set(numbers)) == len(numbers)


def test_an_operator_that_does_not_hold_is_not_flooded(reporting: Reporting, intake: Intake) -> None:
    intake.orders[KEY] = Orders(Verb.WAIT, 0, "", hold_seconds=2.0)
    intake.hold_seconds = 0.0
    reporting.reporter.start()
    intake.wait(lambda: len(intake.heartbeats) >= 5, "five heartbeats")
    first, last = intake.heartbeats[1][0], intake.heartbeats[4][0]
    assert last - first > 0.5


def test_the_token_is_read_for_every_request(reporting: Reporting, intake: Intake) -> None:
    intake.hold_seconds = 0.05
    reporting.reporter.start()
    intake.wait(lambda: bool(intake.heartbeats), "a heartbeat")
    with intake.changed:
        intake.token = "another"
        seen = len(intake.heartbeats)
    reporting.token.write_text("another\n")
    intake.wait(lambda: len(intake.heartbeats) > seen, "a heartbeat with the new token")


def test_only_who_is_told_for_long_that_its_job_is_gone_is_gone(
    reporting: Reporting, intake: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporter, "GONE_SECONDS", 0.0)
    intake.refusal = (403, "not believed")
    reporting.reporter.start()
    intake.wait(lambda: intake.refused >= 2, "two refusals")
    assert reporting.gone.empty(), "a token that is refused may be the operator's mistake"
    intake.refusal = (410, "the job is deleted")
    assert "the job is deleted" in reporting.gone.get(timeout=200)
    intake.refusal = None
    intake.wait(lambda: bool(intake.heartbeats), "a heartbeat that is taken")
    monkeypatch.setattr(reporter, "GONE_SECONDS", 3600.0)
    while not reporting.gone.empty():
        reporting.gone.get()
    intake.refusal = (410, "the job is deleted")
    intake.wait(lambda: intake.refused >= 5, "more refusals")
    assert reporting.gone.empty(), "the time begins anew"


def test_a_refusal_is_said_once_and_tried_again(reporting: Reporting, intake: Intake) -> None:
    intake.refusal = (409, "a younger incarnation is here")
    reporting.reporter.start()
    intake.wait(lambda: intake.refused > 0, "a first try")
    assert reporting.log.get(timeout=200) == "the operator refused the heartbeat: 409 a younger incarnation is here"
    assert reporting.log.empty()
    with intake.changed:
        intake.refusal = None
    assert reporting.log.get(timeout=200) == "the operator is back"


def test_a_standby_that_refuses_is_no_news(reporting: Reporting, intake: Intake) -> None:
    """Of two operators one leads, and half of all connections reach the other first."""
    intake.refusal = (421, "another operator leads, or soon will")
    reporting.reporter.start()
    intake.wait(lambda: intake.refused > 3, "some tries")
    with intake.changed:
        intake.refusal = None
    intake.wait(lambda: len(intake.heartbeats) > 1, "an answer")
    assert reporting.log.empty()


def test_that_nobody_leads_for_long_is_told(reporting: Reporting, intake: Intake) -> None:
    intake.refusal = (421, "another operator leads, or soon will")
    reporting.reporter._well -= 60
    reporting.reporter.start()
    assert "421" in reporting.log.get(timeout=200)


def test_an_operator_that_goes_and_comes_back(reporting: Reporting, intake: Intake) -> None:
    reporting.reporter.start()
    intake.wait(lambda: len(intake.heartbeats) == 2, "a held request")
    intake.close()
    away = reporting.log.get(timeout=200)
    assert "away" in away
    back = Intake(port=intake.port, token=intake.token)
    try:
        back.wait(lambda: len(back.heartbeats) > 1, "heartbeats again")
        while (line := reporting.log.get(timeout=200)) != "the operator is back":
            assert "away" in line
        assert reporting.log.empty()
    finally:
        back.close()


def test_answers_that_are_no_orders_are_an_absence(reporting: Reporting, intake: Intake) -> None:
    intake.answer = lambda *_: (200, b"<html>a proxy</html>")  # type: ignore[method-assign]
    reporting.reporter.start()
    assert "not JSON" in reporting.log.get(timeout=200)


def test_a_heartbeat_tells_what_progress_pages_say(reporting: Reporting, tmp_path: Path) -> None:
    reporting.files.begin(1, range(2, 4), b"{}")
    reporting.status_collector.put_up(Agent("worker", 3, state=AgentState.RUNNING, attempt=1), Rendezvous(1, "k"))
    assert reporting.status_collector.compose(hold=True).ranks == (), (
        "nothing is known of a script that reports nothing"
    )
    page = ProgressFile(str(reporting.files.progress(3)))
    page.write(ProgressPage(7, 0.5, float("inf"), updated=1.0, phase="train", checkpoint_step=5))
    heartbeat = reporting.status_collector.compose(hold=True)
    (rank,) = heartbeat.ranks
    assert (rank.rank, rank.step, rank.loss, rank.samples_per_second) == (3, 7, 0.5, None)
    assert heartbeat.checkpoint is None, "its manifest is not there yet"
    folder = tmp_path / "step-00000005"
    folder.mkdir()
    (folder / "manifest.json").write_bytes(MANIFEST.encode())
    record = messages.CheckpointRecord(5, 2.0, "abc", 0.5)
    assert reporting.status_collector.compose(hold=True).checkpoint == record
    page.close()


def test_pages_of_an_older_attempt_or_start_are_nobodys_progress(reporting: Reporting, tmp_path: Path) -> None:
    """A new attempt may have to wait for a warm parent; until its ranks are forked the old pages lie there."""
    reporting.files.begin(1, range(1), b"{}")
    page = ProgressFile(str(reporting.files.progress(0)))
    page.write(ProgressPage(500, 0.5, updated=1.0, phase="train", resumed_step=0, checkpoint_step=5))
    (tmp_path / "step-00000005").mkdir()
    (tmp_path / "step-00000005" / "manifest.json").write_bytes(MANIFEST.encode())
    told = []
    for attempt in (1, 2):
        reporting.status_collector.put_up(
            Agent("worker", 3, state=AgentState.RUNNING, attempt=attempt), Rendezvous(1, "k")
        )
        told.append(reporting.status_collector.compose(hold=True))
    assert [[(rank.step, rank.attempt, rank.start) for rank in beat.ranks] for beat in told] == [[(500, 1, 0)], []]
    assert [beat.checkpoint is not None for beat in told] == [True, True], "what is saved stays saved"
    page.close()
    reporting.files.begin(2, range(1), b"{}", start=3)
    page = ProgressFile(str(reporting.files.progress(0)))
    page.write(ProgressPage(501, updated=1.0, phase="train"))
    assert reporting.files.read_pages(2, 3).keys() == {0}
    assert reporting.files.read_pages(2, 4) == {}
    page.close()


def test_storage_that_hangs_holds_up_neither_heartbeats_nor_the_agent(reporting: Reporting, tmp_path: Path) -> None:
    reporting.files.begin(1, range(1), b"{}")
    page = ProgressFile(str(reporting.files.progress(0)))
    page.write(ProgressPage(7, updated=1.0, phase="train", checkpoint_step=5))
    folder = tmp_path / "step-00000005"
    folder.mkdir()
    (folder / "manifest.json").write_bytes(MANIFEST.encode())
    answers = threading.Event()

    def read(folder: str, step: int) -> messages.CheckpointRecord | None:
        """The storage hangs first. A pipe would not: no manifest that is one is opened."""
        answers.wait(200)
        return read_checkpoint(folder, step)

    reporting.status_collector.read = read
    for state in (AgentState.RUNNING, AgentState.FAILED):
        reporting.status_collector.put_up(Agent("worker", 3, state=state), Rendezvous(1, "k"))
        heartbeat = reporting.status_collector.compose(hold=True)
        assert (heartbeat.state, heartbeat.checkpoint) == (state, None)
    answers.set()
    while (record := reporting.status_collector.compose(hold=True).checkpoint) is None:
        time.sleep(0.01)  # its reader tells nobody
    assert record.step == 5
    page.close()


def test_what_a_rank_here_has_committed_is_told_without_storage(reporting: Reporting) -> None:
    """The last word of an attempt names its last checkpoint, however slow the storage is."""
    reporting.files.begin(1, range(2), b"{}")
    first, second = (ProgressFile(str(reporting.files.progress(rank))) for rank in range(2))
    hangs, answers = threading.Event(), True

    def read(folder: str, step: int) -> messages.CheckpointRecord | None:
        assert folder
        return messages.CheckpointRecord(step, 1.0, "of storage") if answers or hangs.wait(200) else None

    reporting.status_collector.read = read
    second.write(ProgressPage(40, updated=1.0, phase="train", checkpoint_step=20))
    beat = reporting.status_collector.compose(hold=True)
    assert beat.checkpoint == messages.CheckpointRecord(20, 1.0, "of storage"), "by an earlier attempt, or elsewhere"
    answers = False
    record = messages.CheckpointRecord(40, 2.0, "5a" * 32, 0.5)
    first.write_checkpoint(record)
    assert reporting.status_collector.compose(hold=True).checkpoint == record, "before a step tells of it"
    second.write(ProgressPage(60, updated=2.0, phase="evaluate", checkpoint_step=60))
    assert reporting.status_collector.compose(hold=True).checkpoint == record
    last = messages.CheckpointRecord(60, 3.0, "6b" * 32, 0.5)
    first.write_checkpoint(last)
    reporting.status_collector.put_up(Agent("worker", 3, state=AgentState.FINISHED, attempt=1), Rendezvous(1, "k"))
    assert reporting.status_collector.compose(hold=False).checkpoint == last
    hangs.set()
    for page in (first, second):
        page.close()


NO_STEP = '{"step": %s, "time": 1, "model_sha256": ""}'


@pytest.mark.parametrize("text", ["", "{}", "[]", "[" * 100_000, NO_STEP % '"x"', NO_STEP % "1e999"])
def test_a_manifest_that_makes_no_sense(tmp_path: Path, text: str) -> None:
    (tmp_path / "step-00000001").mkdir()
    (tmp_path / "step-00000001" / "manifest.json").write_text(text)
    assert read_checkpoint(str(tmp_path), 1) is None


@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.write_bytes(bytes(MAX_MANIFEST + 1)),
        lambda path: path.write_bytes(MANIFEST.encode().replace(b"abc", b"abd")),
    ],
    ids=["pipe", "device", "too large", "changed"],
)
def test_a_manifest_that_training_refuses_is_not_told(tmp_path: Path, make: Callable[[Path], object]) -> None:
    """It has the reader of training: opened by no link, bounded, and with the digest that it names."""
    (tmp_path / "step-00000005").mkdir()
    make(tmp_path / "step-00000005" / "manifest.json")
    assert read_checkpoint(str(tmp_path), 5) is None


def test_a_heartbeat_tells_the_supervisors_state(reporting: Reporting) -> None:
    report = messages.ExitReport(1, 0, 3, signal="SIGSEGV")
    agent = replace(Agent("worker", 3), state=AgentState.FAILED, attempt=1, exit=report, warm=True)
    reporting.status_collector.put_up(agent, Rendezvous(99, "k"))
    heartbeat = reporting.status_collector.compose(hold=False)
    assert (heartbeat.state, heartbeat.attempt, heartbeat.exit, heartbeat.warm) == ("Failed", 1, report, True)
    assert heartbeat.offer == Rendezvous(99, "k")
    assert heartbeat.rendezvous is None


def test_another_operator_is_asked_sooner_than_one_that_is_away() -> None:
    """The answer 421: who answers does not lead, the next one may. A refusal mends itself slowly, if at all."""
    waits = {}
    for status in (421, 503, 403):
        pauses = ReportPauses()
        waits[status] = [_pause_after(ReportRefusedError(status, ""), pauses) for _ in range(12)]
    assert max(waits[421]) <= 0.3 < max(waits[503]) <= 1.0 < min(waits[403])

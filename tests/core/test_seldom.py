"""Lines in a log that strangers cause are few, however many causes they make."""

import asyncio
import json
import logging

import pytest
from trainmaster.intake import HeartbeatRefusedError, Intake, Speaker
from trainmaster.intake import _read as read
from trainmaster.log_rate import BURST, SECONDS, LogRate, LogRateFilter

BEAT = {
    "job": "ns/x\x1b[2J\n2026-11-25 12:00:00,000 INFO trainmaster.lease: this operator leads (evil)",
    "job_uid": "u", "role": "worker", "index": 0, "incarnation": 0, "pod_uid": "p", "sequence": 1, "state": "Waiting",
    "attempt": 0, "offer": {"port": 1, "key": "k"},
}  # fmt: skip


def test_ten_at_once_then_one_every_six_seconds() -> None:
    now = [0.0]
    seldom = LogRate(lambda: now[0])
    assert [seldom.left_out() for _ in range(BURST + 3)] == [0] * BURST + [None] * 3
    now[0] += SECONDS
    assert [seldom.left_out(), seldom.left_out()] == [3, None]


def test_a_filter_says_how_many_it_left_out(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    few = LogRateFilter()
    few._seldom = LogRate(lambda: now[0])
    record = logging.LogRecord("http", logging.ERROR, "", 0, "bad %s", ("x",), None)
    assert [few.filter(record) for _ in range(BURST + 5)] == [True] * BURST + [False] * 5
    now[0] += SECONDS
    assert few.filter(record)
    assert record.getMessage() == "bad x (before this one, 5 others were not logged)"


def test_refusals_without_a_token_neither_forge_nor_multiply_lines(caplog: pytest.LogCaptureFixture) -> None:
    async def refuse(count: int) -> None:
        intake = Intake(_refuses, lambda _: None)
        for index in range(count):
            beat = {**BEAT, "index": index} if index else BEAT
            intake._log_refusal(read(json.dumps(beat).encode()), "no bearer token")

    asyncio.run(refuse(1001))
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) <= BURST
    assert all(text.isprintable() and len(text) < 500 for text in texts)
    assert r"\x1b[2J\n2026" in texts[0]


async def _refuses(token: str) -> Speaker:
    raise HeartbeatRefusedError(token)

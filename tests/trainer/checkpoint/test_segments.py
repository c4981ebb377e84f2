"""The lines of metrics.jsonl in an object store: put once or a few times, joined by a resume, those of its own way."""

import itertools
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from trainmaster.wire.training import TrainingPlan
from trainmaster_trainer.checkpoint import lineage, segments
from trainmaster_trainer.checkpoint.committer import Committer
from trainmaster_trainer.checkpoint.fetch import on_the_way
from trainmaster_trainer.checkpoint.remote import Remote
from trainmaster_trainer.checkpoint.retention import Retention
from trainmaster_trainer.lines import METRICS, end_of_lines
from trainmaster_trainer.metrics import Metrics
from trainmaster_trainer.settings import Settings


class Pod:
    """The first rank's: a folder, and the training in it as far as lines go. The store is a folder beside it."""

    def __init__(self, place: Path, name: str, attempt: int = 1, *, keep: int = 2, step: int | None = None) -> None:
        """Go on from `step`, if it is given, else from the newest checkpoint."""
        self.folder = place / name
        self.folder.mkdir(exist_ok=True)
        self.store = place / "store"
        plan = TrainingPlan("OneDevice", checkpoint_keep=keep, checkpoint_url=f"file://{self.store}")
        self._settings = Settings(plan, self.folder, job_uid="uid", attempt=attempt)
        self._remote = Remote(f"file://{self.store}", None)
        self._begin(step)

    def _begin(self, step: int | None) -> None:
        self._remote.clean()
        way = lineage.read(self.folder, "uid", self._remote)
        found = [one for one in on_the_way(self._remote, way) if step is None or one.step <= step]
        if found:
            segments.bring(self._remote, found[0].name, self.folder, self.folder / ".fetched")
            segments.take(self.folder / ".fetched", self.folder)
        self.step = found[0].step if found else 0
        attempt = self._settings.attempt
        lineage.write(self.folder, "uid", way.with_attempt(attempt, self.step), self._remote)
        self._metrics = Metrics(self.folder, attempt, self.step, self.step)
        self.committer = Committer(self._settings, self._remote, Retention(self._settings, self._remote))

    def train(self, to: int) -> None:
        """Lines up to this step."""
        while self.step < to:
            self.step += 1
            self._metrics.add(self.step, loss=0.5)
        self._metrics.flush()

    def save(self, *steps: int) -> None:
        """Train to each of these steps, and one further, as training goes on meanwhile; checkpoints of them."""
        for step in steps:
            self.train(step + 1)
            self.committer.commit(f"step-{step:08d}.{self._settings.run_key}", step, b"{}")
            self.committer.tidy()

    def told_by_store(self, step: int) -> bytes:
        """The lines that the checkpoint of this step names."""
        target = self.folder / "brought"
        segments.bring(self._remote, f"step-{step:08d}.{self._settings.run_key}", self.store, target)
        return target.read_bytes()

    @property
    def lines(self) -> bytes:
        """The metrics file."""
        return (self.folder / METRICS).read_bytes()

    def up_to(self, step: int) -> bytes:
        """Its lines of steps up to this one."""
        return self.lines[: end_of_lines(self.folder, step).bytes]

    @property
    def segments(self) -> list[str]:
        """The names of those in the store."""
        return sorted(path.name for path in (self.store / "lines").iterdir())

    @property
    def ranges(self) -> list[str]:
        """Which steps they have."""
        return [name.partition(".")[0] for name in self.segments]


def told(lines: bytes) -> list[tuple[int, int]]:
    """Step and attempt of each."""
    values: list[dict[str, Any]] = [json.loads(line) for line in lines.splitlines()]
    return [(value["step"], value["attempt"]) for value in values]


def test_a_checkpoint_puts_only_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    put = Remote.put

    def counted(remote: Remote, name: str, data: bytes) -> None:
        sizes.append(len(data) if name.startswith("lines/") else 0)
        put(remote, name, data)

    monkeypatch.setattr(Remote, "put", counted)
    pod = Pod(tmp_path, "first")
    pod.save(*range(10, 1290, 10))
    assert sum(sizes) < 8 * len(pod.lines), "128 saves: each line once, and each time that its segment was joined"
    assert len(pod.segments) < 16
    assert Pod(tmp_path, "second", 2).lines == pod.up_to(1280)


def test_large_segments_are_not_put_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "_LARGEST", 3000)
    pod = Pod(tmp_path, "first")
    pod.save(*range(10, 410, 10))
    large = max(path.stat().st_size for path in (tmp_path / "store" / "lines").iterdir())
    assert large <= 3000
    assert Pod(tmp_path, "second", 2).lines == pod.up_to(400)


def test_what_another_process_of_the_attempt_is_about_to_commit_stays(tmp_path: Path) -> None:
    """Under Gossip one member writes while another, who did before, is away; and comes back."""
    first, second = Pod(tmp_path, "first", keep=5), Pod(tmp_path, "second", keep=5)
    shard = tmp_path / "store" / "step-00000020.attempt-1-restart-0" / "shard"
    first.save(10)
    shard.parent.mkdir()
    shard.write_bytes(b"of the second one")
    first.save(30)
    assert shard.exists()
    second.save(20)
    first.save(40)
    assert told(second.told_by_store(20)) == told(second.up_to(20))
    assert first.told_by_store(40) == first.up_to(40)


def test_only_what_some_checkpoint_needs_is_kept(tmp_path: Path) -> None:
    pod = Pod(tmp_path, "first", keep=1)
    pod.save(10, 20)
    assert pod.ranges == ["00000001-00000020"]
    pod.save(22)
    assert len(pod.segments) == 2, "that of the checkpoint before is one of this one's"
    pod.save(34)  # lines differ by some bytes: 14 of them are more than half of 20
    assert pod.ranges == ["00000001-00000034"]


def test_a_resume_has_the_lines_of_the_training_s_way(tmp_path: Path) -> None:
    """Attempt 2 goes on from step 20 on another node, attempt 3 again on the first one."""
    first = Pod(tmp_path, "first")
    first.save(10, 20, 30)
    second = Pod(tmp_path, "second", 2, step=20)
    assert second.lines == first.up_to(20)
    second.save(30)
    again = Pod(tmp_path, "first", 3)
    assert again.lines == second.up_to(30)
    assert told(again.lines) == [*((step, 1) for step in range(1, 21)), *((step, 2) for step in range(21, 31))]


def test_what_the_folder_has_is_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = Pod(tmp_path, "first")
    pod.save(10, 20)
    asked = []
    copy = Remote.copy

    def noted(remote: Remote, name: str, descriptor: int, position: int, length: int) -> bool:
        asked.append(name)
        return copy(remote, name, descriptor, position, length)

    monkeypatch.setattr(Remote, "copy", noted)
    again = Pod(tmp_path, "first", 2)
    assert told(again.lines) == [(step, 1) for step in range(1, 21)]
    assert not [name for name in asked if name.startswith("lines/")]


class KilledError(BaseException):
    """The process is no more."""


def test_a_kill_before_any_call_costs_no_line_and_brings_none_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in itertools.count(1):
        place = tmp_path / str(number)
        place.mkdir()
        Pod(place, "first").save(10, 20, 30)
        second = Pod(place, "second", 2, step=20)
        calls = itertools.count(1)
        with monkeypatch.context() as patch:
            for name in ("put", "delete"):
                patch.setattr(Remote, name, dying(name, calls, number))
            try:
                second.save(30, 40)
                killed = False
            except KilledError:
                killed = True
        third = Pod(place, "third", 3)
        assert told(third.lines) == told(second.up_to(third.step))
        third.save(50, 60)
        fourth = Pod(place, "fourth", 4)
        assert fourth.lines == third.up_to(60)
        assert [step for step, _ in told(fourth.lines)] == list(range(1, 61))
        assert not [name for name in fourth.segments if "-00000030.attempt-1" in name], "of a branch that was given up"
        if not killed:
            break
    assert number > 10


def dying(name: str, calls: "itertools.count[int]", last: int) -> Any:
    real = getattr(Remote, name)

    def counted(remote: Remote, *arguments: Any) -> None:
        if next(calls) == last:
            raise KilledError
        real(remote, *arguments)

    return counted


def test_a_pod_that_could_not_fetch_the_lines_loses_none_for_others(tmp_path: Path) -> None:
    first = Pod(tmp_path, "first")
    first.save(10, 20)
    second = Pod(tmp_path, "second", 2)
    (second.folder / METRICS).write_bytes(b"")
    second.save(30, 40, 50)
    assert told(second.lines)[0] == (21, 2)
    third = Pod(tmp_path, "third", 3)
    assert third.lines == first.up_to(20) + second.up_to(50)


def test_a_lost_segment_costs_its_lines_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pod = Pod(tmp_path, "first")
    pod.save(20, 22)
    (tmp_path / "store" / "lines" / pod.segments[0]).unlink()
    with caplog.at_level(logging.WARNING):
        assert told(Pod(tmp_path, "second", 2).lines) == [(21, 1), (22, 1)]
    assert "are lost: the object lines/00000001-00000020" in caplog.text

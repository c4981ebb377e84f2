"""Which rank hangs, as tables; and what stacks say of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trainmaster.wire.progress import ProgressPage
from trainmaster_trainer.agent import hangs, stacks
from trainmaster_trainer.agent.hangs import GENEROUS_SECONDS, STOPPED, Policy, Quiet
from trainmaster_trainer.agent.stacks import COMPILING, OUTSIDE, SAVING, UNKNOWN, WAITING

AUTO = Policy()


def page(step: int = 50, phase: str = "train", median: float = 0.1, longest: float = 0.1) -> ProgressPage:
    return ProgressPage(step, 0.1, 1.0, median, 1.0 + step, phase, 0, 0, longest_seconds=longest)


def quiet(steps: int = 50, after_pause: bool = False, **more: float | str) -> Quiet:
    return Quiet(0, page(**more), 0.0, None, steps, after_pause)  # type: ignore[arg-type]


LIMITS: dict[str, tuple[Quiet, str, Policy, float]] = {
    "quick steps": (quiet(), OUTSIDE, AUTO, 9.6),
    "... a victim speaks last": (quiet(), WAITING, AUTO, 12.0),
    "... one that is stopped first": (quiet(), STOPPED, AUTO, 1.95),
    "slow steps, stopped: five of them": (quiet(median=10.0), STOPPED, AUTO, 32.5),
    "slow steps may take tenfold": (quiet(median=10.0), OUTSIDE, AUTO, 120.0),
    "what was seen before may come again": (quiet(longest=20.0), OUTSIDE, AUTO, 32.0),
    "a fixed limit": (quiet(longest=20.0), WAITING, Policy(60.0), 60.0),
    "... for one that is stopped too": (quiet(), STOPPED, Policy(60.0), 39.0),
    "saving": (quiet(phase="save"), OUTSIDE, AUTO, GENEROUS_SECONDS),
    "evaluating": (quiet(phase="evaluate"), WAITING, AUTO, GENEROUS_SECONDS),
    "loading": (quiet(phase="load"), OUTSIDE, AUTO, GENEROUS_SECONDS),
    "stopped while saving": (quiet(phase="save"), STOPPED, AUTO, 1.95),
    "slow storage in a step": (quiet(), SAVING, AUTO, GENEROUS_SECONDS),
    "compiling in a step": (quiet(), COMPILING, AUTO, GENEROUS_SECONDS),
    "peers may still save": (quiet(after_pause=True), WAITING, AUTO, GENEROUS_SECONDS),
    "... which is no excuse for a loop": (quiet(after_pause=True), OUTSIDE, AUTO, 9.6),
    "peers may be away": (quiet(), WAITING, Policy(independent=True), GENEROUS_SECONDS),
    "the first step": (quiet(steps=0), OUTSIDE, AUTO, hangs.YOUNG_SECONDS),
    "the second": (quiet(steps=1), OUTSIDE, AUTO, 0.8 * hangs.YOUNG_STEP_SECONDS),
    "nothing known of it": (quiet(), UNKNOWN, AUTO, 10.8),
    "no median yet": (quiet(median=float("nan"), longest=float("nan")), OUTSIDE, AUTO, 9.6),
}  # fmt: skip


@pytest.mark.parametrize("name", LIMITS)
def test_limits(name: str) -> None:
    rank, activity, policy, seconds = LIMITS[name]
    assert hangs.limit(rank, activity, policy) == pytest.approx(seconds)


def verdict(ranks: dict[int, tuple[str, int]], seconds: float = 12.0, **changes: object) -> hangs.Verdict | None:
    """All ranks have been quiet for so long; each is at something, after some step."""
    all_of_them = [replace(quiet(step=step), rank=rank, **changes) for rank, (_, step) in ranks.items()]  # type: ignore[arg-type]
    activities = {rank: activity for rank, (activity, _) in ranks.items()}
    return hangs.judge(all_of_them, activities, AUTO, seconds)


def named(ranks: dict[int, tuple[str, int]], seconds: float = 12.0) -> tuple[int, bool] | None:
    found = verdict(ranks, seconds)
    return None if found is None else (found.rank, found.waiting)


def test_the_one_outside_of_the_collective_is_named() -> None:
    assert named({0: (WAITING, 50), 1: (OUTSIDE, 50)}) == (1, False)


def test_of_all_that_wait_the_one_that_is_behind_is_named_but_as_a_victim() -> None:
    assert named({0: (WAITING, 51), 1: (WAITING, 50)}) == (1, True)


def test_a_loop_is_named_before_its_victims_and_nobody_too_early() -> None:
    ranks = {0: (WAITING, 50), 1: (OUTSIDE, 50)}
    assert named(ranks, 9.5) is None
    assert named(ranks, 9.7) == (1, False)
    assert named({0: (WAITING, 50)}, 11.9) is None


def test_a_rank_that_has_done_all_is_left_alone() -> None:
    assert hangs.judge([quiet(phase="done")], {0: OUTSIDE}, AUTO, 1e6) is None


def test_a_script_without_a_page_is_judged_only_if_it_is_stopped() -> None:
    silent = Quiet(0, ProgressPage(), 0.0)
    assert hangs.judge([silent], {0: OUTSIDE}, AUTO, 1e6) is None
    assert not hangs.suspicious(silent, AUTO, 1e6)
    stopped = hangs.seen(silent, 0, ProgressPage(), True, 100.0)
    assert hangs.judge([stopped], {}, AUTO, 101.9) is None
    found = hangs.judge([stopped], {}, AUTO, 102.0)
    assert found is not None
    assert found.activity == STOPPED


def test_a_stop_counts_from_when_it_was_seen_and_ends_with_it() -> None:
    """A long save that somebody stops for a moment is no hang."""
    first = hangs.seen(None, 0, page(phase="save"), False, 0.0)
    stopped = hangs.seen(hangs.seen(first, 0, page(phase="save"), True, 100.0), 0, page(phase="save"), True, 101.0)
    assert (stopped.since, stopped.stopped) == (0.0, 100.0)
    assert hangs.seen(stopped, 0, page(phase="save"), False, 101.5).stopped is None


def test_a_watcher_that_was_away_counts_anew() -> None:
    stopped = hangs.seen(quiet(), 0, page(), True, 2.0)
    assert hangs.judge([stopped], {0: OUTSIDE}, AUTO, 100.0) is not None
    assert hangs.judge([hangs.anew(stopped, 100.0)], {0: OUTSIDE}, AUTO, 101.0) is None


def test_steps_of_this_try_are_counted_not_those_before() -> None:
    rank = hangs.seen(None, 0, ProgressPage(), False, 0.0)
    for step in (70, 71, 72):  # resumed at 70
        rank = hangs.seen(rank, 0, replace_page(page(step), resumed=70), False, float(step))
    assert (rank.steps, rank.since, rank.after_pause) == (2, 72.0, False)
    rank = hangs.seen(rank, 0, replace_page(page(72, "save"), resumed=70), False, 73.0)
    rank = hangs.seen(rank, 0, replace_page(page(72), resumed=70)._replace(updated=99.0), False, 74.0)
    assert rank.after_pause, "no step has ended since the save"


def replace_page(one: ProgressPage, resumed: int) -> ProgressPage:
    return one._replace(resumed_step=resumed)


@given(st.floats(0.001, 100.0), st.integers(5, 1000), st.floats(0.0, 1.0))
def test_tenfold_jitter_is_never_a_hang(median: float, steps: int, where: float) -> None:
    rank = quiet(steps=steps, median=median, longest=median)
    for activity in (OUTSIDE, WAITING, UNKNOWN):
        assert hangs.judge([rank], {0: activity}, AUTO, max(2.39, 11 * median) * where) is None


@given(st.floats(0.001, 100.0))
def test_a_stopped_rank_is_named_within_the_promised_time(median: float) -> None:
    rank = hangs.seen(quiet(median=median), 0, page(median=median), True, 0.0)
    assert hangs.judge([rank], {}, AUTO, 0.9 * max(3.0, 5 * median)) is not None


DUMP = """Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Current thread 0x00007f00 (most recent call first):
{frames}
  File "/home/me/train.py", line 7 in <module>
"""
ACTIVITIES = {
    "/site-packages/torch/distributed/distributed_c10d.py": WAITING,
    "/site-packages/torch/distributed/checkpoint/filesystem.py": SAVING,
    "/site-packages/torch/autograd/graph.py": WAITING,
    "/src/trainmaster_trainer/collectives/ring.py": WAITING,
    "/src/trainmaster_trainer/transport/links.py": WAITING,
    "/src/trainmaster_trainer/checkpoint/shard.py": SAVING,
    "/site-packages/torch/_inductor/codecache.py": COMPILING,
    "/home/me/train.py": OUTSIDE,
    "/site-packages/torch/nn/modules/linear.py": OUTSIDE,
}


WAIT = '  File "/usr/lib/python3.11/threading.py", line 320 in wait\n'
FUTURE = WAIT + '  File "/usr/lib/python3.11/concurrent/futures/_base.py", line 451 in result\n'


@pytest.mark.parametrize("file", ACTIVITIES)
@pytest.mark.parametrize("means", ["", WAIT, FUTURE])
def test_what_a_stack_says(file: str, means: str) -> None:
    assert stacks.activity(DUMP.format(frames=f'{means}  File "{file}", line 3 in work')) == ACTIVITIES[file]


@pytest.mark.parametrize(
    ("outer", "word"),
    [
        ("_dynamo/convert_frame.py", COMPILING),
        ("_inductor/compile_fx.py", COMPILING),
        ("_dynamo/eval_frame.py", OUTSIDE),
    ],
)
def test_whatever_the_compiler_calls_is_compiling_and_what_it_made_is_not(outer: str, word: str) -> None:
    frames = '  File "/torch/fx/graph.py", line 3 in work\n  File "/me/model.py", line 5 in forward\n'
    assert stacks.activity(DUMP.format(frames=f'{frames}  File "/torch/{outer}", line 7 in run')) == word


def test_no_stack_says_nothing() -> None:
    assert stacks.activity("") == UNKNOWN
    assert stacks.main_thread(DUMP.format(frames='  File "a b.py", line 3 in f'))[0] == ("a b.py", 3, "f")

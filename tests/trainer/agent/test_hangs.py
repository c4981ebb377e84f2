"""Which rank hangs, as tables."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trainmaster.wire.progress_page import ProgressPage
from trainmaster_trainer.agent import hangs
from trainmaster_trainer.agent.hangs import GENEROUS_SECONDS, STOPPED, Policy, Quiet
from trainmaster_trainer.agent.stacks import COMPILING, OUTSIDE, SAVING, UNKNOWN, WAITING

AUTO = Policy()
SCRIPT = Policy(script=True)


def page(
    step: int = 50, phase: str = "train", median: float = 0.1, longest: float = 0.1, tried: int = 0
) -> ProgressPage:
    return ProgressPage(step, 0.1, 1.0, median, 1.0 + step, phase, 0, 0, longest_seconds=longest, tried=tried)


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
    "... once more": (quiet(phase="evaluate"), OUTSIDE, Policy(evaluated=3.0), 0.8 * hangs.EVALUATION_SECONDS),
    "... five times as long as before": (quiet(phase="evaluate"), WAITING, Policy(evaluated=1000.0), 5000.0),
    "... as long as one may": (quiet(phase="evaluate"), OUTSIDE, Policy(60.0, evaluated=3.0), 48.0),
    "... but for the first time": (quiet(phase="evaluate"), OUTSIDE, Policy(60.0), GENEROUS_SECONDS),
    "... what is compiled late": (quiet(phase="evaluate"), COMPILING, Policy(evaluated=3.0), GENEROUS_SECONDS),
    "... alone": (quiet(phase="evaluate"), OUTSIDE, Policy(independent=True, evaluated=3.0), GENEROUS_SECONDS),
    "... as long as it may": (quiet(phase="evaluate"), OUTSIDE, Policy(evaluation=300.0), 240.0),
    "... whatever those before took": (quiet(phase="evaluate"), WAITING, Policy(evaluated=1.0, evaluation=9.0), 9.0),
    "... its batches are not meant": (
        quiet(phase="evaluate", tried=2), WAITING, Policy(evaluation=9.0), hangs.YOUNG_STEP_SECONDS
    ),
    "... the first batch": (quiet(phase="evaluate", tried=1), OUTSIDE, AUTO, 0.8 * hangs.YOUNG_SECONDS),
    "... another one": (quiet(phase="evaluate", tried=2), OUTSIDE, AUTO, 0.8 * hangs.YOUNG_STEP_SECONDS),
    "... whose steps are slow": (quiet(phase="evaluate", tried=2, median=10.0), OUTSIDE, AUTO, 120.0),
    "... as long as a step may take": (quiet(phase="evaluate", tried=2), WAITING, Policy(20.0), 20.0),
    "... of another evaluation": (quiet(phase="evaluate", tried=2), OUTSIDE, Policy(evaluated=999.0), 48.0),
    "... where peers may be away": (
        quiet(phase="evaluate", tried=2), WAITING, Policy(independent=True), GENEROUS_SECONDS
    ),
    "... that compiles": (quiet(phase="evaluate", tried=2), COMPILING, AUTO, GENEROUS_SECONDS),
    "loading": (quiet(phase="load"), OUTSIDE, AUTO, GENEROUS_SECONDS),
    "stopped while saving": (quiet(phase="save"), STOPPED, AUTO, 1.95),
    "slow storage in a step": (quiet(), SAVING, AUTO, GENEROUS_SECONDS),
    "compiling in a step": (quiet(), COMPILING, AUTO, GENEROUS_SECONDS),
    "peers may still save": (quiet(after_pause=True), WAITING, AUTO, GENEROUS_SECONDS),
    "... other agents' say nothing then": (quiet(after_pause=True), WAITING, Policy(shared=True), 12.0),
    "... which is no excuse for a loop": (quiet(after_pause=True), OUTSIDE, AUTO, 9.6),
    "peers may be away": (quiet(), WAITING, Policy(independent=True), GENEROUS_SECONDS),
    "the first step": (quiet(steps=0), OUTSIDE, AUTO, hangs.YOUNG_SECONDS),
    "the second": (quiet(steps=1), OUTSIDE, AUTO, 0.8 * hangs.YOUNG_STEP_SECONDS),
    "nothing known of it": (quiet(), UNKNOWN, AUTO, 10.8),
    "a script may evaluate": (quiet(), OUTSIDE, SCRIPT, 1440.0),
    "... and is no victim of itself": (quiet(), WAITING, SCRIPT, 60.0),
    "... unless somebody knows better": (quiet(), OUTSIDE, replace(SCRIPT, fixed=60.0), 48.0),
    "... or how long it evaluates": (quiet(), OUTSIDE, replace(SCRIPT, evaluation=300.0), 240.0),
    "... which is no limit of who waits": (quiet(), WAITING, replace(SCRIPT, evaluation=300.0), 60.0),
    "... nor do steps bound it": (quiet(), OUTSIDE, replace(SCRIPT, fixed=5.0, evaluation=300.0), 240.0),
    "... but who waits": (quiet(), WAITING, replace(SCRIPT, fixed=5.0, evaluation=300.0), 5.0),
    "... but it does not stop itself": (quiet(), STOPPED, SCRIPT, 1.95),
    "no median yet": (quiet(median=float("nan"), longest=float("nan")), OUTSIDE, AUTO, 9.6),
}  # fmt: skip


@pytest.mark.parametrize("name", LIMITS)
def test_limits(name: str) -> None:
    rank, activity, policy, seconds = LIMITS[name]
    assert hangs.limit(rank, activity, policy) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("quick steps", "hangSeconds"),
        ("evaluating", "evaluationSeconds"),
        ("... another one", "hangSeconds"),
        ("stopped while saving", "hangSeconds"),
        ("a script may evaluate", "evaluationSeconds"),
        ("... and is no victim of itself", "hangSeconds"),
    ],
)
def test_the_field_is_named_that_sets_the_limit(name: str, field: str) -> None:
    rank, activity, policy, _ = LIMITS[name]
    assert hangs.HangVerdict(0, activity, 9.0, 9.0, rank.page).field(policy) == field


def verdict(ranks: dict[int, tuple[str, int]], seconds: float = 12.0, **changes: object) -> hangs.HangVerdict | None:
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


@pytest.mark.parametrize("slow", [COMPILING, SAVING])
def test_nobody_waits_too_long_for_a_rank_that_is_at_something_slow(slow: str) -> None:
    ranks = {0: quiet(), 1: replace(quiet(), rank=1)}

    def look(seconds: float, *activities: str) -> hangs.HangVerdict | None:
        told = dict(enumerate(activities))
        for rank, activity in told.items():
            ranks[rank] = hangs.heard(ranks[rank], activity, seconds, AUTO)
        return hangs.judge(ranks.values(), told, AUTO, seconds)

    assert look(60.0, slow, WAITING) is None
    assert look(60.2, WAITING, WAITING) is None, "the step has just gone on"
    assert look(60.4, OUTSIDE, OUTSIDE) is None, "neither is what follows after the wait"
    found = look(70.2, OUTSIDE, WAITING)
    assert found is not None
    assert (found.rank, found.activity) == (0, OUTSIDE), "but for who does not come to its end"


def test_who_waits_for_a_declared_phase_of_a_rank_beside_it_is_no_victim() -> None:
    saving = hangs.heard(quiet(phase="save"), None, 60.0, AUTO)
    waiting = hangs.heard(replace(quiet(), rank=1), WAITING, 60.0, AUTO)
    assert hangs.judge([saving, waiting], {1: WAITING}, AUTO, 60.0) is None


def test_ranks_of_a_script_wait_for_one_that_evaluates_and_a_deadlock_is_seen() -> None:
    """Nothing says that rank 0 evaluates, but that it is in its own code. A minute later all wait for one another."""
    ranks = {0: quiet(), 1: replace(quiet(), rank=1)}

    def look(seconds: float, *activities: str) -> hangs.HangVerdict | None:
        told = dict(enumerate(activities))
        for rank, activity in told.items():
            ranks[rank] = hangs.heard(ranks[rank], activity, seconds, SCRIPT)
        return hangs.judge(ranks.values(), told, SCRIPT, seconds)

    assert hangs.suspicious(ranks[0], SCRIPT, 45.1), "it is looked at long before it would be named"
    assert look(1400.0, OUTSIDE, WAITING) is None
    assert look(1459.9, WAITING, WAITING) is None
    found = look(1460.1, WAITING, WAITING)
    assert found is not None
    assert found.waiting


def test_what_is_slow_for_an_hour_is_named_and_not_who_waits_for_it() -> None:
    ranks = {0: quiet(), 1: replace(quiet(), rank=1)}
    activities = {0: SAVING, 1: WAITING}
    heard = [hangs.heard(one, activities[rank], GENEROUS_SECONDS, AUTO) for rank, one in ranks.items()]
    found = hangs.judge(heard, activities, AUTO, GENEROUS_SECONDS)
    assert found is not None
    assert found.rank == 0


def test_what_evaluations_take_is_learned_and_holds_for_as_many_ranks() -> None:
    evaluating = hangs.seen(quiet(), 0, page(phase="evaluate"), False, 10.0)
    assert hangs.evaluated(None, page(phase="evaluate"), 10.0) == 0
    assert hangs.evaluated(evaluating, page(phase="evaluate"), 30.0) == 0
    assert hangs.evaluated(evaluating, page(step=51), 45.0) == 35.0
    learned = Policy(world_size=4, evaluated=35.0)
    assert Policy(world_size=4).after(learned) == learned
    assert Policy(world_size=2).after(learned).evaluated == 0, "each of them has twice as many samples"


def test_a_batch_of_an_evaluation_may_take_five_times_as_long_as_any_before() -> None:
    rank = hangs.seen(quiet(), 0, page(phase="evaluate"), False, 10.0)
    for number, now in ((1, 500.0), (2, 530.0), (3, 530.1)):
        rank = hangs.seen(rank, 0, page(phase="evaluate", tried=number)._replace(updated=now), False, now)
    assert hangs.limit(rank, WAITING, AUTO) == 5 * 30.0, "what came before the first was no batch"
    assert hangs.evaluated(rank, page(), 540.0) == 530.0, "the whole of it, and not since the last batch"


def test_who_waits_for_a_peers_evaluation_is_no_victim_of_its_own() -> None:
    policy = Policy(evaluated=3.0)
    ranks = [quiet(phase="evaluate"), replace(quiet(phase="evaluate"), rank=1)]
    for seconds, named in ((479.0, None), (481.0, 1)):
        heard = [hangs.heard(one, what, seconds, policy) for one, what in zip(ranks, (WAITING, OUTSIDE), strict=True)]
        found = hangs.judge(heard, {0: WAITING, 1: OUTSIDE}, policy, seconds)
        assert (found and found.rank) == named
    assert found is not None
    assert "rank 1 does not come to the end of its evaluation: nothing from it for 481.0 s" in hangs.sentence(found)


def test_with_a_suspicious_rank_all_are_asked_that_it_may_wait_for() -> None:
    early, late = quiet(), replace(quiet(), rank=1, since=5.0)
    saving = replace(quiet(phase="save"), rank=2)
    assert hangs.suspects([early, late, saving], AUTO, 7.0) == []
    assert hangs.suspects([early, late, saving], AUTO, 7.3) == [early, late]


def test_suspects_are_searched_for_by_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparing whole ranks with one another costs their number squared, in the agent's only thread."""
    ranks = [replace(quiet(), rank=rank) for rank in range(20)]
    monkeypatch.setattr(Quiet, "__eq__", lambda *_: pytest.fail("two ranks are compared"))
    assert len(hangs.suspects(ranks, AUTO, 7.3)) == len(ranks)


@pytest.mark.parametrize(
    ("shared", "seconds", "final"), [(False, 12.0, True), (True, 12.0, False), (True, 3600.0, True)]
)
def test_who_waits_for_other_agents_is_no_victim_yet(shared: bool, seconds: float, final: bool) -> None:
    found = verdict({0: (WAITING, 50)}, seconds)
    assert found is not None
    assert found.is_final(Policy(shared=shared)) == final


def test_who_waits_is_no_victim_while_a_cause_may_be_slow_to_answer() -> None:
    waits, asked = quiet(), replace(quiet(), rank=1)
    assert hangs.judge([waits, asked], {0: WAITING}, AUTO, 13.0) is None
    found = hangs.judge([waits, asked], {0: WAITING, 1: UNKNOWN}, AUTO, 13.4)
    assert found is not None
    assert (found.rank, found.waiting) == (1, False)


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


@pytest.mark.parametrize(("resumed", "steps"), [(0, 6), (4, 2), (6, 0), (-1, 0)])
@pytest.mark.parametrize("before", [ProgressPage(), None], ids=["while it loaded", "never"])
def test_steps_that_a_rank_took_before_it_was_looked_at_count(
    before: ProgressPage | None, resumed: int, steps: int
) -> None:
    """Quick ones, before a hang: it is no first step then, which may take ten minutes."""
    rank = hangs.seen(None, 0, before, False, 0.0) if before else None
    assert hangs.seen(rank, 0, replace_page(page(6), resumed), False, 1.0).steps == steps


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

"""Check whether a heartbeat can be true at all: it may hold numbers or texts that no agent sends.

A message of the right types may still be forged or garbled. It is refused with a reason that names the member, before
it is used; what is merely wrong (a step beyond the last) is bounded where it is used.
"""

import dataclasses
from collections.abc import Iterator, Mapping

from trainmaster.wire.bounded_json import LARGEST_COUNT
from trainmaster.wire.messages import ExitReport, Figures, Heartbeat, RankProgress, Rendezvous

_MOST_RANKS = 1024
_LONGEST_NAME = 512
_LONGEST_TEXT = 256 << 10
_MOST_FIGURES = 64
_PORTS = 65535


def doubt(beat: Heartbeat) -> str:
    """Return what in the heartbeat is impossible, in a sentence; empty where all of it is possible."""
    return next(_doubts(beat), "")


def believed(beat: Heartbeat) -> Heartbeat:
    """Return the heartbeat without the progress of ranks that belong to another attempt or start than it names.

    An agent that begins an attempt still has the pages of the last one, whose steps are no steps of the new one.
    """
    own = tuple(
        rank for rank in beat.ranks if rank.attempt in (None, beat.attempt) and rank.start in (None, beat.start or 0)
    )
    return beat if len(own) == len(beat.ranks) else dataclasses.replace(beat, ranks=own)


def _doubts(beat: Heartbeat) -> Iterator[str]:
    counts = {"index": beat.index, "incarnation": beat.incarnation, "sequence": beat.sequence, "attempt": beat.attempt}
    yield from _counts("Heartbeat", counts)
    names = {"job": beat.job, "job_uid": beat.job_uid, "role": beat.role, "pod_uid": beat.pod_uid, "state": beat.state}
    words = {**names, "roster_digest": beat.roster_digest, "orders_seen": beat.orders_seen}
    yield from _texts("Heartbeat", words, _LONGEST_NAME)
    yield from _meeting("Heartbeat.offer", beat.offer)
    if beat.rendezvous:
        yield from _meeting("Heartbeat.rendezvous", beat.rendezvous)
    if len(beat.trackers) > _MOST_FIGURES:
        yield f"Heartbeat.trackers: {len(beat.trackers)} are more than {_MOST_FIGURES}"
    for title, problem in beat.trackers.items():
        yield from _texts("Heartbeat.trackers", {"title": title, "problem": problem}, _LONGEST_TEXT)
    if len(beat.ranks) > _MOST_RANKS:
        yield f"Heartbeat.ranks: {len(beat.ranks)} are more than {_MOST_RANKS}"
    for place, rank in enumerate(beat.ranks):
        yield from _rank(f"Heartbeat.ranks[{place}]", rank)
    if beat.checkpoint:
        yield from _counts("Heartbeat.checkpoint", {"step": beat.checkpoint.step})
        yield from _texts("Heartbeat.checkpoint", {"sha256": beat.checkpoint.sha256}, _LONGEST_NAME)
    if beat.exit:
        yield from _exit("Heartbeat.exit", beat.exit)
    if beat.good_end:
        yield from _counts("Heartbeat.good_end", {"attempt": beat.good_end.attempt, "rank": beat.good_end.rank})
    if beat.stalled:
        yield from _exit("Heartbeat.stalled", beat.stalled)


def _rank(where: str, rank: RankProgress) -> Iterator[str]:
    yield from _counts(where, {"rank": rank.rank, "step": rank.step, "resumed_step": rank.resumed_step or 0})
    yield from _counts(where, {"attempt": rank.attempt or 0, "start": rank.start or 0})
    yield from _counts(where, {"total_steps": rank.total_steps or 0, "earlier_steps": rank.earlier_steps or 0})
    yield from _texts(where, {"phase": rank.phase}, _LONGEST_NAME)
    if rank.figures:
        yield from _figures(f"{where}.figures", rank.figures)
    if rank.unsaved:
        yield from _counts(f"{where}.unsaved", {"step": rank.unsaved.step})
        yield from _texts(f"{where}.unsaved", {"problem": rank.unsaved.problem}, _LONGEST_TEXT)


def _figures(where: str, figures: Figures) -> Iterator[str]:
    yield from _named(f"{where}.metrics", figures.metrics)
    if figures.evaluation:
        told = figures.evaluation
        yield from _named(f"{where}.evaluation.figures", told.figures)
        yield from _counts(f"{where}.evaluation", {"step": told.step, "best_step": told.best_step or 0})
        yield from _texts(f"{where}.evaluation", {"stopped": told.stopped}, _LONGEST_TEXT)


def _named(where: str, figures: Mapping[str, object]) -> Iterator[str]:
    if len(figures) > _MOST_FIGURES:
        yield f"{where}: {len(figures)} are more than {_MOST_FIGURES}"
    yield from _texts(where, {"name": max(figures, key=len, default="")}, _LONGEST_NAME)


def _exit(where: str, report: ExitReport) -> Iterator[str]:
    yield from _counts(where, {"attempt": report.attempt, "rank": report.rank, "step": report.step})
    yield from _texts(where, {"signal": report.signal or ""}, _LONGEST_NAME)
    yield from _texts(where, {"stacks": report.stacks, "said": report.said}, _LONGEST_TEXT)
    if report.exit_code is not None and abs(report.exit_code) > LARGEST_COUNT:
        yield f"{where}.exit_code: no process ends with that"
    if report.error:
        texts = {"message": report.error.message, "frame": report.error.frame, "traceback": report.error.traceback}
        yield from _texts(f"{where}.error", texts, _LONGEST_TEXT)
        yield from _texts(f"{where}.error", {"type": report.error.type}, _LONGEST_NAME)


def _meeting(where: str, meeting: Rendezvous) -> Iterator[str]:
    for port in (meeting.port, *meeting.ports):
        if not 0 <= port <= _PORTS:
            yield f"{where}: a port is between 0 and {_PORTS}"
    if len(meeting.ports) > _MOST_RANKS:
        yield f"{where}.ports: {len(meeting.ports)} are more than {_MOST_RANKS}"
    yield from _texts(where, {"key": meeting.key}, _LONGEST_NAME)


def _counts(where: str, members: dict[str, int]) -> Iterator[str]:
    for name, value in members.items():
        if not 0 <= value <= LARGEST_COUNT:
            yield f"{where}.{name}: expected a count of 0 to 2**53"


def _texts(where: str, members: dict[str, str], longest: int) -> Iterator[str]:
    for name, text in members.items():
        if len(text) > longest:
            yield f"{where}.{name}: {len(text)} characters are more than {longest}"

"""Tickets decide who computes which share of which global batch. This is bookkeeping of server 0, without I/O or clock.

A ticket is (step, share): part `index` of `of` equal parts of the global batch of `step`. A worker that asks gets the
next one, so a slow worker takes fewer, and costs no more than its own share. A lost worker's tickets are given out
again. A ticket counts once, however often it is reported.

Bounded staleness (Ho et al., "More effective distributed ML via a stale synchronous parallel parameter server", NIPS
2013): a ticket of step t is given out only when all of steps up to t - 1 - bound are done. Bound 0 is lock step, for
the synchronous update. `gate` is a step that no ticket may pass: a checkpoint is to be cut there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from trainmaster_trainer.metric_names import check_same_names


class Ticket(NamedTuple):
    """A ticket is part `index` of `of` of the global batch of `step`."""

    step: int
    index: int  # type: ignore[assignment]  # a tuple's method of that name is of no use here
    of: int


class DoneTicket(NamedTuple):
    """Hold what is known of a ticket that is done: the mean loss over `size` samples, and the means of its metrics."""

    loss: float
    size: int
    metrics: Mapping[str, float] = {}


@dataclass
class _Step:
    """Hold one step under way."""

    of: int
    done: dict[int, DoneTicket] = field(default_factory=dict)
    free: list[int] = field(default_factory=list)  # to be given out, the next one last
    claimed: set[int] = field(default_factory=set)

    @classmethod
    def cut(cls, of: int) -> _Step:
        return cls(of, free=list(reversed(range(of))))


class TicketBook:
    """TicketBook gives out tickets from `complete` + 1 to `steps`. `spare`: so many shares of a step need not come."""

    def __init__(self, complete: int, steps: int, bound: int | None, spare: int = 0) -> None:
        self.complete = complete  # all steps up to this one are done
        self.gate = steps
        self._steps = steps
        self._bound = bound
        self._spare = spare
        self._open: dict[int, _Step] = {}
        self._held: dict[object, Ticket] = {}
        self._finished: dict[int, dict[int, DoneTicket]] = {}

    def take(self, holder: object, shares: int) -> Ticket | None:
        """Return the next ticket for a worker process, or the one that it holds; None while there is none.

        `shares` is the number of parts into which a step that has not begun is cut.
        """
        if holder in self._held:
            return self._held[holder]
        for number in range(self.complete + 1, self._last_open() + 1):
            step = self._open.setdefault(number, _Step.cut(shares))
            if step.free:
                ticket = Ticket(number, step.free.pop(), step.of)
                self._held[holder] = ticket
                return ticket
        return None

    @property
    def has_ticket(self) -> bool:
        """Return whether there is a ticket for a worker that has none."""
        numbers = range(self.complete + 1, self._last_open() + 1)
        return any(number not in self._open or self._open[number].free for number in numbers)

    def _last_open(self) -> int:
        last = min(self._steps, self.gate)
        return last if self._bound is None else min(last, self.complete + 1 + self._bound)

    def claim(self, ticket: Ticket) -> bool:
        """Return whether this share may be part of its step. With backup workers, the late ones may not."""
        step = self._open.get(ticket.step)
        if step is None:
            return False
        if ticket.index not in step.claimed and len(step.claimed) >= step.of - self._needless(step):
            return False
        step.claimed.add(ticket.index)
        return True

    def _needless(self, step: _Step) -> int:
        return min(self._spare, step.of - 1)

    def done(self, ticket: Ticket, result: DoneTicket) -> None:
        """Note that a ticket's gradient is in the model. Noted twice, it counts once."""
        for holder in [holder for holder, held in self._held.items() if held == ticket]:
            del self._held[holder]
        step = self._open.get(ticket.step)
        if step is None or ticket.of != step.of:
            return
        if ticket.index in step.free:
            step.free.remove(ticket.index)  # it had been given up for lost
        step.done[ticket.index] = result
        while (first := self._open.get(self.complete + 1)) and len(first.done) >= first.of - self._needless(first):
            self.complete += 1
            self._finished[self.complete] = self._open.pop(self.complete).done

    def drop(self, holder: object) -> None:
        """Free the ticket of a worker process that is gone or gives it back."""
        ticket = self._held.pop(holder, None)
        step = self._open.get(ticket.step) if ticket else None
        if ticket and step and ticket.index not in step.done and ticket.index not in step.free:
            step.free.append(ticket.index)

    def refuse(self, holder: object) -> None:
        """Take the ticket from its holder, whose share came too late for its step; free it if still needed."""
        ticket = self._held.get(holder)
        step = self._open.get(ticket.step) if ticket else None
        if ticket and step and len(step.claimed - {ticket.index}) < step.of - self._needless(step):
            self.drop(holder)  # it is needed after all: it failed for another reason
        self._held.pop(holder, None)

    @property
    def newest_begun(self) -> int:
        """Return the highest step of which a ticket was given out."""
        return max(self._open, default=self.complete)

    @property
    def holders(self) -> list[object]:
        """Return the worker processes that hold a ticket."""
        return list(self._held)

    def finished(self) -> list[tuple[int, list[DoneTicket]]]:
        """Return the steps completed since the last call, with the results of their shares in order."""
        found = [(step, [done[index] for index in sorted(done)]) for step, done in sorted(self._finished.items())]
        self._finished.clear()
        return found

    def recall(self, seen: Iterable[Ticket], done: Mapping[Ticket, DoneTicket]) -> None:
        """Begin again from what the servers remember: tickets that are in some shards, and those that are in all."""
        for ticket in seen:
            if ticket.step > self.complete:
                step = self._open.setdefault(ticket.step, _Step.cut(ticket.of))
                step.claimed.add(ticket.index)
        for ticket, result in sorted(done.items()):
            self.done(ticket, result)


def metrics_of(shares: list[DoneTicket]) -> dict[str, float]:
    """Return the means of a step's metrics over its samples.

    Raises:
        ConfigurationError: workers have metrics of different names.
    """
    size = max(1, sum(done.size for done in shares))
    for done in shares:
        check_same_names(shares[0].metrics, done.metrics)
    return {name: sum(done.metrics[name] * done.size for done in shares) / size for name in shares[0].metrics}

"""Tickets: whatever workers do in whatever order, each share counts once, and nobody runs too far ahead."""

from hypothesis import given, settings
from hypothesis import strategies as st
from trainmaster_trainer.strategies.parameter_server.tickets import DoneTicket, Ticket, TicketBook

DONE = DoneTicket(0.5, 4)
ACTIONS = st.lists(st.tuples(st.sampled_from(["take", "done", "again", "drop"]), st.integers(0, 3)), max_size=200)


@settings(deadline=None)
@given(ACTIONS, st.sampled_from([None, 0, 1, 3]), st.integers(1, 3))
def test_each_share_counts_once_and_the_bound_holds(
    actions: list[tuple[str, int]], bound: int | None, shares: int
) -> None:
    book = TicketBook(0, 12, bound)
    held: dict[int, Ticket] = {}
    finished: dict[int, list[DoneTicket]] = {}
    counted: set[Ticket] = set()
    for action, worker in actions:
        if action == "take":
            could = book.has_ticket or worker in held
            ticket = book.take(worker, shares)
            assert (ticket is not None) == could
            if ticket is not None:
                assert bound is None or ticket.step <= book.complete + 1 + bound
                assert ticket not in counted
                held[worker] = ticket
        elif worker in held and action == "drop":
            book.drop(worker)
            del held[worker]
        elif worker in held:
            ticket = held.pop(worker)
            for _ in range(2 if action == "again" else 1):
                book.done(ticket, DONE)
            counted.add(ticket)
        for step, results in book.finished():
            assert step not in finished
            finished[step] = results
    assert all(len(results) == shares for results in finished.values())
    assert sorted(finished) == list(range(1, book.complete + 1))
    assert len(set(held.values())) == len(held)


def test_a_dropped_ticket_is_given_to_the_next_who_asks() -> None:
    book = TicketBook(0, 5, 0)
    first, second = book.take("a", 2), book.take("b", 2)
    assert not book.has_ticket
    assert book.take("c", 2) is None
    book.drop("a")
    assert book.has_ticket
    assert book.take("c", 2) == first
    assert book.take("b", 2) == second  # asked again, the same one


def test_none_passes_the_gate() -> None:
    book = TicketBook(0, 5, None)
    book.gate = 1
    ticket = book.take("a", 1)
    assert ticket == Ticket(1, 0, 1)
    book.done(ticket, DONE)
    assert not book.has_ticket
    book.gate = 2
    assert book.take("a", 1) == Ticket(2, 0, 1)


def test_with_backup_workers_the_late_share_is_refused_and_not_missed() -> None:
    book = TicketBook(0, 5, 0, spare=1)
    tickets = [book.take(worker, 3) for worker in "abc"]
    assert [ticket is not None and book.claim(ticket) for ticket in tickets] == [True, True, False]
    book.refuse("c")
    for ticket in tickets[:2]:
        assert ticket is not None
        book.done(ticket, DONE)
    assert book.complete == 1
    assert book.take("c", 3) == Ticket(2, 0, 3)


def test_what_servers_remember_is_not_given_out_again() -> None:
    before = [Ticket(1, 0, 2), Ticket(1, 1, 2), Ticket(2, 0, 2)]
    book = TicketBook(0, 5, 0)
    book.recall([*before, Ticket(2, 1, 2)], dict.fromkeys(before, DONE))  # the last one is in one shard only
    assert book.complete == 1
    assert book.take("a", 2) == Ticket(2, 1, 2)
    assert not book.has_ticket

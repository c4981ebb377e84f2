"""A process of an older try that wakes late reaches nothing of the newer one: 1,000 forced overlaps."""

from __future__ import annotations

import select
import socket

from trainmaster_trainer.agent.rendezvous import Offer

OVERLAPS = 1000


def reached(port: int, listeners: list[socket.socket]) -> list[int]:
    """Which of these sockets a connection to `port` comes to."""
    found = []
    with socket.create_connection(("127.0.0.1", port), timeout=60):
        select.select(listeners, [], [], 60)  # whoever has it may hear of it a moment later
        for number, listener in enumerate(listeners):
            listener.setblocking(False)
            try:
                listener.accept()[0].close()
            except BlockingIOError:
                continue
            found.append(number)
    return found


def test_two_tries_in_a_row_share_no_port_and_no_key() -> None:
    """The older one still holds its sockets, as a stopped process does, while the newer one begins."""
    offer = Offer("127.0.0.1", print, ranks=1)
    older, late = offer.rendezvous, [*(offer.take_ports(offer.rendezvous.ports) or ()), offer.take()]
    for _ in range(OVERLAPS):
        newer = offer.rendezvous
        assert offer.take_ports(older.ports) is None, "a late order names ports that are not offered any more"
        fresh = [*(offer.take_ports(newer.ports) or ()), offer.take()]
        assert not {older.port, *older.ports} & {newer.port, *newer.ports}
        assert older.key != newer.key
        assert reached(newer.ports[0], [*late, *fresh]) == [2], "who comes to the newer try is met by it alone"
        assert reached(older.ports[0], [*late, *fresh]) == [0], "who comes to the older try is not let in by the newer"
        for one in late:
            one.close()
        older, late = newer, fresh
    for one in late:
        one.close()

"""Digests and versions: equal for equal values, in every process, and the same as yesterday.

An agent computes the digest of the roster that it runs, with the code in its image; the operator compares it with its
own. Were the two to differ after an upgrade of the operator, every job would be restarted.
"""

import dataclasses
import subprocess
import sys

from trainmaster.wire.agent_states import Verb
from trainmaster.wire.messages import Member, Orders, Rendezvous, Roster

ROSTER = Roster(
    attempt=3,
    members=(Member("worker", 0, 1, "10.0.0.1", 0, 2), Member("worker", 1, 0, "10.0.0.2", 2, 2)),
    rendezvous_address="10.0.0.1",
    rendezvous=Rendezvous(29500, "secret"),
)
ORDERS = Orders(Verb.RUN, 3, "all are here", ROSTER)
DIGEST = "6b9b9c8ea1fecc70"


def test_the_digest_of_a_roster_is_what_it_always_was() -> None:
    assert ROSTER.digest == DIGEST


def test_any_change_of_a_roster_changes_its_digest() -> None:
    first, second = ROSTER.members
    others = [
        dataclasses.replace(ROSTER, attempt=4),
        dataclasses.replace(ROSTER, members=(first,)),
        dataclasses.replace(ROSTER, members=(second, first)),
        dataclasses.replace(ROSTER, members=(dataclasses.replace(first, incarnation=2), second)),
        dataclasses.replace(ROSTER, rendezvous_address="10.0.0.2"),
        dataclasses.replace(ROSTER, rendezvous=Rendezvous(29500, "another")),
    ]
    assert len({roster.digest for roster in [ROSTER, *others]}) == 1 + len(others)


def test_another_process_finds_the_same_digest_and_version() -> None:
    program = (
        "from tests.wire.test_messages import ROSTER, ORDERS\n"
        "print(ROSTER.digest, ORDERS.version)"
    )  # fmt: skip
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "7"}
    )
    assert run.stdout.split() == [ROSTER.digest, ORDERS.version]


def test_the_version_of_orders_follows_everything_in_them() -> None:
    others = [
        dataclasses.replace(ORDERS, verb=Verb.WAIT),
        dataclasses.replace(ORDERS, attempt=4),
        dataclasses.replace(ORDERS, roster=None),
        dataclasses.replace(ORDERS, exit_code=1),
        dataclasses.replace(ORDERS, reason="because"),
    ]
    assert len({orders.version for orders in [ORDERS, *others]}) == 1 + len(others)


def test_the_world_is_all_ranks_of_all_members() -> None:
    assert ROSTER.world_size == 4

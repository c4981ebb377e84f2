"""Meetings of two peers under Gossip whose requests come late, or twice: the sum over all peers never changes."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor
from trainmaster.wire.training import TrainingPlan
from trainmaster_trainer.fault_injection import Faults
from trainmaster_trainer.independent_member import IndependentMember
from trainmaster_trainer.progress import Progress
from trainmaster_trainer.settings import Settings
from trainmaster_trainer.strategies.gossip.peer import Peer
from trainmaster_trainer.transport.directory import Directory
from trainmaster_trainer.transport.frame import Message
from trainmaster_trainer.transport.links import Links, PeerRefusedError

from tests.trainer.small_tasks import Line
from tests.trainer.transport.harness import Town, listen

PATIENCE = 100.0


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    """Where they find one another."""
    town = Town(tmp_path / "roster.json")
    yield town
    town.close()


def settle(town: Town, rank: int) -> Peer:
    """A peer that answers, with a model of its own."""
    settings = Settings(TrainingPlan(strategy="Gossip", global_batch_size=10), town.path.parent, rank=rank)
    directory, identity, listener = Directory(town.path), town.identity(rank), listen()
    links = Links(identity, directory)
    town.open_links.append(links)
    cpu, progress, faults = torch.device("cpu"), Progress(None, 10), Faults({}, settings)
    stop = threading.Event()
    peer = Peer(IndependentMember(settings, progress, Line(), cpu, identity, directory, links, listener, stop, faults))
    town.settle(rank, peer._answer, listener)
    peer.take_over(lambda: False)
    peer._silence = PATIENCE  # both are in this process, which may get no processor for a while
    with torch.no_grad():
        for buffer in peer.mixer.buffers:
            buffer.add_(rank)
    return peer


def settle_two(town: Town) -> tuple[Peer, Peer]:
    """An asker who knows where its answerer is: it looks into the roster now and then."""
    asker, answerer = settle(town, 0), settle(town, 1)
    deadline = time.monotonic() + PATIENCE
    while asker.member.directory.place(1) is None:
        assert time.monotonic() < deadline, "the roster names no answerer"
        time.sleep(0.01)
    return asker, answerer


def late(town: Town, peer: Peer) -> Links:
    """What is left of a connection of this peer on which it has lost patience."""
    links = Links(peer.member.identity, Directory(town.path))
    town.open_links.append(links)
    return links


def total(*peers: Peer) -> Tensor:
    return torch.stack([torch.cat([buffer.double() for buffer in peer.mixer.buffers]) for peer in peers]).sum(dim=0)


def test_what_was_asked_for_twice_and_is_answered_late_is_over(town: Town) -> None:
    """The answerer was busy, with a save say: it finds both when it has time, the later one first."""
    asker, answerer = settle_two(town)
    before, apart = total(asker, answerer), float((asker.mixer.buffers[0] - answerer.mixer.buffers[0]).norm())
    first = asker._meeting(1, asker.member.directory.place(1))
    for _ in range(2):  # also when the next meeting is over
        assert asker.meet(1)
        with pytest.raises(PeerRefusedError, match="this meeting is over"):
            late(town, asker).ask(1, first, PATIENCE)
        assert torch.allclose(total(asker, answerer), before, atol=1e-6)
    assert float((asker.mixer.buffers[0] - answerer.mixer.buffers[0]).norm()) < apart / 2


def test_thanks_that_come_late_are_not_for_the_next_meeting(town: Town) -> None:
    asker, answerer = settle_two(town)
    first = asker._meeting(1, asker.member.directory.place(1))
    assert asker.meet(1)
    asker.mixer.buffers[0].add_(1.0)  # it has trained
    before = total(asker, answerer)
    second = asker._meeting(1, asker.member.directory.place(1))
    late(town, asker).ask(1, second, PATIENCE)  # its answer is lost on the way
    late(town, asker).ask(1, Message("thanks", {"number": first.values["number"]}), PATIENCE)
    assert asker.meet(1)
    assert torch.allclose(total(asker, answerer), before, atol=1e-6)


def test_a_peer_of_another_version_is_refused(town: Town) -> None:
    """It was replaced, or we were, while the tag of the image moved on."""
    asker, answerer = settle_two(town)
    before = total(asker, answerer)
    with pytest.raises(PeerRefusedError, match="another version of the trainer"):
        asker.member.links.ask(1, Message("meet", {"number": "0a1b"}, asker.mixer.offer()), PATIENCE)
    assert torch.equal(total(asker, answerer), before)

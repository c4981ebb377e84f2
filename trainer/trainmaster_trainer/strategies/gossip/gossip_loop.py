"""Run Gossip's loop for one worker: resume or take over, step and average, end together."""

from __future__ import annotations

import logging
import time

from trainmaster.wire.names import EXIT_TERMINATED

from trainmaster_trainer.errors import NonFiniteLossError
from trainmaster_trainer.independent_member import IndependentMember
from trainmaster_trainer.strategies.gossip.checkpoint_writer import CheckpointWriter
from trainmaster_trainer.strategies.gossip.peer import Peer
from trainmaster_trainer.transport.frame import Message
from trainmaster_trainer.transport.links import PeerLostError, PeerRefusedError

log = logging.getLogger(__name__)
WAIT_SECONDS = 0.05
LAST_WORDS_SECONDS = 60.0  # how long the checkpoint writer stays for those who have not said goodbye


def train(member: IndependentMember) -> int:
    """Train with the other workers until enough samples are done, or until asked to stop. Return the exit code."""
    peer = Peer(member)
    checkpoint_writer = CheckpointWriter(peer)
    checkpoint_writer.resume()
    peer.open()
    if not peer.take_over(checkpoint_writer.final_stands):
        return EXIT_TERMINATED
    try:
        return _train_on(peer, checkpoint_writer)
    except NonFiniteLossError as error:
        checkpoint_writer.date(error)
        raise


def _train_on(peer: Peer, checkpoint_writer: CheckpointWriter) -> int:
    member = peer.member
    if _is_first(peer) and member.settings.attempt == 1:  # the others may be some steps ahead of it already
        peer.trial.check()
    checkpoint_writer.begin()
    while peer.sample_counters.samples < peer.goal and not peer.closed:
        member.check()
        peer.train()
        peer.average_meanwhile()
        checkpoint_writer.tell()
        member.seen(min(peer.sample_counters.step, peer.plan.steps))
        if member.stop.is_set():
            peer.end_average()
            checkpoint_writer.save_and_leave()
            return EXIT_TERMINATED
    peer.end_average()
    return _end(peer, checkpoint_writer)


def _end(peer: Peer, checkpoint_writer: CheckpointWriter) -> int:
    """Wait until the final checkpoint stands, then leave. Return the exit code."""
    peer.member.progress.enter("evaluate")
    if peer.closed and _is_first(peer) and checkpoint_writer.final_stands():
        checkpoint_writer.close()  # it stood before any worker began: the others had nothing to do or to evaluate
    while not peer.closed:
        peer.member.check()
        checkpoint_writer.see_to_office()  # one that is back waits until this one writes no more
        if peer.member.stop.is_set():
            return EXIT_TERMINATED
        if _is_first(peer):
            checkpoint_writer.close()
        elif _ask_whether_closed(peer) or checkpoint_writer.final_stands():
            peer.closed = True
        else:
            time.sleep(WAIT_SECONDS)
    checkpoint_writer.keep_final()
    if not checkpoint_writer.closed_it:
        _say_goodbye(peer)
    deadline = time.monotonic() + LAST_WORDS_SECONDS
    while checkpoint_writer.closed_it and time.monotonic() < deadline and not peer.member.stop.is_set():
        if {*peer.workers} <= peer.left | {peer.member.rank}:
            break
        time.sleep(WAIT_SECONDS)
    peer.member.progress.enter("done")
    return 0


def _is_first(peer: Peer) -> bool:
    return peer.member.rank == min(peer.workers, default=peer.member.rank)


def _ask_whether_closed(peer: Peer) -> bool:
    """Tell the checkpoint writer that this worker has stopped training. Return whether the last checkpoint stands."""
    answer = _tell(peer, min(peer.workers), Message("closing"))
    return answer is not None and answer.name == "closed"


def _say_goodbye(peer: Peer) -> None:
    """Tell all workers that this one leaves: the one that wrote the last checkpoint waits for it."""
    for rank in peer.workers:
        if rank != peer.member.rank:
            _tell(peer, rank, Message("closing", {"leaving": True}))


def _tell(peer: Peer, rank: int, message: Message) -> Message | None:
    try:
        return peer.member.links.ask(rank, message, 0.0, 10.0)
    except (PeerLostError, PeerRefusedError) as error:
        log.debug("Rank %d is away: %s", rank, error)
        return None

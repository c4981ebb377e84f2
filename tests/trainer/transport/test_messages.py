"""What is asked is answered, with tensors of every kind, through deaths and moves."""

import threading
from concurrent.futures import Future

import pytest
import torch
from trainmaster_trainer.checkpoint import shard as checkpoint
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.transport.directory import Directory
from trainmaster_trainer.transport.frame import DTYPES, Message, OtherTensorsError
from trainmaster_trainer.transport.handshake import Caller
from trainmaster_trainer.transport.links import Links, PeerLostError, PeerRefusedError, Question
from trainmaster_trainer.transport.service import SENDERS, RequestRefusedError

from tests.trainer.transport.harness import Town, echo, listen

PATIENCE = 100.0
TENS = torch.zeros(1, dtype=torch.float64)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_tensors_arrive_as_they_were(town: Town, dtype: torch.dtype) -> None:
    town.settle(1)
    tensors = [torch.arange(6).to(dtype).reshape(2, 3), torch.empty(0, 4, dtype=dtype), torch.ones((), dtype=dtype)]
    answer = town.links(0).ask(1, Message("any", {"text": "ä", "number": 0.1}, tensors), PATIENCE)
    assert answer.values == {"text": "ä", "number": 0.1, "caller": 0}
    for sent, came in zip(tensors, answer.tensors, strict=True):
        assert came.dtype == dtype
        # As bytes: some kinds know no "equal".
        assert torch.equal(came.view(-1).view(torch.uint8), sent.view(-1).view(torch.uint8))


def test_whatever_a_checkpoint_can_hold_can_travel() -> None:
    assert set(checkpoint.DTYPES) <= set(DTYPES.values())


def test_an_answer_that_cannot_travel_is_the_services_failure(town: Town) -> None:
    """Else who asked would ask for ever."""
    failures: list[Exception] = []
    town.settle(1, lambda *_: Message("odd", {}, [torch.zeros(1, dtype=torch.float8_e8m0fnu)]), failed=failures.append)
    with pytest.raises(PeerLostError):
        town.links(0).ask(1, Message("any"), patience=0)
    assert [type(failure) for failure in failures] == [KeyError]


def test_an_answer_is_received_in_place(town: Town) -> None:
    town.settle(1)
    sent, place = torch.randn(1 << 20), torch.zeros(1 << 20)
    address = place.data_ptr()
    answer = town.links(0).to(1).ask(Question(Message("any", tensors=[sent]), [place]), PATIENCE)
    assert answer.tensors[0].data_ptr() == address
    assert torch.equal(place, sent)


def test_a_place_of_another_shape_is_an_error_and_no_overflow(town: Town) -> None:
    town.settle(1)
    link = town.links(0).to(1)
    for sent, place in ((torch.zeros(8), torch.zeros(4)), (torch.zeros(4), torch.zeros(2, 2)), (torch.zeros(1), TENS)):
        with pytest.raises(OtherTensorsError, match=r"which sent \[.* where \[.* have their place"):
            link.ask(Question(Message("any", tensors=[sent]), [place]), PATIENCE)  # asked again, it would be the same
    assert link.ask(Question(Message("any")), PATIENCE).name == "echo"


def test_many_are_asked_at_once(town: Town) -> None:
    meeting = threading.Barrier(3)

    def meet(_caller: Caller, _request: Message) -> Message:
        meeting.wait(PATIENCE)  # nobody is answered before all were asked
        return Message("met")

    for rank in (1, 2, 3):
        town.settle(rank, meet)
    answers = town.links(0).ask_all({rank: Question(Message("meet")) for rank in (1, 2, 3)}, PATIENCE)
    assert sorted(answers) == [1, 2, 3]


def test_a_refusal_is_told_and_the_connection_stays(town: Town) -> None:
    def refuse(caller: Caller, request: Message) -> Message:
        if request.name == "bad":
            raise RequestRefusedError("not today")
        return echo(caller, request)

    town.settle(1, refuse)
    links = town.links(0)
    with pytest.raises(PeerRefusedError, match="not today"):
        links.ask(1, Message("bad"), PATIENCE)
    assert links.ask(1, Message("good"), PATIENCE).name == "echo"


def test_a_slow_peer_holds_up_nobody(town: Town) -> None:
    release = threading.Event()

    def slow_for_two(caller: Caller, request: Message) -> Message:
        if caller.rank == 2:
            release.wait(PATIENCE)
        return echo(caller, request)

    town.settle(1, slow_for_two)
    waiting = threading.Thread(target=town.links(2).ask, args=(1, Message("slow"), PATIENCE))
    waiting.start()
    assert town.links(0).ask(1, Message("quick"), PATIENCE).name == "echo"
    assert waiting.is_alive()
    release.set()
    waiting.join()


def test_a_peer_that_comes_later_is_waited_for(town: Town) -> None:
    links = town.links(0)
    town.settle(3)  # so that there is a roster; 1 is not in it yet
    answers: list[Message] = []
    asking = threading.Thread(target=lambda: answers.append(links.ask(1, Message("any"), PATIENCE)))
    asking.start()
    town.settle(1)
    asking.join()
    assert answers[0].name == "echo"


def test_a_peer_that_moved_is_found_at_its_new_address(town: Town) -> None:
    first = town.settle(1, lambda _caller, _request: Message("first"))
    links = town.links(0)
    assert links.ask(1, Message("any"), PATIENCE).name == "first"
    first.close()
    town.settle(1, lambda _caller, _request: Message("second"))
    assert links.ask(1, Message("any"), PATIENCE).name == "second"


def test_a_successor_is_called_though_the_predecessor_still_answers(town: Town) -> None:
    town.settle(1, lambda _caller, _request: Message("first"))
    links = town.links(0)
    assert links.ask(1, Message("any"), PATIENCE).name == "first"
    before = town.services[1]
    town.settle(1, lambda _caller, _request: Message("second"))
    links.directory._looked = 0.0  # some milliseconds later
    assert links.ask(1, Message("any"), PATIENCE).name == "second"
    before.close()


def test_a_rank_that_starts_again_finds_its_socket_still_listening(town: Town) -> None:
    # The agent keeps the socket; callers that come while the rank is away wait in the kernel's queue.
    kept = listen()
    town.settle(1, lambda _caller, _request: Message("first"), kept.dup())
    links = town.links(0)
    assert links.ask(1, Message("any"), PATIENCE).name == "first"
    for connected in list(town.services[1]._open):
        connected.close()
    answers: list[Message] = []
    asking = threading.Thread(target=lambda: answers.append(town.links(2).ask(1, Message("any"), PATIENCE)))
    asking.start()
    asking.join()
    assert answers[0].name == "first"
    kept.close()


def test_who_is_gone_is_told_once_its_last_connection_is_closed(town: Town) -> None:
    gone: list[Caller] = []
    told = threading.Event()

    def remember(caller: Caller) -> None:
        gone.append(caller)
        told.set()

    service = town.settle(1, echo, gone=remember)
    links = town.links(5)
    links.ask(1, Message("any"), PATIENCE)
    assert service.present == {5}
    links.close()
    assert told.wait(PATIENCE)
    assert [caller.rank for caller in gone] == [5]
    assert service.present == set()


def test_patience_ends(town: Town) -> None:
    town.settle(3)
    with pytest.raises(PeerLostError, match="rank 1 does not answer: the roster names no address of it"):
        town.links(0).ask(1, Message("any"), patience=0.1)


def test_a_silent_peer_is_given_up_on(town: Town) -> None:
    never = threading.Event()

    def wait(_caller: Caller, _request: Message) -> Message:
        never.wait(PATIENCE)
        return Message("late")

    town.settle(1, wait)
    with pytest.raises(PeerLostError):
        town.links(0).ask(1, Message("any"), patience=0.1, silence=0.2)
    never.set()


def test_a_torn_roster_leaves_the_one_before(town: Town) -> None:
    town.settle(1)
    directory = Directory(town.path)
    assert directory.workers == [1]
    town.path.write_text('{"attempt": 1, "mem')
    directory._looked = 0.0
    assert directory.workers == [1]


def test_without_a_roster_the_cure_is_named(town: Town) -> None:
    with pytest.raises(ConfigurationError, match="run under `trainmaster run` or the operator"):
        _ = Directory(town.path).roster


# --- answers that are found later ---


def test_an_answer_may_be_found_later_by_another_thread(town: Town) -> None:
    asked: list[Future[Message]] = []

    def later(caller: Caller, request: Message) -> Message | Future[Message]:
        if caller.rank == 9:
            for future in asked:
                future.set_result(Message("found", {}, request.tensors))
            return Message("told")
        asked.append(Future())
        return asked[-1]

    town.settle(1, later)
    answers: list[Message] = []

    def ask(links: Links) -> None:
        answers.append(links.ask(1, Message("wait"), PATIENCE))

    askers = [threading.Thread(target=ask, args=(town.links(rank),)) for rank in (2, 3)]
    for asker in askers:
        asker.start()
    while len(asked) < len(askers):
        pass
    big = torch.randn(1 << 20)
    assert town.links(9).ask(1, Message("tell", tensors=[big]), PATIENCE).name == "told"
    for asker in askers:
        asker.join()
    assert all(torch.equal(answer.tensors[0], big) for answer in answers)


def test_who_does_not_take_its_answer_holds_up_nobody(town: Town) -> None:
    asked: Future[Message] = Future()

    def later(_caller: Caller, request: Message) -> Message | Future[Message]:
        return asked if request.name == "wait" else Message("told")

    service = town.settle(1, later)
    stubborn = town.links(2).to(1)
    stubborn._connected().send(Message("wait"))  # and does not read
    while service.present != {2}:
        pass
    asked.set_result(Message("huge", {}, [torch.zeros(1 << 24)]))
    for _ in range(SENDERS):
        assert town.links(3).ask(1, Message("tell"), PATIENCE).name == "told"


def test_an_answer_that_cannot_be_found_is_the_services_failure(town: Town) -> None:
    failures: list[Exception] = []
    told = threading.Event()
    asked: Future[Message] = Future()

    def fail(error: Exception) -> None:
        failures.append(error)
        told.set()

    town.settle(1, lambda _caller, _request: asked, failed=fail)
    threading.Timer(0.1, asked.set_exception, [ValueError("no books")]).start()
    with pytest.raises(PeerLostError):
        town.links(0).ask(1, Message("wait"), patience=0, silence=1.0)
    assert told.wait(PATIENCE)
    assert str(failures[0]) == "no books"

"""Agents that have fallen silent: their node may have gone. Nothing is ended for it, but nobody counts on them."""

import asyncio
import dataclasses

from trainmaster.core.observed import Replica
from trainmaster.intake import Intake
from trainmaster.queueing import Key
from trainmaster.wire import messages

from tests.builders import a_death, a_heartbeat, a_replica, evicted
from tests.core.stage import a_running_group, a_stage
from tests.core.test_causes import an_echo
from tests.platforms import clock


def silent(replica: Replica) -> Replica:
    """Its agent has said nothing for a while."""
    return dataclasses.replace(replica, silent_seconds=11.0)


def heard(replica: Replica) -> Replica:
    return dataclasses.replace(replica, silent_seconds=0.1)


def test_a_group_that_gathers_waits_for_a_silent_agent() -> None:
    stage = a_running_group(workers=2).change("worker-1", silent)
    stage.rank_dies("worker-0", an_echo())
    assert (stage.status.phase, stage.told("ReplicasReady")[0]) == ("Restarting", "False")
    assert stage.change("worker-1", heard).obey().status.phase == "Running"
    assert stage.status.attempt == 2


def test_silence_alone_ends_nothing() -> None:
    stage = a_running_group(workers=2)
    orders = dict(stage.orders)
    for key in ("worker-0", "worker-1"):
        stage.change(key, silent)
    assert (stage.wait(3600).status.phase, stage.orders) == ("Running", orders)


def test_silence_while_it_starts_ends_nothing() -> None:
    stage = a_stage(workers=2).settle().call_in()
    assert stage.change("worker-1", silent).status.phase == "Starting"
    assert {orders.verb for orders in stage.orders.values()} == {messages.RUN}


def test_an_elastic_group_goes_on_without_a_silent_worker_and_does_not_grow_for_it() -> None:
    stage = a_running_group(workers=3, elasticity={"minReplicas": 2, "maxReplicas": 3})
    stage.change("worker-1", silent).rank_dies("worker-0", an_echo())
    stage.wait(61).obey("worker-0", "worker-2")
    assert (stage.status.phase, stage.status.absent) == ("Running", ("worker-1",))
    assert stage.wait(3600).status.attempt == 2
    assert stage.change("worker-1", heard).status.attempt == 3


def test_a_silent_spare_takes_no_place() -> None:
    stage = a_running_group(workers=2, scheduling={"spares": 2}).change("worker-2", silent)
    assert stage.told("SparesReady")[0] == "False"
    stage.change("worker-1", evicted)
    assert stage.status.substitutes == {"worker-1": 3}


def test_a_spare_takes_the_place_of_a_silent_worker() -> None:
    stage = a_running_group(workers=2, scheduling={"spares": 1}).change("worker-1", silent)
    stage.rank_dies("worker-0", a_death()).wait(11)
    assert stage.status.substitutes == {"worker-1": 2}


def test_who_is_silent_has_a_minute_to_tell_the_cause_of_an_echo() -> None:
    stage = a_running_group(workers=2, scheduling={"spares": 1}).change("worker-1", silent)
    stage.rank_dies("worker-0", an_echo()).wait(59)
    assert stage.status.substitutes == {}
    assert stage.wait(2).status.substitutes == {"worker-1": 2}
    assert stage.obey().status.phase == "Running"


def test_the_first_word_after_a_silence_is_news() -> None:
    async def spoken() -> list[Key]:
        news: list[Key] = []
        intake, beat = Intake(_trust, news.append), dataclasses.replace(a_heartbeat(), hold=False)
        for number, pause in enumerate((0, 9, 11, 2)):
            await asyncio.sleep(pause)
            silence = intake.heard(a_replica()).silent_seconds
            assert round(silence) == (pause if number else 0)
            await intake._answer(dataclasses.replace(beat, pod_uid=a_replica().uid, sequence=number))
        return news

    assert len(clock.run(spoken())) == 2, "the first word of all, and the one after eleven seconds"


async def _trust(token: str, heartbeat: messages.Heartbeat) -> None:
    """Tokens are the affair of other tests."""

"""Agents that have fallen silent: nobody counts on them, and when more speaks against them they are replaced."""

import asyncio
import dataclasses
from datetime import timedelta

import pytest
from trainmaster.core.decide import decide
from trainmaster.core.states.observed import Observed, Replica
from trainmaster.intake import Intake, Speaker
from trainmaster.queueing import Key
from trainmaster.wire import messages
from trainmaster.wire.agent_states import Verb

from tests.builders import a_death, a_heartbeat, a_replica, evicted
from tests.core.rules.test_causes import an_echo
from tests.core.stage import Stage, a_running_group, a_stage
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
    assert {orders.verb for orders in stage.orders.values()} == {Verb.RUN}


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


def gone(replica: Replica) -> Replica:
    """Silent for longer than is waited for."""
    return dataclasses.replace(replica, silent_seconds=20.0)


def on_a_silent_node(replica: Replica) -> Replica:
    return dataclasses.replace(gone(replica), node_silent=True)


def waiting(stage: Stage, *keys: str, seconds: float = 20.0) -> Stage:
    """A step has been overdue for so long on these."""
    for key in keys:
        ranks = (messages.RankProgress(0, 40, overdue_seconds=seconds),)
        stage.say(key, lambda beat, ranks=ranks: dataclasses.replace(beat, ranks=ranks))  # type: ignore[misc]
    return stage


def test_whose_node_does_not_answer_either_is_lost() -> None:
    """As an eviction is, which costs nothing; long before the cluster evicts."""
    stage = waiting(a_running_group(workers=2).wait(100), "worker-0").change("worker-1", on_a_silent_node)
    (line,) = stage.status.restarts
    assert (line.failure_class, line.replica, line.seconds_to_detect) == ("Disruption", "worker-1", 20)
    assert line.evidence == (
        "NodeSilent: nothing was heard of digits-worker-1-0 for 20 s, and Kubernetes says that its node does not answer"
    )
    assert stage.status.incarnations == {"worker-1": 1}
    assert stage.call_in().obey().status.phase == "Running"
    assert not stage.status.avoided_nodes, "the cluster itself sends nobody there"


def test_a_node_that_does_not_answer_while_its_agents_do_is_left_alone() -> None:
    """The kubelet has gone, and the training goes on."""
    stage = a_running_group(workers=2)
    stage.change("worker-1", lambda replica: dataclasses.replace(heard(replica), node_silent=True))
    assert (stage.wait(3600).status.phase, stage.status.attempt) == ("Running", 1)


def test_whom_all_others_wait_for_is_lost_and_its_node_is_avoided() -> None:
    """A node that died a moment ago is ready in the eyes of the cluster, for a while."""
    stage = waiting(a_running_group(workers=3), "worker-0", "worker-2").change("worker-1", gone)
    (line,) = stage.status.restarts
    assert line.evidence == (
        "AgentCutOff: nothing was heard of digits-worker-1-0 for 20 s, and all others wait for a step to end"
    )
    (avoided,) = stage.status.avoided_nodes
    assert (avoided.node, avoided.until) == ("node-1", stage.now + timedelta(seconds=600))
    assert stage.call_in().obey().status.phase == "Running"


@pytest.mark.parametrize("busy", [0.0, 19.9])
def test_who_is_silent_while_another_trains_is_left_alone(busy: float) -> None:
    stage = waiting(a_running_group(workers=3), "worker-0")
    waiting(stage, "worker-2", seconds=busy).change("worker-1", gone)
    assert (stage.wait(3600).status.phase, stage.status.attempt) == ("Running", 1)


def test_the_limit_is_the_jobs_own() -> None:
    stage = waiting(a_running_group(workers=2, failurePolicy={"nodeLostSeconds": 60}), "worker-0", seconds=60)
    assert stage.change("worker-1", on_a_silent_node).status.attempt == 1
    lost = dataclasses.replace(stage.replica("worker-1"), silent_seconds=60.0)
    assert stage.change("worker-1", lambda _: lost).status.attempt == 2


def test_an_operator_that_hears_nobody_may_be_deaf() -> None:
    """One of the silent is on a node that answers. If all are on nodes that do not, it is the nodes."""
    stage = a_running_group(workers=2).change("worker-0", gone).change("worker-1", on_a_silent_node)
    assert stage.wait(3600).status.attempt == 1
    assert stage.change("worker-0", on_a_silent_node).status.incarnations == {"worker-0": 1, "worker-1": 1}


def test_a_new_operator_gives_everybody_time_to_speak() -> None:
    """And takes for lost who has not used it, if the node does not answer."""
    stage = a_running_group(workers=2)
    stage.change("worker-1", lambda one: dataclasses.replace(one, heartbeat=None, node_silent=True))
    began = stage.now.timestamp()
    for seconds, attempt in ((0, 1), (19, 1), (20, 2)):
        observed = Observed(tuple(stage.replicas.values()), began=began)
        decision = decide(stage.job, observed, stage.now + timedelta(seconds=seconds))
        assert decision.status.attempt == attempt, seconds


def test_what_was_turned_away_is_no_silence() -> None:
    """The API server was away, so its operator heard nobody; and when it is back it may not know the nodes yet."""
    stage = a_running_group(workers=2)
    away = [dataclasses.replace(one, silent_seconds=600.0, node_silent=True) for one in stage.replicas.values()]
    back = stage.now + timedelta(seconds=600)
    for seconds, attempt in ((0, 1), (19, 1), (20, 2)):
        observed = Observed(tuple(away), began=back.timestamp())
        assert decide(stage.job, observed, back + timedelta(seconds=seconds)).status.attempt == attempt, seconds


def test_a_member_that_nobody_waits_for_is_lost_with_its_node_only() -> None:
    stage = waiting(a_running_group(workers=2, strategy={"type": "Gossip"}), "worker-0").change("worker-1", gone)
    assert stage.wait(3600).status.incarnations == {}
    assert stage.change("worker-1", on_a_silent_node).status.incarnations == {"worker-1": 1}
    assert stage.status.attempt == 1


def test_a_spare_whose_node_does_not_answer_is_replaced() -> None:
    stage = a_running_group(workers=2, scheduling={"spares": 1}).change("worker-2", on_a_silent_node)
    assert (stage.status.incarnations, stage.status.attempt) == ({"worker-2": 1}, 1)


def test_the_next_look_is_in_time() -> None:
    stage = a_running_group(workers=2).change("worker-1", silent)
    wake = stage.decide().wake_at
    assert wake is not None
    assert wake <= stage.now + timedelta(seconds=9)


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


def test_who_is_answered_late_is_not_silent_for_that() -> None:
    """Of thousands of agents each one's request is held for longer. A large group must be able to gather."""
    stage = a_stage(workers=2).settle()
    stage.call_in("worker-0")
    stage.replicas["digits-worker-0-0"] = dataclasses.replace(
        stage.replica("worker-0"), silent_seconds=14.0, hold_seconds=7.0
    )
    assert stage.call_in("worker-1").status.phase == "Starting"


@pytest.mark.parametrize(("agents", "limit"), [(1, 10.0), (5000, 15.0)])
def test_the_limit_of_silence_follows_the_hold_that_was_told(agents: int, limit: float) -> None:
    async def life() -> None:
        intake, replica = Intake(_trust, lambda _: None), a_replica()
        for number in range(agents - 1):
            intake.give_orders(f"other-{number}", messages.Orders(Verb.WAIT, 1, ""))
        beat = dataclasses.replace(a_heartbeat(), pod_uid=replica.uid)
        await intake._answer(beat)
        await intake._answer(dataclasses.replace(beat, sequence=2))
        await asyncio.sleep(limit - 0.1 - intake.heard(replica).silent_seconds)
        assert not intake.heard(replica).silent
        await asyncio.sleep(0.2)
        assert intake.heard(replica).silent

    clock.run(life())


def test_nobody_is_lost_while_its_request_may_still_be_held() -> None:
    stage = waiting(a_running_group(workers=2, failurePolicy={"nodeLostSeconds": 10}), "worker-0", seconds=60)
    late = dataclasses.replace(on_a_silent_node(stage.replica("worker-1")), silent_seconds=14.0, hold_seconds=7.0)
    assert stage.change("worker-1", lambda _: late).status.attempt == 1
    assert stage.change("worker-1", lambda one: dataclasses.replace(one, silent_seconds=15.0)).status.attempt == 2


async def _trust(_token: str) -> Speaker:
    """Tokens are the affair of other tests."""
    return Speaker("", lambda _: None)

"""What a pod printed last that is deleted while it runs is kept, as its log goes with it; within bounds."""

import dataclasses

import pytest
from trainmaster.core.report.kept_lines import LONGEST, MOST
from trainmaster.core.states.observed import Ending, Replica

from tests.builders import deleting, ended
from tests.core.stage import Stage, a_running_group


def going(replica: Replica, text: str) -> Replica:
    """As the kubelet reports a deleted pod whose agent has ended: with the end of its log."""
    return deleting(ended(replica, 143, message=text))


def kept(stage: Stage) -> dict[str, tuple[int, str]]:
    return {one.replica: (one.incarnation, one.text) for one in stage.status.last_lines}


@pytest.mark.parametrize("suspend", [True, False])
def test_of_a_pod_that_is_deleted_whoever_does_it(suspend: bool) -> None:
    stage = a_running_group(2)
    last = going(stage.replica("worker-1"), "step 7\nSIGTERM")
    if suspend:
        stage.respec(suspend=True)
        assert not kept(stage), "it has said nothing yet"
        stage.replicas[last.name] = last
        stage.settle()
    else:
        stage.change("worker-1", lambda _: last)
    assert kept(stage) == {"worker-1": (0, "step 7\nSIGTERM")}
    writes = len(stage.writes)
    stage.settle()
    assert len(stage.writes) == writes, "it is told once"


def test_the_newest_of_the_first_replicas_and_so_much_of_each() -> None:
    stage = a_running_group(MOST + 2)
    for index in reversed(range(MOST + 2)):
        stage.change(f"worker-{index}", lambda one: going(one, f"{one.index}" * 5000))
    first = {f"worker-{index}": (0, f"{index}" * LONGEST) for index in range(MOST)}
    assert kept(stage) == first
    newer = dataclasses.replace(stage.replica("worker-1"), incarnation=1)
    for replica in (newer, dataclasses.replace(newer, incarnation=0), dataclasses.replace(newer, role="", index=-1)):
        stage.replicas["passing"] = going(replica, f"again {replica.incarnation}")
        stage.settle()
    assert kept(stage) == first | {"worker-1": (1, "again 1")}


@pytest.mark.parametrize("ending", [Ending(None, "Evicted", "low on memory"), Ending(1, "Error", "a", "fetch")])
def test_what_is_no_end_of_its_log_is_not_kept(ending: Ending) -> None:
    stage = a_running_group(2).change("worker-1", lambda one: dataclasses.replace(going(one, ""), ending=ending))
    assert not kept(stage)


def test_of_a_pod_that_ended_by_itself_the_log_is_there() -> None:
    assert not kept(a_running_group(2).change("worker-1", lambda one: ended(one, 1, message="KeyError")))

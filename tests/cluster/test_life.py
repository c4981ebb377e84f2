"""A job's life on a real API server, from creation to the end, with agents that the test plays."""

import json
import signal
import time
from typing import Any

from trainmaster.core.report.job_status import REFRESH_SECONDS
from trainmaster.wire import names
from trainmaster.wire.agent_states import AgentState
from trainmaster.wire.messages import CheckpointRecord, ErrorReport, ExitReport

from .agents import Agent
from .lab import MERGE_PATCH, Lab


def finish(lab: Lab, agents: list[Agent], step: int = 100) -> dict[str, Any]:
    """All ranks end well."""
    for agent in agents:
        agent.state, agent.step, agent.phase = AgentState.FINISHED, step, "done"
        agent.checkpoint = CheckpointRecord(step, time.time(), "ab" * 32)
        agent.beat()
    return lab.await_phase("Succeeded")


def test_a_job_lives_from_creation_to_success(lab: Lab) -> None:
    lab.submit(workers={"replicas": 2})
    lab.await_pods("digits-worker-0-0", "digits-worker-1-0")
    agents = lab.start_training("digits-worker-0-0", "digits-worker-1-0")
    roster = agents[0].orders.roster if agents[0].orders else None
    assert roster
    assert [member.address for member in roster.members] == [agent.pod["status"]["podIP"] for agent in agents]
    running = lab.await_phase("Running")
    assert running["status"]["replicas"]["summary"] == "2/2"
    done = finish(lab, agents)
    assert done["status"]["progress"]["step"] == 100
    assert done["status"]["checkpoint"]["step"] == 100
    for agent in agents:
        assert agent.await_orders("Exit").exit_code == 0
        lab.patch_pod(agent.pod["metadata"]["name"], {"phase": "Succeeded"})
    event = lab.await_event("AllWorkersFinished")
    assert event["regarding"]["uid"] == done["metadata"]["uid"]
    assert event["reportingController"] == "trainmaster.dev/operator"


def test_a_slow_start_costs_a_write_for_each_third_of_the_group(lab: Lab) -> None:
    """Pending, two of five workers, four of five; the next worker comes after the last write.

    It is counted while the group gathers, since the writes of a start follow from how long this machine takes for it.
    """
    lab.submit(workers={"replicas": 5})
    pods = [f"digits-worker-{index}-0" for index in range(5)]
    lab.await_pods(*pods)
    lab.await_phase("Pending")
    agents: list[Agent] = []
    began = time.monotonic()
    for pod in pods:
        for _ in range(4):  # agents report meanwhile, so none of them is silent
            time.sleep((REFRESH_SECONDS + 0.4) / 4)
            for agent in agents:
                agent.beat()
        gathering = lab.server.audit(lab.namespace)
        agents.append(lab.run_pod(pod))
        agents[-1].beat()
    late = time.monotonic() - began - len(pods) * (REFRESH_SECONDS + 0.4)  # by which some of them fell silent
    assert gathering["patch trainingjobs/status"] <= 3 + int(late), gathering
    lab.train(agents, 1)
    lab.await_phase("Running")
    asked = lab.server.audit(lab.namespace)
    assert (asked["create pods"], asked["create services"]) == (5, 1)


def test_what_a_job_of_four_workers_costs_the_api_server(lab: Lab) -> None:
    """From creation to success: its objects, its phases, a few events, and nothing per heartbeat."""
    storage = {"persistentVolumeClaim": {"claimName": "models"}}  # without one, an event says that the model will go
    began = time.monotonic()
    lab.submit(workers={"replicas": 4}, checkpoint={"storage": storage})
    pods = [f"digits-worker-{index}-0" for index in range(4)]
    lab.await_pods(*pods)
    agents = lab.start_training(*pods)
    lab.await_phase("Running")
    for agent in agents:
        for step in range(1, 50):
            agent.step = step
            agent.beat()
    finish(lab, agents)
    lab.await_event("AllWorkersFinished")
    looks = (time.monotonic() - began) // REFRESH_SECONDS  # on a slow machine there is time for more of them
    while "create events" not in lab.server.audit(lab.namespace) and time.monotonic() < began + 300:
        time.sleep(0.05)  # its line is written a moment after the event is there
    asked = lab.server.audit(lab.namespace)
    assert asked.pop("create pods") == 4
    assert asked.pop("create services") == 1
    assert asked.pop("patch trainingjobs/status") <= 4 + looks  # Pending, Starting, Running, Succeeded
    assert asked.pop("create events") == 1
    assert not asked, "nothing else was asked for"


def test_a_rank_that_dies_is_started_again_in_its_pod(lab: Lab) -> None:
    lab.submit(workers={"replicas": 2})
    lab.await_pods("digits-worker-0-0", "digits-worker-1-0")
    agents = lab.start_training("digits-worker-0-0", "digits-worker-1-0")
    lab.await_phase("Running")
    agents[1].state, agents[1].step = AgentState.FAILED, 7
    agents[1].exit = ExitReport(1, 1, 7, signal="SIGKILL")
    agents[1].beat()
    lab.train(agents, attempt=2)
    again = lab.await_job(lambda job: job["status"]["phase"] == "Running" and job["status"]["attempt"] == 2)
    (entry,) = again["status"]["restarts"]
    assert (entry["class"], entry["replica"], entry["exit"]) == ("Signal", "worker-1 rank 1", "SIGKILL")
    assert [pod["metadata"]["name"] for pod in lab.pods()] == ["digits-worker-0-0", "digits-worker-1-0"]
    lab.await_event("Restarting")


def test_an_error_that_repeats_ends_the_job(lab: Lab) -> None:
    lab.submit()
    lab.await_pods("digits-worker-0-0")
    (agent,) = lab.start_training("digits-worker-0-0")
    for attempt in (1, 2):
        agent.state = AgentState.FAILED
        agent.exit = ExitReport(attempt, 0, 3, exit_code=1, error=ErrorReport("ValueError", "bad batch 17"))
        agent.beat()
        if attempt == 1:
            lab.train([agent], attempt=2)
    failed = lab.await_phase("Failed")
    assert "bad batch" in failed["status"]["message"]
    assert agent.await_orders("Exit").exit_code == 1


def test_a_deleted_pod_is_replaced_and_the_others_stay(lab: Lab) -> None:
    lab.submit(workers={"replicas": 2})
    lab.await_pods("digits-worker-0-0", "digits-worker-1-0")
    first, second = lab.start_training("digits-worker-0-0", "digits-worker-1-0")
    lab.await_phase("Running")
    lab.server.call("DELETE", f"{lab.core}/pods/digits-worker-1-0")
    lab.await_pods("digits-worker-0-0", "digits-worker-1-1")
    lab.train([first, lab.run_pod("digits-worker-1-1")], attempt=2)
    again = lab.await_job(lambda job: job["status"]["phase"] == "Running" and job["status"]["attempt"] == 2)
    assert again["status"]["incarnations"] == {"worker-1": 1}
    assert again["status"]["restarts"][0]["class"] == "ReplicaDeleted"
    lab.remove_pod("digits-worker-1-0")
    second.await_refusal()  # who is gone has no say any more


def test_a_spare_takes_the_place_of_a_pod_that_hangs_in_terminating(lab: Lab) -> None:
    lab.submit(workers={"replicas": 2}, scheduling={"spares": 1})
    lab.await_pods("digits-worker-0-0", "digits-worker-1-0", "digits-worker-2-0")
    spare = lab.run_pod("digits-worker-2-0")
    first, _ = lab.start_training("digits-worker-0-0", "digits-worker-1-0")
    lab.await_phase("Running")
    assert spare.await_orders("Wait").roster is None
    lab.await_job(
        lambda job: ("SparesReady", "True") in [(c["type"], c["status"]) for c in job["status"]["conditions"]]
    )
    lab.server.call("DELETE", f"{lab.core}/pods/digits-worker-1-0")
    lab.train([first, spare], attempt=2)
    again = lab.await_job(lambda job: job["status"]["phase"] == "Running" and job["status"]["attempt"] == 2)
    assert again["status"]["substitutes"] == {"worker-1": 2}
    assert "Spare worker-2 takes the place of worker-1." in again["status"]["restarts"][0]["why"]
    assert lab.pod("digits-worker-1-1")["status"]["phase"] == "Pending", "the replacement was not waited for"
    assert "deletionTimestamp" in lab.pod("digits-worker-1-0")["metadata"]


def test_an_evicted_pod_costs_no_budget(lab: Lab) -> None:
    lab.submit(failurePolicy={"maxRestarts": 0})
    lab.await_pods("digits-worker-0-0")
    lab.start_training("digits-worker-0-0")
    lab.await_phase("Running")
    lab.patch_pod(
        "digits-worker-0-0", {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory"}
    )
    lab.await_job(lambda job: job["status"]["attempt"] == 2)
    entry = lab.job()["status"]["restarts"][0]
    assert (entry["class"], entry["decision"]) == ("Disruption", "Restart")
    assert "low on memory" in entry["evidence"]


def test_a_sidecar_does_not_hold_a_dead_replicas_place(lab: Lab) -> None:
    template = {"spec": {"containers": [{"name": "logs", "image": "shipper:1"}]}}
    lab.submit(workers={"template": template})
    lab.await_pods("digits-worker-0-0")
    lab.start_training("digits-worker-0-0")
    lab.await_phase("Running")
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "containerID": "x"}}
    status = {"name": "trainer", "image": "x", "imageID": "", "ready": False, "restartCount": 0, "state": ended}
    runs: dict[str, Any] = {"running": {}}
    sidecar = {"name": "logs", "image": "x", "imageID": "", "ready": True, "restartCount": 0, "state": runs}
    lab.patch_pod("digits-worker-0-0", {"containerStatuses": [status, sidecar]})
    lab.await_pods("digits-worker-0-1")
    assert lab.job()["status"]["restarts"][0]["class"] == "OutOfMemory"
    assert "deletionTimestamp" in lab.pod("digits-worker-0-0")["metadata"]


def test_suspend_takes_the_pods_away_and_resume_brings_new_ones(lab: Lab) -> None:
    lab.submit()
    lab.await_pods("digits-worker-0-0")
    (agent,) = lab.start_training("digits-worker-0-0")
    lab.await_phase("Running")
    lab.patch_job({"spec": {"suspend": True}})
    lab.await_phase("Suspended")
    lab.await_pods()  # all are on their way out
    lab.remove_pod("digits-worker-0-0")
    agent.await_refusal()  # by now the operator knows
    lab.patch_job({"spec": {"suspend": False}})
    (pod,) = lab.await_pods("digits-worker-0-0")
    lab.train([lab.run_pod(pod["metadata"]["name"])], attempt=2)
    lab.await_phase("Running")


def test_a_job_that_is_made_suspended_may_change_before_anybody_has_seen_it(lab: Lab) -> None:
    lab.operator.signal(signal.SIGSTOP)
    try:
        lab.submit(suspend=True)
        lab.patch_job({"spec": {"suspend": False, "training": {"steps": 7}}})
    finally:
        lab.operator.signal(signal.SIGCONT)
    lab.await_pods("digits-worker-0-0")


def test_another_training_has_to_wait_until_the_job_is_suspended(lab: Lab) -> None:
    """Else an operator that saw only the last of two changes would leave the pods of the old one."""
    lab.submit()
    lab.await_pods("digits-worker-0-0")
    lab.start_training("digits-worker-0-0")
    lab.await_phase("Running")
    another = {"spec": {"suspend": False, "training": {"steps": 7}}}
    lab.operator.signal(signal.SIGSTOP)
    try:
        lab.patch_job({"spec": {"suspend": True}})
        refused = lab.server.try_call("PATCH", f"{lab.jobs}/digits", another, MERGE_PATCH)
    finally:
        lab.operator.signal(signal.SIGCONT)
    assert refused.status == 422
    assert "wait for phase Suspended" in refused.body["message"]
    lab.await_phase("Suspended")
    lab.patch_job(another)
    lab.await_owned("digits-worker-0-1")
    plans = [
        env["value"]
        for env in lab.pod("digits-worker-0-1")["spec"]["containers"][0]["env"]
        if env["name"] == names.ENV_TRAINING
    ]
    assert json.loads(plans[0])["steps"] == 7


def test_a_finished_job_goes_after_its_time(lab: Lab) -> None:
    lab.submit(ttlSecondsAfterFinished=1)
    lab.await_pods("digits-worker-0-0")
    finish(lab, lab.start_training("digits-worker-0-0"))
    lab.await_gone()


def test_a_queue_that_nobody_serves_yet_is_not_jumped(lab: Lab) -> None:
    lab.submit(scheduling={"gang": "Kueue", "queue": "team-a"}, workers={"replicas": 2})
    failed = lab.await_phase("Failed")
    assert failed["status"]["reason"] == "NotYetSupported"
    assert lab.pods() == []
    assert "create pods" not in lab.server.audit(lab.namespace)


def test_more_workers_by_kubectl_scale(lab: Lab) -> None:
    """The scale subresource is served; pods follow the number."""
    lab.submit(workers={"replicas": 1})
    lab.await_pods("digits-worker-0-0")
    lab.patch_job({"spec": {"replicas": 2}}, sub="/scale")
    pods = lab.await_pods("digits-worker-0-0", "digits-worker-1-0")
    assert {pod["metadata"]["labels"][names.LABEL_INDEX] for pod in pods} == {"0", "1"}

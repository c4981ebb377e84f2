"""Whatever dies or is meddled with, a job goes on: operator, API server, watches, status, names."""

import signal

import pytest
from trainmaster.wire import names
from trainmaster.wire.agent_states import AgentState
from trainmaster.wire.messages import ExitReport

from .agents import Agent
from .apiserver import Document
from .lab import MERGE_PATCH, Lab

PODS = ("digits-worker-0-0", "digits-worker-1-0")


def running(lab: Lab) -> list[Agent]:
    """A job of two workers that trains."""
    lab.submit(workers={"replicas": 2})
    lab.await_pods(*PODS)
    agents = lab.start_training(*PODS)
    lab.await_phase("Running")
    return agents


def finish(lab: Lab, agents: list[Agent]) -> Document:
    for agent in agents:
        agent.state, agent.step, agent.phase = AgentState.FINISHED, 100, "done"
        agent.tell()
    return lab.await_phase("Succeeded")


def restart(lab: Lab) -> None:
    """SIGKILL, and a new one."""
    lab.operator.kill()
    lab.operator.ensure()


def same_pods(lab: Lab, before: list[Document]) -> bool:
    """By uid."""
    return [pod["metadata"]["uid"] for pod in lab.pods()] == [pod["metadata"]["uid"] for pod in before]


def test_an_operator_killed_while_training_changes_nothing(lab: Lab) -> None:
    agents = running(lab)
    before, pods = lab.job(), lab.pods()
    restart(lab)
    for agent in agents:
        agent.beat()
    assert agents[0].await_orders("Run", 1).roster is not None
    assert agents[0].orders
    assert agents[0].orders.roster
    assert agents[0].orders.roster.digest == agents[0].digest, "the same orders as before"
    done = finish(lab, agents)
    assert same_pods(lab, pods)
    assert (done["status"]["attempt"], done["status"]["restartCount"]) == (1, 0)
    assert done["status"]["startTime"] == before["status"]["startTime"]


def test_an_operator_killed_before_the_pods_are_up(lab: Lab) -> None:
    lab.submit(workers={"replicas": 2})
    lab.operator.kill()
    lab.operator.ensure()
    lab.await_pods(*PODS)
    restart(lab)
    agents = lab.start_training(*PODS)
    lab.await_phase("Running")
    restart(lab)
    assert finish(lab, agents)["status"]["attempt"] == 1


def test_a_death_while_the_operator_was_away_is_counted_once(lab: Lab) -> None:
    agents = running(lab)
    lab.operator.kill()
    agents[1].state, agents[1].exit = AgentState.FAILED, ExitReport(1, 1, 9, signal="SIGKILL")
    lab.operator.ensure()
    for agent in agents:
        agent.beat()
    lab.train(agents, attempt=2)
    lab.await_job(lambda job: job["status"]["phase"] == "Running" and job["status"]["attempt"] == 2)
    restart(lab)
    done = finish(lab, agents)
    assert (done["status"]["attempt"], done["status"]["restartCount"]) == (2, 1)
    assert len(done["status"]["restarts"]) == 1


def test_a_pod_deleted_while_the_operator_was_away_is_replaced(lab: Lab) -> None:
    first, _ = running(lab)
    lab.operator.kill()
    lab.remove_pod("digits-worker-1-0")
    lab.operator.ensure()
    lab.await_pods("digits-worker-0-0", "digits-worker-1-1")
    lab.train([first, lab.run_pod("digits-worker-1-1")], attempt=2)
    lab.await_job(lambda job: job["status"]["phase"] == "Running" and job["status"]["attempt"] == 2)


def test_an_api_server_that_is_away_does_not_end_training(lab: Lab) -> None:
    """Orders and heartbeats go on; what happened meanwhile is written when it is back."""
    agents = running(lab)
    pods = lab.pods()
    lab.server.stop_server()
    try:
        agents[1].state, agents[1].exit = AgentState.FAILED, ExitReport(1, 1, 9, signal="SIGKILL")
        for agent in agents:
            assert agent.beat().status in (200, 204), "heartbeats are taken while the API server is away"
        assert lab.operator.probe("healthz") == 200
        assert lab.operator.probe("readyz") == 200
        assert agents[0].orders
        assert agents[0].orders.attempt == 1, "nothing is acted on before it is written"
    finally:
        lab.server.start_server()
    lab.train(agents, attempt=2)
    done = finish(lab, agents)
    assert same_pods(lab, pods)
    assert (done["status"]["attempt"], done["status"]["restartCount"]) == (2, 1)


def test_an_operator_that_starts_while_the_api_server_is_away(lab: Lab) -> None:
    agents = running(lab)
    lab.server.stop_server()
    try:
        lab.operator.kill()
        lab.operator.start()
        lab.operator.await_probe("healthz", 200)
        assert lab.operator.probe("readyz") == 503
    finally:
        lab.server.start_server()
    lab.operator.await_ready()
    for agent in agents:
        agent.beat()
    assert finish(lab, agents)["status"]["attempt"] == 1


def test_what_vanished_while_nobody_looked_is_missed(lab: Lab) -> None:
    """The operator sleeps; a pod goes; the API server is restarted, so the watch's version is too old (410)."""
    first, _ = running(lab)
    lab.operator.signal(signal.SIGSTOP)
    try:
        lab.remove_pod("digits-worker-1-0")
        lab.server.stop_server()
        lab.server.start_server()
    finally:
        lab.operator.signal(signal.SIGCONT)
    lab.await_pods("digits-worker-0-0", "digits-worker-1-1")
    lab.train([first, lab.run_pod("digits-worker-1-1")], attempt=2)
    lab.await_job(lambda job: job["status"]["phase"] == "Running" and job["status"]["attempt"] == 2)


def test_a_job_that_was_deleted_and_made_anew_is_another_job(lab: Lab) -> None:
    """The old one's pods are still there, and may be for long: they are strangers, and their names are passed over."""
    running(lab)
    lab.operator.signal(signal.SIGSTOP)
    try:
        lab.server.call("DELETE", f"{lab.jobs}/digits")
        lab.submit(workers={"replicas": 2})
    finally:
        lab.operator.signal(signal.SIGCONT)
    pods = ("digits-worker-0-1", "digits-worker-1-1")
    lab.await_owned(*pods)
    agents = lab.start_training(*pods)
    lab.await_phase("Running")
    for name in PODS:
        lab.remove_pod(name)
    done = finish(lab, agents)
    assert (done["status"]["attempt"], done["status"].get("restarts", [])) == (1, [])
    lab.await_event("ReplicaReplaced")


def _reason(job: Document, kind: str) -> str:
    found = (c["reason"] for c in job.get("status", {}).get("conditions", []) if c["type"] == kind)
    return next(found, "")


def test_a_stranger_s_name_is_passed_over(lab: Lab) -> None:
    spec = {"containers": [{"name": "c", "image": "x"}]}
    lab.server.call("POST", f"{lab.core}/pods", {"metadata": {"name": "digits-worker-0-0"}, "spec": spec})
    lab.submit()
    lab.await_owned("digits-worker-0-1")
    lab.start_training("digits-worker-0-1")
    lab.await_phase("Running")


def test_a_pod_whose_label_was_taken_off_while_the_group_gathers_is_passed_over(lab: Lab) -> None:
    lab.submit(workers={"replicas": 2})
    lab.await_pods(*PODS)
    unlabelled = {"metadata": {"labels": {names.LABEL_JOB: None}}}
    lab.server.call("PATCH", f"{lab.core}/pods/{PODS[1]}", unlabelled, MERGE_PATCH)
    lab.await_owned("digits-worker-1-1")
    lab.start_training(PODS[0], "digits-worker-1-1")
    lab.await_phase("Running")


def test_a_quota_is_told_and_waited_for(lab: Lab) -> None:
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "1"}}}
    lab.server.call("POST", f"{lab.core}/resourcequotas", quota)
    status = {"status": {"hard": {"pods": "1"}, "used": {"pods": "0"}}}
    lab.server.call("PATCH", f"{lab.core}/resourcequotas/none/status", status, "application/merge-patch+json")
    lab.submit(workers={"replicas": 2}, failurePolicy={"startSeconds": 1})
    job = lab.await_job(lambda job: _reason(job, "ReplicasReady") == "QuotaExceeded")
    assert "exceeded quota" in next(c["message"] for c in job["status"]["conditions"] if c["type"] == "ReplicasReady")
    assert len(lab.pods()) == 1
    asked = lab.server.audit(lab.namespace)["create pods"]
    lab.server.call("DELETE", f"{lab.core}/resourcequotas/none")
    lab.await_pods(*PODS)
    assert asked < 10, "a refusal is not an invitation to ask all the time"


def test_a_pod_that_the_api_server_cannot_take_ends_the_job(lab: Lab) -> None:
    lab.submit(workers={"replicas": 1, "memory": "1Gi", "template": {"spec": {"dnsPolicy": "Nonsense"}}})
    failed = lab.await_phase("Failed")
    assert failed["status"]["reason"] == "Invalid"
    assert "dnsPolicy" in failed["status"]["message"]


def test_an_image_that_is_not_there_is_told(lab: Lab) -> None:
    lab.submit(failurePolicy={"startSeconds": 2})
    lab.await_pods("digits-worker-0-0")
    for reason, message in (("ErrImagePull", "not found"), ("ImagePullBackOff", "Back-off")):
        waiting = {"waiting": {"reason": reason, "message": message}}
        container = {
            "name": "trainer",
            "image": "x",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": waiting,
        }
        lab.patch_pod("digits-worker-0-0", {"containerStatuses": [container]})
    job = lab.await_phase("Failed")
    assert job["status"]["reason"] == "ImagePullBackOff"
    assert "spec.workers.image" in job["status"]["message"]


@pytest.mark.parametrize(
    "nonsense",
    [
        {"phase": "Succeeded", "attempt": 1},
        {"phase": "Pending", "attempt": 0, "incarnations": None, "restarts": None},
        {"attempt": 99, "restartCount": 77},
    ],
)
def test_a_status_edited_by_hand_is_no_crash(lab: Lab, nonsense: Document) -> None:
    running(lab)
    lab.patch_job({"status": nonsense}, sub="/status")
    lab.submit("other")
    lab.await_pods_of("other", "other-worker-0-0")
    assert lab.operator.alive


def test_a_finished_job_stays_finished(lab: Lab) -> None:
    agents = running(lab)
    finish(lab, agents)
    for name in PODS:
        lab.remove_pod(name)
    restart(lab)
    lab.submit("other")
    lab.await_pods_of("other", "other-worker-0-0")
    assert lab.pods_of("digits") == []
    assert lab.job()["status"]["phase"] == "Succeeded"


def test_sigterm_ends_it_at_once_and_with_success(lab: Lab) -> None:
    agents = running(lab)
    for agent in agents:
        agent.beat()
    code, seconds = lab.operator.terminate()
    assert code == 0
    assert seconds < 30.0, "what a pod has for its end"
    lab.operator.ensure()
    assert finish(lab, agents)["status"]["attempt"] == 1


def test_nothing_is_left_of_an_operator_but_its_log(lab: Lab) -> None:
    """No finalizer, no annotation: an operator that is uninstalled leaves nobody stuck."""
    running(lab)
    metadata = lab.job()["metadata"]
    assert "finalizers" not in metadata
    assert "annotations" not in metadata

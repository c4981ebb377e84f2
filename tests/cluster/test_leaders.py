"""Two operators at one API server: one leads by its Lease, the other takes over, and never do both write."""

import itertools
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from trainmaster.cluster.reachability import LOOK_SECONDS
from trainmaster.wire.agent_states import AgentState

from .agents import Agent
from .apiserver import ApiServer, Document
from .conftest import SYSTEM, grant, operator_token
from .lab import Lab
from .operator_process import OperatorProcess

PODS = ("digits-worker-0-0", "digits-worker-1-0")
SECONDS = 120.0

Record = Callable[[str, object], None]

_numbers = itertools.count(1)


class Pair:
    """Leader and standby of one namespace."""

    def __init__(self, server: ApiServer, folder: Path, namespace: str) -> None:
        account = f"pair-{next(_numbers)}"
        accounts = f"/api/v1/namespaces/{SYSTEM}/serviceaccounts"
        server.call("POST", accounts, {"metadata": {"name": account}})
        self.path = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"
        server.call("POST", self.path, {"metadata": {"name": account}})
        self.path += f"/{account}"
        self.server = server
        kubeconfig = server.kubeconfig(folder / "kubeconfig", operator_token(server, account))
        lease = f"{SYSTEM}/{account}"
        self.first, self.second = (
            OperatorProcess(_made(folder / name), kubeconfig, namespace, lease=lease, pod=f"{account}-{name}")
            for name in ("first", "second")
        )
        self.lab = Lab(server, self.first, namespace)
        self.account, self.namespace = account, namespace

    def start(self) -> None:
        """The first leads, the second stands by, and both are ready."""
        rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces"
        grant(self.server, self.account, f"{rbac}/{self.namespace}", "Role")
        rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "update"]}
        rules = [
            {**rule, "resourceNames": [self.account]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
        ]
        grant(self.server, self.account, f"{rbac}/{SYSTEM}", "Role", rules)
        spec = {"containers": [{"name": "operator", "image": "operator:test"}], "serviceAccountName": self.account}
        for name in ("first", "second"):
            pod = {"metadata": {"name": f"{self.account}-{name}"}, "spec": spec}
            self.server.call("POST", f"/api/v1/namespaces/{SYSTEM}/pods", pod)
        self.first.ensure()
        self.await_holder("")
        self.second.ensure()

    def tell_pod(self, name: str, ready: str) -> None:
        """What a kubelet says of an operator's pod, or the controller of nodes when that kubelet has gone."""
        told = [{"type": "Ready", "status": ready}, {"type": "ContainersReady", "status": "True"}]
        patch = {"status": {"phase": "Running", "conditions": told}}
        kind = "application/strategic-merge-patch+json"
        path = f"/api/v1/namespaces/{SYSTEM}/pods/{self.account}-{name}/status"
        self.server.call("PATCH", path, patch, kind)

    @property
    def holder(self) -> str:
        """Who has the lease."""
        return str((self.server.call("GET", self.path).get("spec") or {}).get("holderIdentity") or "")

    def await_holder(self, other_than: str) -> tuple[str, float]:
        """Until somebody else has it: who, and after how many seconds."""
        began = time.monotonic()
        while (holder := self.holder) in ("", other_than):
            assert time.monotonic() - began < SECONDS, f"{holder!r} still leads"
            time.sleep(0.02)  # the lease tells nobody
        return holder, time.monotonic() - began

    def await_look(self) -> None:
        """Wait until the first one, which leads, has asked for its own pod, has read the answer and asks again."""
        path, began = f"/api/v1/namespaces/{SYSTEM}/pods/{self.account}-first", time.monotonic()
        asked = [event["requestURI"] for event in self.server.requests("trainmaster-operator")].count(path)
        while [event["requestURI"] for event in self.server.requests("trainmaster-operator")].count(path) < asked + 2:
            assert time.monotonic() - began < SECONDS
            time.sleep(0.1)  # the log of requests tells nobody

    def stop(self) -> None:
        """At the end of the test."""
        for one in (self.first, self.second):
            one.stop()


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.fixture
def pair(server: ApiServer, process: OperatorProcess, tmp_path: Path) -> Iterator[Pair]:
    process.stop()  # it would serve these namespaces too
    pair = Pair(server, tmp_path, f"pair-{next(_numbers)}")
    pair.start()
    yield pair
    pair.stop()


def trains(pair: Pair) -> list[Agent]:
    """A job of two workers that trains, led by the first."""
    pair.lab.submit(workers={"replicas": 2})
    pair.lab.await_pods(*PODS)
    agents = pair.lab.start_training(*PODS)
    pair.lab.await_phase("Running")
    return agents


def turn_to(operator: OperatorProcess, agents: list[Agent]) -> float:
    """Agents call until this one answers, as they do by themselves: the seconds that it took."""
    began = time.monotonic()
    for agent in agents:
        agent.url = operator.url
        while (answer := agent.beat()).status == 421:
            assert time.monotonic() - began < SECONDS
            time.sleep(0.05)  # an agent's own pause
        assert answer.status in (200, 204), answer
    return time.monotonic() - began


def finish(pair: Pair, agents: list[Agent]) -> Document:
    for agent in agents:
        agent.state, agent.step, agent.phase = AgentState.FINISHED, 100, "done"
        agent.tell()
    return pair.lab.await_phase("Succeeded")


def test_the_standby_is_ready_and_sends_agents_to_the_leader(pair: Pair) -> None:
    agents = trains(pair)
    assert pair.second.probe("readyz") == 200
    agents[0].url = pair.second.url
    answer = agents[0].beat()
    assert (answer.status, answer.text) == (421, "another operator leads, or soon will")
    assert pair.lab.server.audit(pair.namespace)["create pods"] == 2, "only one of them acts"


def test_a_leader_that_agents_cannot_reach_leaves_the_lead_once(pair: Pair) -> None:
    """Its kubelet has gone, and its process has not. When all are in the same trouble, the last one leads."""
    for name in ("first", "second"):
        pair.tell_pod(name, "True")
    agents = trains(pair)
    pair.await_look()
    before = pair.holder
    pair.tell_pod("second", "False")
    pair.tell_pod("first", "False")
    pair.await_holder(before)
    turn_to(pair.second, agents)
    pair.first.await_end()
    assert "agents are not led to this operator any more" in pair.first.log.read_text()
    time.sleep(2 * LOOK_SECONDS)
    assert pair.second.alive
    finish(pair, agents)
    pair.server.call("DELETE", f"/api/v1/namespaces/{SYSTEM}/pods/{pair.account}-second")
    pair.second.await_end()


def test_the_leader_killed_under_a_training_job(pair: Pair, record_property: Record) -> None:
    agents = trains(pair)
    before, pods = pair.holder, pair.lab.pods()
    pair.first.kill()
    agents[1].state = AgentState.RUNNING
    _, seconds = pair.await_holder(before)
    gap = turn_to(pair.second, agents)
    record_property("takeover_seconds", round(seconds, 2))
    record_property("heartbeat_gap_seconds", round(seconds + gap, 2))
    assert agents[0].await_orders("Run", 1).roster is not None
    done = finish(pair, agents)
    assert (done["status"]["attempt"], done["status"]["restartCount"]) == (1, 0)
    assert [pod["metadata"]["uid"] for pod in pair.lab.pods()] == [pod["metadata"]["uid"] for pod in pods]


def test_a_leader_that_is_told_to_end_hands_over_at_once(pair: Pair) -> None:
    agents = trains(pair)
    before = pair.holder
    code, _ = pair.first.terminate()
    assert code == 0
    assert pair.holder != before, "it has given up its lease, which would have run out later"
    pair.await_holder(before)
    turn_to(pair.second, agents)
    assert finish(pair, agents)["status"]["attempt"] == 1


def test_a_leader_that_was_stopped_writes_nothing_when_it_wakes(pair: Pair) -> None:
    """Stopped in the middle of its work on many jobs; the other one does that work."""
    before = pair.holder
    stop = threading.Timer(0.4, pair.first.signal, [signal.SIGSTOP])
    stop.start()
    for number in range(40):
        pair.lab.submit(f"job-{number}", workers={"replicas": 3})
    stop.join()
    pair.await_holder(before)
    taken = _holds_since(pair)
    for number in range(40):
        pair.lab.await_pods_of(f"job-{number}", *(f"job-{number}-worker-{index}-0" for index in range(3)))
    pair.first.signal(signal.SIGCONT)
    assert pair.first.wait() == 1, "it starts anew, as a standby"
    late = [event for event in pair.server.requests(f"trainmaster-operator/{before}") if _wrote(event, taken)]
    assert [(event["verb"], event["requestURI"], event["requestReceivedTimestamp"]) for event in late] == []
    assert pair.holder not in ("", before)


def _holds_since(pair: Pair) -> str:
    return str(pair.server.call("GET", pair.path)["spec"]["acquireTime"])


def _wrote(event: Document, since: str) -> bool:
    """A request that changed something; the lease's own, which conflicted, did not."""
    read = event["verb"] in ("get", "list", "watch")
    return not read and event["requestReceivedTimestamp"] >= since and event["responseStatus"]["code"] < 300


def test_an_api_server_that_was_away_finds_the_same_leader(pair: Pair) -> None:
    """Nobody can have taken the lease, and nobody was disturbed."""
    agents = trains(pair)
    pair.second.stop()  # else one of the two leads afterwards, whichever is first
    before = pair.holder
    pair.server.stop_server()
    try:
        deadline = time.monotonic() + SECONDS
        while agents[0].beat().status != 421:
            assert time.monotonic() < deadline, "without its lease it still gives orders"
            time.sleep(0.05)  # nobody tells that the lease ran out
        assert pair.first.probe("healthz") == 200
    finally:
        pair.server.start_server()
    turn_to(pair.first, agents)
    assert pair.holder == before
    done = finish(pair, agents)
    assert (done["status"]["attempt"], done["status"]["restartCount"]) == (1, 0)

"""Who may speak for a replica, with real tokens of a real API server."""

import base64
import json
import time
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from .agents import Agent
from .lab import Lab


@pytest.fixture
def agent(lab: Lab) -> Agent:
    """Of a pod that runs, with its own token."""
    lab.submit()
    lab.await_pods("digits-worker-0-0")
    return lab.run_pod("digits-worker-0-0")


def refused(agent: Agent, why: str, status: int = 401) -> None:
    """401: the token is no good. 403: it is, but not for this. 410: nobody wants its pod, or not any more."""
    answer = agent.beat()
    assert answer.status == status, answer
    assert why in answer.text
    assert agent.orders is None


def parts(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and claims, unverified."""
    header, claims, _ = token.split(".")
    return json.loads(_decoded(header)), json.loads(_decoded(claims))


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _encoded(plain: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(plain).encode()).rstrip(b"=").decode()


def test_its_own_token_is_good(agent: Agent) -> None:
    assert agent.beat().status in (200, 204)
    assert agent.beat(hold=True).status in (200, 204)


def test_no_token(agent: Agent) -> None:
    agent.token = ""
    refused(agent, "no bearer token")


@pytest.mark.parametrize("garbage", ["x", "a.b.c", "....", "e30.e30.e30", "x" * 5000, "\xff.\xff.\xff"])
def test_garbage(agent: Agent, garbage: str) -> None:
    agent.token = garbage
    refused(agent, "token")


@pytest.mark.parametrize("audience", ["https://kubernetes.default.svc", "vault", "trainmaster2"])
def test_another_audience(lab: Lab, agent: Agent, audience: str) -> None:
    agent.token = lab.token(agent.pod, audience)
    refused(agent, "Audience")


def test_a_token_without_a_pod(lab: Lab, agent: Agent) -> None:
    spec = {"audiences": ["trainmaster"], "expirationSeconds": 3600}
    answer = lab.server.call("POST", f"{lab.core}/serviceaccounts/default/token", {"spec": spec})
    agent.token = answer["status"]["token"]
    refused(agent, "not bound to a pod")


def test_a_pod_that_is_no_replica(lab: Lab, agent: Agent) -> None:
    spec = {"containers": [{"name": "c", "image": "x"}]}
    pod = lab.server.call("POST", f"{lab.core}/pods", {"metadata": {"name": "stranger"}, "spec": spec})
    agent.token = lab.token(pod)
    refused(agent, "not a replica", 410)


def test_a_pod_that_nobody_owns_but_has_our_labels(lab: Lab, agent: Agent) -> None:
    metadata = {"name": "impostor", "labels": agent.pod["metadata"]["labels"]}
    spec = {"containers": [{"name": "c", "image": "x"}]}
    pod = lab.server.call("POST", f"{lab.core}/pods", {"metadata": metadata, "spec": spec})
    agent.token = lab.token(pod)
    refused(agent, "not a replica", 410)


def test_a_pod_whose_job_was_deleted_and_left_it(lab: Lab, agent: Agent) -> None:
    """By `kubectl delete --cascade=orphan`; its owner is taken off it only later, by the garbage collector."""
    lab.delete_job_alone()
    assert "is deleted" in agent.await_refusal(status=410)


def test_the_token_of_another_replica(lab: Lab, agent: Agent) -> None:
    lab.submit("other", workers={"replicas": 2})
    lab.await_pods("digits-worker-0-0", "other-worker-0-0", "other-worker-1-0")
    agent.token = lab.token(lab.pod("other-worker-1-0"))
    refused(agent, "may not speak for another job", 403)


LIES: list[tuple[str, Any]] = [
    ("job", "lab-1/other"),
    ("job_uid", "0"),
    ("pod_uid", "0"),
    ("role", "parameterServer"),
    ("index", 1),
    ("incarnation", 1),
]


@pytest.mark.parametrize(("member", "lie"), LIES)
def test_a_replica_that_claims_to_be_another(agent: Agent, member: str, lie: Any) -> None:
    agent.changes = {member: lie}
    refused(agent, f"may not speak for another {member}", 403)


def test_a_token_that_ran_out(lab: Lab, agent: Agent) -> None:
    """Signed with the cluster's own key, and valid but for its time."""
    header, claims = parts(agent.token)
    claims |= {"exp": int(time.time()) - 60, "iat": int(time.time()) - 3660, "nbf": int(time.time()) - 3660}
    key = (lab.server.folder / "service-account.key").read_text()
    agent.token = jwt.encode(claims, key, algorithm="RS256", headers={"kid": header["kid"]})
    refused(agent, "expired")


def test_a_token_that_lasts_for_a_day(lab: Lab, agent: Agent) -> None:
    """Whoever may make pods may project one: by it somebody else could speak for the pod as long."""
    header, claims = parts(agent.token)
    key = (lab.server.folder / "service-account.key").read_text()
    agent.token = jwt.encode({**claims, "exp": claims["iat"] + 86400}, key, "RS256", headers={"kid": header["kid"]})
    refused(agent, "more than an hour")


def test_a_token_of_another_issuer(lab: Lab, agent: Agent) -> None:
    header, claims = parts(agent.token)
    key = (lab.server.folder / "service-account.key").read_text()
    agent.token = jwt.encode({**claims, "iss": "https://elsewhere"}, key, "RS256", headers={"kid": header["kid"]})
    refused(agent, "issuer")


def forged_none(header: dict[str, Any], claims: dict[str, Any]) -> str:
    return f"{_encoded({'alg': 'none', 'kid': header['kid']})}.{_encoded(claims)}."


def forged_no_kid(_: dict[str, Any], claims: dict[str, Any]) -> str:
    return jwt.encode(claims, rsa.generate_private_key(65537, 2048), "RS256")


def forged_own_key(header: dict[str, Any], claims: dict[str, Any]) -> str:
    return jwt.encode(claims, rsa.generate_private_key(65537, 2048), "RS256", headers={"kid": header["kid"]})


def forged_unknown_key(_: dict[str, Any], claims: dict[str, Any]) -> str:
    return jwt.encode(claims, ec.generate_private_key(ec.SECP256R1()), "ES256", headers={"kid": "mine"})


def forged_symmetric(header: dict[str, Any], claims: dict[str, Any]) -> str:
    """The classic: the public key as the secret of a symmetric algorithm."""
    return jwt.encode(
        claims, "the public key, which everybody knows, as it were", "HS256", headers=header | {"alg": "HS256"}
    )


def forged_header_key(header: dict[str, Any], claims: dict[str, Any]) -> str:
    """A token that brings its own key along."""
    key = rsa.generate_private_key(65537, 2048)
    own = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
    return jwt.encode(claims, key, "RS256", headers={"kid": header["kid"], "jwk": own})


FORGERIES = [forged_none, forged_no_kid, forged_own_key, forged_unknown_key, forged_symmetric, forged_header_key]


@pytest.mark.parametrize("forge", FORGERIES)
def test_a_forged_token(agent: Agent, forge: Callable[[dict[str, Any], dict[str, Any]], str]) -> None:
    agent.token = forge(*parts(agent.token))
    refused(agent, "the token")


def test_claims_that_were_changed(agent: Agent) -> None:
    head, body, signature = agent.token.split(".")
    claims = {**json.loads(_decoded(body)), "exp": int(time.time()) + 10**6}
    agent.token = f"{head}.{_encoded(claims)}.{signature}"
    refused(agent, "not valid")


def test_nonsense_in_the_body_is_refused_and_harms_nobody(agent: Agent) -> None:
    assert agent.raw(b"not json").status == 400
    assert agent.raw(b"[" * 100_000).status == 400
    assert agent.raw(b"{}").status == 400
    assert agent.raw(b" " * 2_000_000).status == 413
    assert agent.beat().status in (200, 204)

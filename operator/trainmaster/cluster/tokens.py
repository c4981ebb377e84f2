"""Check which pod sent a heartbeat, by the token that Kubernetes put into that pod.

A projected service-account token is a JWT that the API server signs and binds to a pod. It is checked here against the
cluster's public keys, which each service account may read. So no right for token reviews and no request per agent is
needed. The cryptography is PyJWT's.
"""

import asyncio
import hashlib
import logging
import time
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple

import jwt

from trainmaster.cluster.cache import Cache
from trainmaster.cluster.client import Client, RefusalError
from trainmaster.cluster.jobs import JobRecord
from trainmaster.cluster.pod_reading import PodRecord
from trainmaster.intake import HeartbeatRefusedError, Speaker
from trainmaster.loop import UnavailableError
from trainmaster.wire import names
from trainmaster.wire.messages import Heartbeat

log = logging.getLogger("trainmaster.tokens")

# The algorithms of API servers. Symmetric ones and "none" must not be among them.
ALGORITHMS = ["RS256", "RS384", "RS512", "ES256", "ES384", "ES512"]
KEYS_PATH = "/openid/v1/jwks"
ISSUER_PATH = "/.well-known/openid-configuration"
# Keys are read again now and then, so that a withdrawn key is trusted no longer. They are also read at an unknown
# key id, but not for every bad token.
KEYS_SECONDS = 3600.0
LEAST_SECONDS_BETWEEN = 5.0
LEEWAY_SECONDS = 30.0
MOST_REMEMBERED = 20_000

Claims = dict[str, Any]


class BoundPod(NamedTuple):
    """Hold which pod a token is bound to."""

    namespace: str
    name: str
    uid: str


class Keys:
    """Keep the cluster's issuer and public keys."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._keys: dict[str, jwt.PyJWK] = {}
        self._read = float("-inf")
        self._reading = asyncio.Lock()
        self.issuer = ""

    async def key(self, key_id: str) -> jwt.PyJWK:
        """Return the key of this id.

        Raises:
            RefusedError: there is none.
            UnavailableError: no key could be read yet.
        """
        if key_id not in self._keys or self._age > KEYS_SECONDS:  # a known key does not wait for an unknown one
            async with self._reading:  # calls that come meanwhile wait for the same answer
                if self._age > KEYS_SECONDS or (key_id not in self._keys and self._age > LEAST_SECONDS_BETWEEN):
                    await self._refresh()
        if not self._keys:
            raise UnavailableError("the cluster's public keys could not be read yet")
        if key_id not in self._keys:
            raise HeartbeatRefusedError(
                "the token is signed with a key that is not this cluster's", HTTPStatus.UNAUTHORIZED
            )
        return self._keys[key_id]

    @property
    def _age(self) -> float:
        return time.monotonic() - self._read

    async def _refresh(self) -> None:
        """Read the keys again. If the API server cannot be reached, the old keys stay in use."""
        self._read = time.monotonic()
        try:
            issuer = (await self._client.get(ISSUER_PATH))["issuer"]
            found = jwt.PyJWKSet.from_dict(await self._client.get(KEYS_PATH)).keys
        except (UnavailableError, RefusalError, jwt.PyJWTError, KeyError) as error:
            log.warning("the cluster's public keys cannot be read: %r", error)
            return
        self.issuer, self._keys = issuer, {key.key_id: key for key in found if key.key_id}


class Verifier:
    """Verify tokens for the intake."""

    def __init__(self, keys: Keys, pods: Cache[PodRecord], jobs: Cache[JobRecord]) -> None:
        self._keys = keys
        self._pods = pods
        self._jobs = jobs
        self._known: dict[bytes, tuple[float, BoundPod]] = {}  # until when, and to what; nothing more of the claims

    async def verify(self, token: str) -> Speaker:
        """Return the pod that the token belongs to.

        Raises:
            RefusedError: the token is no good, or its pod is no replica of a job that is there (410).
            UnavailableError: it cannot be checked now.
        """
        namespace, name, uid = await self._pod_of(token)
        record = self._pods.get(namespace, name)
        if record is None or record.replica.uid != uid or not record.job_uid:
            raise HeartbeatRefusedError(
                f"the token's pod {namespace}/{name} is not a replica of a TrainingJob", HTTPStatus.GONE
            )
        job = self._jobs.get(*record.job)
        if job is None or job.uid != record.job_uid:
            raise HeartbeatRefusedError(
                f"the TrainingJob {record.job} of the token's pod {name} is deleted", HTTPStatus.GONE
            )
        return Speaker(uid, partial(_check, record))

    async def _pod_of(self, token: str) -> BoundPod:
        """Return the pod that the token is bound to.

        A signature is checked once, because agents send the same token for up to an hour.
        """
        digest = hashlib.sha256(token.encode(errors="replace")).digest()
        end, pod = self._known.pop(digest, (0.0, None))
        if pod is None or time.time() >= end:
            claims = await self._decode(token)
            end, pod = claims["exp"], _bound_to(claims)
        self._known[digest] = end, pod
        if len(self._known) > MOST_REMEMBERED:
            del self._known[next(iter(self._known))]
        return pod

    async def _decode(self, token: str) -> Claims:
        try:
            key = await self._keys.key(_key_id(token))
            claims: Claims = jwt.decode(
                token,
                key,
                algorithms=ALGORITHMS,
                audience=names.TOKEN_AUDIENCE,
                issuer=self._keys.issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )
        except jwt.PyJWTError as error:
            raise HeartbeatRefusedError(f"the token is not valid: {error}", HTTPStatus.UNAUTHORIZED) from error
        if claims["exp"] - claims["iat"] > names.TOKEN_SECONDS + LEEWAY_SECONDS:
            raise HeartbeatRefusedError("the token lasts for more than an hour", HTTPStatus.UNAUTHORIZED)
        return claims


def _check(record: PodRecord, heartbeat: Heartbeat) -> None:
    """Check that the heartbeat is that of this pod.

    Raises:
        RefusedError: it is not.
    """
    replica = record.replica
    truth = {
        "job": str(record.job),
        "job_uid": record.job_uid,
        "pod_uid": replica.uid,
        "role": replica.role,
        "index": replica.index,
        "incarnation": replica.incarnation,
    }
    for member, value in truth.items():
        if getattr(heartbeat, member) != value:
            raise HeartbeatRefusedError(f"pod {record.job.namespace}/{replica.name} may not speak for another {member}")


def _key_id(token: str) -> str:
    key_id = jwt.get_unverified_header(token).get("kid")
    if not isinstance(key_id, str):
        raise HeartbeatRefusedError("the token does not name its key", HTTPStatus.UNAUTHORIZED)
    return key_id


def _bound_to(claims: Claims) -> BoundPod:
    """Return the pod that the token is bound to.

    Raises:
        RefusedError: it is bound to none.
    """
    bound = claims.get("kubernetes.io")
    pod = bound.get("pod") if isinstance(bound, dict) else None
    if not isinstance(bound, dict) or not isinstance(pod, dict):
        raise HeartbeatRefusedError("the token is not bound to a pod", HTTPStatus.UNAUTHORIZED)
    return BoundPod(str(bound.get("namespace")), str(pod.get("name")), str(pod.get("uid")))

"""Run `trainmaster operator`, in a cluster or beside one (KUBECONFIG).

What agents call and which image they run comes from the environment, because Kubernetes knows it best:

    TRAINMASTER_URL                      where agents call in; else the Service named trainmaster in our namespace
    TRAINMASTER_SERVICE_HOST, _PORT      set by Kubernetes for that Service
    TRAINMASTER_TRAINER_IMAGE            the image of replicas that name none
    TRAINMASTER_AGENT_IMAGE              the image that brings the agent to replicas with an image of their own
    TRAINMASTER_TRAINER_PULL_POLICY      when to pull both
    TRAINMASTER_JOB_NETWORK_POLICY       not empty: each job gets a NetworkPolicy, which only its own pods pass
    TRAINMASTER_DEFAULT_STORAGE          as spec.checkpoint.storage in JSON, for jobs that name none
    TRAINMASTER_POD                      our own pod, in the namespace of the lease
    TRAINMASTER_LOG_LEVEL                DEBUG, INFO (default), WARNING, ...
"""

import argparse
import json
import logging
import os
import sys
from collections.abc import Mapping

from trainmaster.api.document import load
from trainmaster.api.policies import Storage
from trainmaster.cli.terminal import complain
from trainmaster.cluster import kopf_handlers
from trainmaster.cluster.api_connection import bracketed
from trainmaster.cluster.controller import Address, OperatorOptions
from trainmaster.cluster.manifests import PodSettings
from trainmaster.log_rate import LogRateFilter
from trainmaster.queueing import Key
from trainmaster.wire import names
from trainmaster.wire.printable import OneLineFormatter

DEFAULT_TRAINER_IMAGE = "trainmaster/trainer:dev"


def run(options: argparse.Namespace) -> int:
    """Run the operator until it is told to stop, and return the exit code."""
    try:
        log(os.environ.get("TRAINMASTER_LOG_LEVEL") or "INFO")
        listen, probes, readiness = (
            Address.parse(text) for text in (options.listen, options.probes, options.readiness)
        )
        metrics = Address.parse(options.metrics) if options.metrics else None
        lease = _lease(options.lease)
        settings = pod_settings(os.environ, listen)
    except ValueError as error:
        complain(f"trainmaster operator: {error}")
        return 2
    pod = os.environ.get("TRAINMASTER_POD")
    own = Key(lease.namespace, pod) if lease and pod else None
    return kopf_handlers.run(
        OperatorOptions(settings, tuple(options.namespace), lease, own, listen, probes, readiness, metrics)
    )


def log(level: str) -> None:
    """Log to standard error, each record as one line.

    Raises:
        ValueError: there is no such level.
    """
    known = logging.getLevelNamesMapping()
    if level.upper() not in known:
        raise ValueError(f"TRAINMASTER_LOG_LEVEL={level} is no level; it is one of {', '.join(known)}")
    form = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLineFormatter(form))
    logging.basicConfig(level=known[level.upper()], handlers=[handler])
    logging.getLogger("aiohttp.server").addFilter(LogRateFilter())  # anyone can send it bad HTTP, without a token


def _lease(text: str) -> Key | None:
    """Return the lease that `namespace/name` names; None for an empty text.

    Raises:
        ValueError: the text is not NAMESPACE/NAME.
    """
    if not text:
        return None
    namespace, slash, name = text.partition("/")
    if not (slash and namespace and name):
        raise ValueError(f"--lease {text!r} is not NAMESPACE/NAME")
    return Key(namespace, name)


def pod_settings(environment: Mapping[str, str], listen: Address) -> PodSettings:
    """Return from the environment what is the same for all pods.

    Raises:
        ValueError: a variable is wrong.
    """
    return PodSettings(
        operator_url=_url(environment, listen),
        trainer_image=environment.get("TRAINMASTER_TRAINER_IMAGE") or DEFAULT_TRAINER_IMAGE,
        pull_policy=environment.get("TRAINMASTER_TRAINER_PULL_POLICY") or None,
        agent_image=environment.get("TRAINMASTER_AGENT_IMAGE") or PodSettings.agent_image,
        network_policy=bool(environment.get("TRAINMASTER_JOB_NETWORK_POLICY")),
        default_storage=_default_storage(environment.get("TRAINMASTER_DEFAULT_STORAGE", "")),
    )


def _default_storage(text: str) -> Storage | None:
    """Return the storage of jobs that name none, checked as if a job named it; None for an empty text.

    Raises:
        ValueError: it is none, or no place that many jobs can share.
    """
    if not text:
        return None
    spec = {"strategy": {"type": "OneDevice"}, "training": {"task": "a:B", "steps": 1, "globalBatchSize": 1}}
    try:
        spec["checkpoint"] = {"storage": json.loads(text)}
    except ValueError as error:
        raise ValueError(f"TRAINMASTER_DEFAULT_STORAGE is no JSON: {error}") from None
    document = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": "x"}, "spec": spec}
    job = load(json.dumps(document))
    if isinstance(job, list):
        raise ValueError(f"TRAINMASTER_DEFAULT_STORAGE: {job[0].path}: {job[0].message}. {job[0].cure}")  # noqa: TRY004
    storage = job.spec.checkpoint.storage
    if storage is None or storage.path:
        raise ValueError("TRAINMASTER_DEFAULT_STORAGE names a claim or an object store; jobs would share one path")
    return storage


def _url(environment: Mapping[str, str], listen: Address) -> str:
    """Return the URL for agents: TRAINMASTER_URL, else the Service's address (without DNS), else `listen`."""
    if environment.get("TRAINMASTER_URL"):
        return environment["TRAINMASTER_URL"]
    host = environment.get("TRAINMASTER_SERVICE_HOST") or listen.host
    port = environment.get("TRAINMASTER_SERVICE_PORT") or listen.port
    return f"http://{bracketed(host)}:{port}"

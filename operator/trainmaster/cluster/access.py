"""Reach a cluster as the user who gives a command: by the user's own kubeconfig, and with no right more.

The official client reads the kubeconfig, with its contexts and the programs that log in. What fails becomes one
sentence for the user.
"""

import json
import logging
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import urllib3
import yaml
from kubernetes import client, config

from trainmaster.api.rules.rule import SUBDOMAIN
from trainmaster.wire import names
from trainmaster.wire.printable import printable

Document = dict[str, Any]

JSON, MERGE_PATCH = "application/json", "application/merge-patch+json"
_SECONDS = (10.0, 60.0)  # to connect, and to answer
_TRIES, _PAUSE_SECONDS = 4, 0.5
_TOO_MANY = 429  # the request was not looked at
_ABSENT = 404
_MOST_SAID = 2000
_PAGE = 500
_DEFAULT_KUBECONFIG = "~/.kube/config"


class AccessError(Exception):
    """The cluster cannot be reached, or says no. The text says why; `status` is that of HTTP, 0 without an answer."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class _Request:
    method: str
    path: str
    body: Document | None
    query: Document
    kind: str
    seconds: tuple[float, float | None] = _SECONDS


class Access:
    """One cluster and one namespace of it."""

    def __init__(self, context: str | None = None, namespace: str | None = None) -> None:
        self._said = _Said()
        logging.getLogger().addHandler(self._said)  # a program that logs in fails in the log alone
        try:
            self._api, there = _connect(context)
        except (config.ConfigException, OSError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
            raise AccessError(f"the kubeconfig ({_path()}) cannot be used: {_short(error)}") from None
        finally:
            logging.getLogger().removeHandler(self._said)
        self.namespace = namespace or there

    @property
    def core(self) -> str:
        """Return the path of pods, ConfigMaps and the like in the namespace."""
        return f"/api/v1/namespaces/{quote(self.namespace, safe='')}"

    @property
    def jobs(self) -> str:
        """Return the path of the TrainingJobs in the namespace."""
        return f"/apis/{names.API_VERSION}/namespaces/{quote(self.namespace, safe='')}/{names.PLURAL}"

    def job(self, name: str) -> Document:
        """Return a TrainingJob as it is now.

        Raises:
            AccessError: there is none of this name, or the cluster does not answer.
        """
        return self.call("GET", self.job_path(name))

    def job_path(self, name: str) -> str:
        """Return the path of a TrainingJob. Without a name it would be that of all: what is none is refused.

        Raises:
            AccessError: no job can have this name.
        """
        if not re.fullmatch(SUBDOMAIN, name):
            raise AccessError(f"{printable(name, _MOST_SAID) or 'an empty word'} cannot be the name of a job", _ABSENT)
        return f"{self.jobs}/{name}"

    def listed(self, path: str) -> Iterator[Document]:
        """Yield all objects of a kind, however many there are.

        Raises:
            AccessError: the cluster refuses, or cannot be reached.
        """
        query: Document = {"limit": _PAGE}
        while True:
            page = self.call("GET", path, query=query)
            yield from page["items"]
            if not (token := page["metadata"].get("continue")):
                return
            query = {"limit": _PAGE, "continue": token}

    def call(
        self, method: str, path: str, body: Document | None = None, query: Document | None = None, kind: str = JSON
    ) -> Document:
        """Return the answer to one request. It is tried again where that can change nothing twice.

        Raises:
            AccessError: see there.
        """
        for attempt in range(_TRIES):
            try:
                content = self._open(_Request(method, path, body, query or {}, kind)).data
                break
            except AccessError as error:
                if error.status == _ABSENT and path.startswith(self.jobs):
                    self.check_namespace()
                again = error.status == _TOO_MANY or (not error.status and method == "GET")
                if not again or attempt == _TRIES - 1:
                    raise
                time.sleep(_PAUSE_SECONDS * 2**attempt)
            except urllib3.exceptions.HTTPError as error:  # within the answer
                raise AccessError(f"the cluster has cut off its answer: {_short(error)}") from None
        try:
            answer: Document = json.loads(content)
        except ValueError:
            raise AccessError(f"{self._server} does not answer as an API server does") from None
        return answer

    def check_namespace(self) -> None:
        """Do nothing if the namespace is there, or nobody says that it is not: the API server lists none of nothing.

        Raises:
            AccessError: there is no such namespace.
        """
        try:
            self._open(_Request("GET", self.core, None, {}, JSON))
        except AccessError as error:
            if error.status == _ABSENT:
                raise

    def stream(self, path: str, query: Document, silence: float | None = None) -> Iterator[bytes]:
        """Yield what comes, as it comes, until the cluster ends it, or says nothing for so many seconds.

        Raises:
            AccessError: the request is refused, or the connection breaks.
        """
        response = self._open(_Request("GET", path, None, query, JSON, (_SECONDS[0], silence)))
        try:
            yield from response.stream(1 << 16)
        except urllib3.exceptions.HTTPError as error:
            raise AccessError(f"the connection to the cluster broke: {_short(error)}") from None
        finally:
            response.close()

    @property
    def _server(self) -> str:
        return str(self._api.configuration.host)

    def _open(self, request: "_Request") -> Any:
        asked = self._api.param_serialize(
            request.method,
            request.path,
            query_params=list(request.query.items()),
            header_params={"Accept": "application/json, text/plain", "Content-Type": request.kind},
            body=request.body,
            auth_settings=["BearerToken"],
        )
        try:
            response = self._api.call_api(*asked, _request_timeout=request.seconds).response
            if response.status >= 400:  # noqa: PLR2004 as HTTP has it
                raise self._refused(response.status, response.data)
        except (client.ApiException, urllib3.exceptions.HTTPError, OSError) as error:
            raise AccessError(f"{self._server} cannot be reached: {_short(error)}") from None
        return response

    def _refused(self, status: int, content: bytes) -> AccessError:
        try:
            answer = json.loads(content)
        except ValueError:
            answer = {}
        told = answer if isinstance(answer, dict) else {}
        said = str(told.get("message") or content[:_MOST_SAID].decode(errors="replace").strip() or f"status {status}")
        return AccessError(_words(status, said, told.get("details"), self) or said[:_MOST_SAID], status)

    @property
    def login_trouble(self) -> str:
        """Return what a program that logs in has complained of."""
        return f" ({self._said.last})" if self._said.last else ""


def _words(status: int, said: str, details: Any, access: Access) -> str:
    """Return better words for what an API server says; empty where its own are good."""
    kind = details.get("kind") if isinstance(details, dict) else None
    if status == 401:  # noqa: PLR2004 as HTTP has it
        return (
            f"the cluster does not accept your credentials{access.login_trouble}: they have expired, or the "
            "kubeconfig is of another cluster. Log in again"
        )
    if status == 403 and "system:anonymous" in said:  # noqa: PLR2004
        return f"the kubeconfig has no credentials that the cluster knows{access.login_trouble}. Log in again"
    if status == 404 and kind == "namespaces":  # noqa: PLR2004
        return f"there is no namespace {access.namespace}; name another with --namespace"
    if status == 404 and kind == names.PLURAL:  # noqa: PLR2004
        return f"there is no job {details.get('name')} in namespace {access.namespace}"
    if status == 404 and (kind is None or "could not find the requested resource" in said):  # noqa: PLR2004
        return "Trainmaster is not installed in this cluster: it has no TrainingJobs (see the chart)"
    return ""


def _connect(context: str | None) -> tuple[Any, str]:
    """Return a client of the context's cluster, or of the one that this pod is in, and the context's namespace."""
    try:
        contexts, active = config.list_kube_config_contexts(_path())  # type: ignore[no-untyped-call]
    except config.ConfigException:
        if context is not None or "KUBERNETES_SERVICE_HOST" not in os.environ:
            raise
        settings = client.Configuration()
        config.load_incluster_config(settings)  # type: ignore[no-untyped-call]
        return client.ApiClient(settings), "default"
    chosen = active if context is None else next((one for one in contexts if one["name"] == context), None)
    if chosen is None:
        known = ", ".join(sorted(one["name"] for one in contexts))
        raise config.ConfigException(f"it has no context {context}; it has {known}")
    settings = client.Configuration()
    settings.retries = False  # ours are in one place, and nothing is sent twice without being asked
    api = config.new_client_from_config(_path(), context, client_configuration=settings)  # type: ignore[no-untyped-call]
    return api, chosen["context"].get("namespace") or "default"


def _path() -> str:
    return os.environ.get("KUBECONFIG") or _DEFAULT_KUBECONFIG  # the client reads the variable only at its import


def _short(error: BaseException) -> str:
    if isinstance(error, config.ConfigException) and "No configuration found" in str(error):
        return "it is not there, or names no cluster"
    return printable(f"{error}" or type(error).__name__, _MOST_SAID)


class _Said(logging.Handler):
    """Keep the last error that was logged."""

    last = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        self.last = printable(record.getMessage(), _MOST_SAID)

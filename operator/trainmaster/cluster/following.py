"""Follow a job and the logs of its pods, from one incarnation to the next, until there is nothing more to come."""

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from trainmaster.api.job_states import TERMINAL
from trainmaster.cluster.access import Access, AccessError, Document
from trainmaster.wire import names

LONGEST_LINE = 1 << 16
"""Bytes of a line of a log that are kept: a program may print megabytes without an end of line."""
_WATCH_SECONDS, _PAUSE_SECONDS, _PATIENCE_SECONDS = 300, 1.0, 60.0
_GONE, _TOO_OLD, _NOT_YET = 404, 410, 400


def states(access: Access, name: str, until: float | None = None) -> Iterator[Document | None]:
    """Yield the job as it is, and after every change; None when it is `until` (time.monotonic()).

    Raises:
        AccessError: it is deleted, or the cluster has not been reached for a minute.
    """
    access.job_path(name)  # is one
    seen, version, lost = None, "", None
    while True:
        if until is not None and time.monotonic() >= until:
            yield None
        try:
            if not version:
                listed = access.call("GET", access.jobs, query={"fieldSelector": f"metadata.name={name}"})
                version, lost = listed["metadata"]["resourceVersion"], None
                _check_there(access, listed["items"], name, was_there=seen is not None)
                if listed["items"][0] != seen:
                    yield (seen := listed["items"][0])
            for event in _watched(access, name, version, until):
                lost = None
                if event["type"] == "DELETED":
                    raise _gone(name, was_there=True)
                seen, version = event["object"], event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    yield seen
        except AccessError as error:
            lost = lost or time.monotonic()
            if error.status not in (0, _TOO_OLD) or time.monotonic() - lost > _PATIENCE_SECONDS:
                raise
            version = ""
            time.sleep(_PAUSE_SECONDS)


def _watched(access: Access, name: str, version: str, until: float | None) -> Iterator[Document]:
    seconds = _WATCH_SECONDS if until is None else max(1, min(_WATCH_SECONDS, int(until - time.monotonic())))
    query = {"watch": "true", "fieldSelector": f"metadata.name={name}", "resourceVersion": version}
    # A connection that is gone (a laptop has slept) is silent for ever; the server ends a watch that is not.
    watch = access.stream(access.jobs, {**query, "timeoutSeconds": seconds}, seconds + _PATIENCE_SECONDS)
    for line in whole_lines(watch):
        event = json.loads(line)
        if event["type"] == "ERROR":
            raise AccessError(str(event["object"].get("message")), event["object"].get("code", 0))
        yield event


def _check_there(access: Access, items: list[Document], name: str, *, was_there: bool) -> None:
    if not items:
        access.check_namespace()
        raise _gone(name, was_there=was_there)


def _gone(name: str, *, was_there: bool) -> AccessError:
    return AccessError(f"job {name} was deleted" if was_there else f"there is no job {name} in this namespace", _GONE)


def whole_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines of any length."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    if rest:
        yield rest


def lines_of(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines, of which at most LONGEST_LINE bytes are kept, whatever their length is."""
    line, cut = bytearray(), False
    for chunk in chunks:
        parts = chunk.split(b"\n")
        for number, part in enumerate(parts):
            if number:
                yield bytes(line) + (b"..." if cut else b"")
                line, cut = bytearray(), False
            room = LONGEST_LINE - len(line)
            cut = cut or len(part) > room
            line += part[:room]
    if line:
        yield bytes(line) + (b"..." if cut else b"")


@dataclass(frozen=True)
class FollowedReplica:
    """One member of a role, whatever the number of its pod."""

    role: str
    index: int

    @property
    def key(self) -> str:
        """Return its name over all its incarnations."""
        return names.replica_key(self.role, self.index)


def pods_of(access: Access, job: str) -> dict[FollowedReplica, list[str]]:
    """Return the names of a job's pods that are there, by replica, the newest last."""
    found = access.call("GET", f"{access.core}/pods", query={"labelSelector": f"{names.LABEL_JOB}={job}"})["items"]
    made: dict[FollowedReplica, list[tuple[int, str]]] = {}
    for pod in found:
        labels = pod["metadata"]["labels"]
        numbers = [labels.get(name, "") for name in (names.LABEL_INDEX, names.LABEL_INCARNATION)]
        if names.LABEL_ROLE in labels and all(number.isdigit() for number in numbers):
            place = FollowedReplica(labels[names.LABEL_ROLE], int(numbers[0]))
            made.setdefault(place, []).append((int(numbers[1]), pod["metadata"]["name"]))
    in_order = sorted(made, key=lambda place: (place.role != names.WORKER, place.index))
    return {place: [name for _, name in sorted(made[place])] for place in in_order}


def log_of(access: Access, pod: str, tail: int | None = None) -> Iterator[bytes]:
    """Yield the lines that a pod has written so far.

    Raises:
        AccessError: it has none yet, or has gone.
    """
    query: dict[str, Any] = {"container": names.MAIN_CONTAINER, **({"tailLines": tail} if tail is not None else {})}
    yield from lines_of(access.stream(f"{access.core}/pods/{pod}/log", query))


def followed(access: Access, job: str, place: FollowedReplica, tail: int | None = None) -> Iterator[bytes]:
    """Yield what a replica writes, over all its pods from the present one on, until the job has ended.

    Raises:
        AccessError: the job is deleted, or the cluster cannot be reached.
    """
    reader = _LogReader(access, tail)
    while True:
        pods = pods_of(access, job).get(place, [])
        ended = (access.job(job).get("status") or {}).get("phase") in TERMINAL
        if pods:
            yield from reader.read(pods[-1], follow=not ended)
        if ended:
            return
        time.sleep(_PAUSE_SECONDS)  # until the next pod is there, or the connection again


class _LogReader:
    """Read logs so that a broken connection loses no line and repeats none, as each has its time."""

    def __init__(self, access: Access, tail: int | None) -> None:
        self._access = access
        self._tail = tail
        self._pod = ""
        self._since = ""  # the time of the last line

    def read(self, pod: str, *, follow: bool) -> Iterator[bytes]:
        """Yield what is new."""
        query: dict[str, Any] = {"container": names.MAIN_CONTAINER, "timestamps": "true"}
        query |= {"follow": "true"} if follow else {}
        if pod != self._pod:
            query |= {"tailLines": self._tail} if self._tail is not None and not self._pod else {}
            self._pod, self._since = pod, ""
        elif self._since:
            query["sinceTime"] = self._since
        seen = self._since
        try:
            for line in lines_of(self._access.stream(f"{self._access.core}/pods/{pod}/log", query)):
                stamp, _, said = line.partition(b" ")
                time_of = stamp.decode(errors="replace")
                if not seen or time_of > seen:
                    self._since = time_of
                    yield said
        except AccessError as error:
            if error.status not in (0, _NOT_YET, _GONE):
                raise

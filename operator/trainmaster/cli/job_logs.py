"""Run `trainmaster logs NAME`: what the ranks of a job or a run print, one replica's or all of them."""

import argparse
import queue
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from trainmaster.api.job import TrainingJob
from trainmaster.api.status import TrainingJobStatus
from trainmaster.api.status_of_pods import LastLines
from trainmaster.cli.cluster import EXIT_CLUSTER, EXIT_GOOD, EXIT_INVALID
from trainmaster.cli.targets import LocalRun, answer, find_local
from trainmaster.cli.terminal import complain, tell_of_a_log
from trainmaster.cluster.access import Access, AccessError, Document
from trainmaster.cluster.following import FollowedReplica, followed, lines_of, log_of, pods_of
from trainmaster.wire import names
from trainmaster.wire.files import open_to_read

_PAUSE_SECONDS = 0.3
_MOST_AT_ONCE = 64

Lines = Iterator[bytes]


class NoLogError(Exception):
    """There is no such log. The text says why, and which there are."""


def logs(options: argparse.Namespace) -> int:
    """Run the command, and return its exit code."""
    try:
        local = find_local(options.name, options)
        sources = _of_run(local, options) if local else _of_job(options)
        if options.history:
            _one_after_another(sources)
        else:
            _show(options.name, sources)
    except AccessError as error:
        complain(f"trainmaster logs: {answer(error, options)}")
        return EXIT_CLUSTER
    except NoLogError as error:
        complain(f"trainmaster logs: {options.name}: {error}")
        return EXIT_INVALID
    return EXIT_GOOD


def _show(name: str, sources: dict[str, Callable[[], Lines]]) -> None:
    if len(sources) > _MOST_AT_ONCE:
        raise NoLogError(f"there are {len(sources)} replicas, and {_MOST_AT_ONCE} logs at once are the most: --rank N")
    if len(sources) > 1:
        _together(sources)
        return
    is_empty = True
    for source in sources.values():
        for line in source():
            is_empty = False
            tell_of_a_log(line.decode(errors="replace"))
    if is_empty:  # of a pod without a node, the API server gives an empty log
        complain(f"trainmaster logs: {name} has printed nothing so far; trainmaster status {name} tells what it does")


def _one_after_another(sources: dict[str, Callable[[], Lines]]) -> None:
    """Show several logs in their order, each line after the name of its replica and the number of its pod."""
    width = max(map(len, sources))
    for name, source in sources.items():
        try:
            for line in source():
                tell_of_a_log(f"{name.ljust(width)} | {line.decode(errors='replace')}")
        except AccessError as error:  # it has not started, or has just gone; the others have their logs
            complain(f"{name}: {error}")


def _together(sources: dict[str, Callable[[], Lines]]) -> None:
    """Show several logs as they come, each line after the name of its replica."""
    width = max(map(len, sources))
    waiting: queue.Queue[tuple[str, bytes | AccessError | None]] = queue.Queue(1000)

    def read(name: str, source: Callable[[], Lines]) -> None:
        try:
            for line in source():
                waiting.put((name, line))
            waiting.put((name, None))
        except AccessError as error:
            waiting.put((name, error))

    for name, source in sources.items():
        threading.Thread(target=read, args=(name, source), daemon=True).start()
    left = len(sources)
    while left:
        name, line = waiting.get()
        if isinstance(line, bytes):
            tell_of_a_log(f"{name.ljust(width)} | {line.decode(errors='replace')}")
            continue
        left -= 1
        if line is not None:
            complain(f"{name}: {line}")


def _of_job(options: argparse.Namespace) -> dict[str, Callable[[], Lines]]:
    access = Access(options.context, options.namespace)
    document = access.job(options.name)
    status = TrainingJobStatus.read(document.get("status"))
    pods = pods_of(access, options.name)
    places = [place_of_rank(document, options.rank or 0)]
    if options.all:
        places = list(pods)
        if options.history or options.follow or not pods:  # who has no pod now had one, or may have one soon
            spec = TrainingJob.parse({**document, "status": None}).spec
            members = [
                FollowedReplica(role, at) for role, replicas in spec.roles.items() for at in range(replicas.replicas)
            ]
            places = list(dict.fromkeys([*members, *pods]))  # spares are in the pods alone
    if not pods and not options.follow and not status.last_lines:
        raise NoLogError(f"the job has no pods now, and logs go with the pods{_last_words(status)}")
    if options.history or (options.all and not pods and not options.follow):
        return _history(access, status, places, pods)
    return {place.key: _source(access, options, place, pods.get(place, []), status) for place in places}


def _history(
    access: Access, status: TrainingJobStatus, places: list[FollowedReplica], pods: dict[FollowedReplica, list[str]]
) -> dict[str, Callable[[], Lines]]:
    """Return what there is of all pods of these replicas, oldest first, and name those of which nothing is left."""
    kept = {line.replica: line for line in status.last_lines}
    found: dict[str, Callable[[], Lines]] = {}
    for place in places:
        gone = []
        there = {int(name.rpartition("-")[2]): name for name in pods.get(place, [])}
        for number in range(status.incarnations.get(place.key, 0) + 1):
            name = f"{place.key}-{number}"
            if place.key in kept and kept[place.key].incarnation == number:
                found[f"{name} (its end)"] = partial(_lines_of, kept[place.key])
            elif number not in there:
                gone.append(name)
            if number in there:
                found[name] = partial(log_of, access, there.pop(number))
        found |= {f"{place.key}-{number}": partial(log_of, access, name) for number, name in sorted(there.items())}
        if gone:
            words = _last_words(status, place.key)
            complain(f"{', '.join(gone)}: no such pod is there any more, and its log went with it{words}")
    if not found:
        raise NoLogError("nothing of these pods is left")
    return found


def _lines_of(kept: LastLines) -> Lines:
    return iter(kept.text.encode(errors="replace").split(b"\n"))


def _source(
    access: Access, options: argparse.Namespace, place: FollowedReplica, pods: list[str], status: TrainingJobStatus
) -> Callable[[], Lines]:
    if options.previous:
        if len(pods) < 2:  # noqa: PLR2004 the present one, and one before it
            raise NoLogError(
                f"of {place.key} there is no earlier pod; its log went with it, or it was never replaced"
                f"{_last_words(status, place.key)}"
            )
        return lambda: log_of(access, pods[-2], options.tail)
    if options.follow:
        return lambda: followed(access, options.name, place, options.tail)
    if pods:
        return lambda: log_of(access, pods[-1], options.tail)
    kept = next((one for one in status.last_lines if one.replica == place.key), None)
    if kept is None:
        raise NoLogError(f"{place.key} has no pod now, and its log was in the pod{_last_words(status, place.key)}")
    complain(f"{place.key} has no pod now, and its log went with it; these are the last lines (.status.lastLines):")
    return partial(_lines_of, kept)


def _last_words(status: TrainingJobStatus, key: str = "") -> str:
    """Return what the ledger has kept of the newest failure (of one replica), where the log itself is gone."""
    kept = [record for record in status.restarts if record.evidence and key in ("", record.replica)]
    return f". Of the failure at step {kept[-1].step} the ledger has: {kept[-1].evidence}" if kept else ""


def place_of_rank(document: Document, rank: int) -> FollowedReplica:
    """Return the replica that has a rank: servers come after the workers, and a spare may stand in for a worker.

    Raises:
        NoLogError: the job has no such rank.
    """
    job = TrainingJob.parse({**document, "status": None})
    if rank >= job.spec.world_size:
        raise NoLogError(f"there is no rank {rank}; the job has ranks 0 to {job.spec.world_size - 1}")
    if rank >= job.spec.worker_ranks:
        return FollowedReplica(names.PARAMETER_SERVER, rank - job.spec.worker_ranks)
    index = rank // job.spec.ranks_each
    status = TrainingJobStatus.read(document.get("status"))
    return FollowedReplica(names.WORKER, status.substitutes.get(names.replica_key(names.WORKER, index), index))


def _of_run(run: LocalRun, options: argparse.Namespace) -> dict[str, Callable[[], Lines]]:
    """Return the logs of a run on this machine. Its folder does not say how many ranks a worker has: one, as there."""
    files = _files(run)
    if not files:
        raise NoLogError(f"there are no logs in {run.logs}")
    keys = list(files) if options.all else [f"worker-{options.rank or 0}"]
    if keys[0] not in files:
        raise NoLogError(f"there is no log of {keys[0]}; there are {', '.join(files)}")
    if options.history:
        every = [path for key in keys for path in files[key]]
        return {path.stem.removeprefix(_prefix(path)): _reading(run, path, follow=False) for path in every}
    back = 2 if options.previous else 1
    if any(len(files[key]) < back for key in keys):
        raise NoLogError(f"{keys[0]} was never replaced, so there is no earlier log")
    return {key: _reading(run, files[key][-back], follow=options.follow and not options.previous) for key in keys}


def _files(run: LocalRun) -> dict[str, list[Path]]:
    """Return the logs of each replica, by JOB-ROLE-INDEX-INCARNATION.log, the newest last."""
    found: dict[str, list[tuple[int, Path]]] = {}
    for path in run.logs.glob("*-*-*.log") if run.logs.is_dir() else ():
        _, _, rest = path.stem.rpartition("-worker-" if "-worker-" in path.stem else "-parameterserver-")
        index, _, incarnation = rest.partition("-")
        if index.isdigit() and incarnation.isdigit():
            role = "worker" if "-worker-" in path.stem else "parameterserver"
            found.setdefault(f"{role}-{index}", []).append((int(incarnation), path))
    in_order = sorted(found, key=lambda key: (not key.startswith("worker"), int(key.rpartition("-")[2])))
    return {key: [path for _, path in sorted(found[key])] for key in in_order}


def _prefix(path: Path) -> str:
    """Return the job's name in the name of a log, and the dash after it."""
    role = "worker-" if "-worker-" in path.stem else "parameterserver-"
    return path.stem.rpartition(role)[0]


def _reading(run: LocalRun, path: Path, *, follow: bool) -> Callable[[], Lines]:
    def chunks() -> Iterator[bytes]:
        with open(open_to_read(path), "rb") as file:  # noqa: PTH123  a descriptor, not a path
            while True:
                alive = follow and run.alive
                while chunk := file.read(1 << 16):
                    yield chunk
                if not alive:
                    return
                time.sleep(_PAUSE_SECONDS)  # the kernel tells nobody of a file that grows

    return lambda: lines_of(chunks())

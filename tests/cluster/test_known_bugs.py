"""Known bugs of other operators, put back into the code that sees through a watch and writes: each is seen by a test.

Those of the loop and the core are in `tests/simulation`, whose operators see through a cache and an API server that
are played. docs/peer-bugs.md lists all of them.
"""

import asyncio
import contextlib
import dataclasses
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping

import pytest
from trainmaster.api.job import TrainingJob
from trainmaster.api.status import TrainingJobStatus
from trainmaster.cluster import cache, cluster_platform
from trainmaster.cluster.cache import Cache
from trainmaster.cluster.client import Client
from trainmaster.cluster.cluster_platform import ClusterPlatform
from trainmaster.cluster.informer import Informer
from trainmaster.loop import ConflictError, UnavailableError

from tests.peer_bugs import seen_by
from tests.simulation.mutants import MUTANTS

from . import test_cache, test_informer, test_stored_status
from .fake_server import Document

Patch = Callable[[pytest.MonkeyPatch], None]
Test = Callable[..., Awaitable[None] | None]


def an_old_event_overwrites_a_new_one_elastic_4956(patch: pytest.MonkeyPatch) -> None:
    apply = Cache.apply

    def credulous(self: Cache[object], scope: str, kind: str, document: Document) -> None:
        name = cache.name_of(document)
        if known := self._entries.get(name):
            self._entries[name] = dataclasses.replace(known, version=-1)
        apply(self, scope, kind, document)

    patch.setattr(Cache, "apply", credulous)


def a_list_does_not_tell_what_vanished_kopf_42(patch: pytest.MonkeyPatch) -> None:
    replace = Cache.replace

    def forgiving(self: Cache[object], scope: str, documents: Iterable[Document], version: int) -> None:
        self._ahead |= set(self._entries)  # as if all that is known were newer than the list
        replace(self, scope, documents, version)

    patch.setattr(Cache, "replace", forgiving)


def what_a_watch_repeats_is_believed_kopf_10(patch: pytest.MonkeyPatch) -> None:
    """The next watch begins where the first one did, and tells everything once more."""
    take = Informer._take

    def forgetful(self: Informer, kind: str, document: Document) -> None:
        before = self._version
        take(self, kind, document)
        self._version = before

    patch.setattr(Informer, "_take", forgetful)


def a_dead_watch_is_waited_for_python_client_1402(patch: pytest.MonkeyPatch) -> None:
    watch = Client.watch

    async def patient(self: Client, path: str, params: Mapping[str, str]) -> AsyncIterator[Document]:
        with contextlib.suppress(UnavailableError):
            async for event in watch(self, path, params):
                yield event
        await asyncio.Event().wait()

    patch.setattr(Client, "watch", patient)


def a_status_is_written_over_a_newer_one_sieve(patch: pytest.MonkeyPatch) -> None:
    write = ClusterPlatform.write_status

    async def blind(self: ClusterPlatform, job: TrainingJob, status: TrainingJobStatus) -> None:
        version = (await self._client.get(cluster_platform.job_path(job)))["metadata"]["resourceVersion"]
        metadata = job.metadata.model_copy(update={"resource_version": version})
        await write(self, job.model_copy(update={"metadata": metadata}), status)

    patch.setattr(ClusterPlatform, "write_status", blind)


def a_conflict_is_taken_for_success_sieve_stale(patch: pytest.MonkeyPatch) -> None:
    write = ClusterPlatform.write_status

    async def careless(self: ClusterPlatform, job: TrainingJob, status: TrainingJobStatus) -> None:
        with contextlib.suppress(ConflictError):
            await write(self, job, status)

    patch.setattr(ClusterPlatform, "write_status", careless)


SEEN_BY: dict[Patch, Test] = {
    an_old_event_overwrites_a_new_one_elastic_4956: test_cache.test_what_we_wrote_is_not_replaced_by_older_news,
    a_list_does_not_tell_what_vanished_kopf_42: test_cache.test_a_new_list_tells_what_has_gone,
    what_a_watch_repeats_is_believed_kopf_10: test_informer.test_goes_on_from_where_it_was,
    a_dead_watch_is_waited_for_python_client_1402: test_informer.test_a_half_open_line_is_left,
    a_status_is_written_over_a_newer_one_sieve: test_stored_status.test_a_changed_job_keeps_its_status,
    a_conflict_is_taken_for_success_sieve_stale: test_stored_status.test_a_change_is_told_and_seen,
}


async def _judge(test: Test, patch: pytest.MonkeyPatch) -> None:
    wishes = {"monkeypatch": patch} if "monkeypatch" in inspect.signature(test).parameters else {}
    answer = test(**wishes)
    if answer is not None:
        await answer


@pytest.mark.parametrize("mutant", SEEN_BY, ids=lambda mutant: mutant.__name__)
async def test_the_bug_is_seen(mutant: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    with pytest.raises((AssertionError, TimeoutError, pytest.fail.Exception)):
        await _judge(SEEN_BY[mutant], monkeypatch)


def test_the_table_names_every_mutant_and_what_sees_it() -> None:
    here = {mutant.__name__: test.__name__ for mutant, test in SEEN_BY.items()}
    assert {name: seen for name, seen in seen_by().items() if name in here} == here
    assert set(seen_by()) == {*here, *(mutant.name for mutant in MUTANTS)}

"""Keep objects whose documents arrive one by one, in any order; a sweep says which objects there are.

kopf hands over each event of its watch by itself: there is no moment at which everything has been read, and what
vanished while its watch was broken is never told. A sweep is a list of names and versions, without documents. With it
this cache knows what is still missing, and what has gone.
"""

import asyncio
import dataclasses
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field

from trainmaster.cluster.cache import Cache, Document, Name, T, name_of, version_of


@dataclass
class SweepListing:
    """Hold what a sweep listed, and which of these documents have not arrived yet."""

    version: int  # of the list itself
    versions: Mapping[Name, int]
    missing: dict[Name, int]
    complete: asyncio.Event = field(default_factory=asyncio.Event)

    def arrived(self, name: Name, version: int) -> None:
        """Note that a document of this version, or the end of the object, is known."""
        if version >= self.missing.get(name, version + 1):
            del self.missing[name]
            if not self.missing:
                self.complete.set()


class SweptCache(Cache[T]):
    """Take each document that is newer than what is known of its object, from whomever it comes."""

    def __init__(
        self,
        read: Callable[[Document], T],
        group: Callable[[T], Hashable],
        on_change: Callable[[T | None, T | None], None],
    ) -> None:
        super().__init__(read, group, on_change)
        self._ended: dict[Name, int] = {}  # the version at which an object ended, until a sweep knows it
        self._listings: dict[str, SweepListing] = {}  # the last sweep, by namespace ("" is all)

    def newest(self, scope: str) -> int:
        """Return the newest version that is known of any object of the scope, or of its list."""
        versions = [entry.version for name, entry in self._entries.items() if scope in ("", name[0])]
        listing = self._listings.get(scope)
        return max([*versions, listing.version if listing else 0], default=0)

    def take(self, kind: str | None, document: Document) -> None:
        """Take one event of kopf's watch: ADDED, MODIFIED, DELETED, or None for an object of its list."""
        name, version = name_of(document), version_of(document)
        if version > self._known(name):
            if kind == "DELETED":
                self._end(name, version)
            else:
                self._tell(*self._put(name, self._entry(document)))
        self._arrived(name, version)

    def skip(self, document: Document) -> None:
        """Wait no longer for a document that cannot be read."""
        self._arrived(name_of(document), version_of(document))

    def learn(self, document: Document) -> None:
        """Store the answer to a request of our own, unless something newer is known. This is not told as a change."""
        name, version = name_of(document), version_of(document)
        if version > self._known(name):
            before, after = self._put(name, self._entry(document))
            if before and before.uid != after.uid:
                self._tell(before, None)  # the watch's event for it is older than our answer and will be ignored
        self._arrived(name, version)

    def unlearn(self, namespace: str, name: str, uid: str) -> None:
        """Remove an object with this uid, because a request of our own was answered with "not found"."""
        entry = self._entries.get((namespace, name))
        if entry and entry.uid == uid:
            self._end((namespace, name), entry.version)

    def sweep(self, scope: str, versions: Mapping[Name, int], version: int, begun: int) -> SweepListing:
        """Take a complete list: what is not in it, and is not newer, has gone. Return what is missing of it.

        `begun` is what `newest` said before the list was asked for. A list that is older comes from another history:
        etcd was restored from a backup. Then the versions that are known mean nothing any more.
        """
        ours = [name for name in self._entries if scope in ("", name[0])]
        if version < begun:
            for name in ours:
                self._entries[name] = dataclasses.replace(self._entries[name], version=0)
            self._ended.clear()
        for name in ours:
            if name not in versions and self._entries[name].version <= version:
                self._tell(self._remove(name), None)
        self._ended = {name: end for name, end in self._ended.items() if end > version or scope not in ("", name[0])}
        missing = {name: listed for name, listed in versions.items() if self._newest_of(name) < listed}
        listing = self._listings[scope] = SweepListing(version, versions, missing)
        if not missing:
            listing.complete.set()
        return listing

    def _newest_of(self, name: Name) -> int:
        """Return the version of what is known of an object, or of its end; 0 for an object that is not known."""
        entry = self._entries.get(name)
        return entry.version if entry else self._ended.get(name, 0)

    def _known(self, name: Name) -> int:
        """Return the version up to which nothing new can come: a document that is as old is stale."""
        known = self._newest_of(name)
        if name in self._entries:
            return known
        listings = (self._listings.get(scope) for scope in ("", name[0]))
        absent = [listing.version for listing in listings if listing and name not in listing.versions]
        return max([known, *absent])

    def _end(self, name: Name, version: int) -> None:
        self._ended[name] = version
        self._tell(self._remove(name), None)

    def _arrived(self, name: Name, version: int) -> None:
        for scope in ("", name[0]):
            if scope in self._listings:
                self._listings[scope].arrived(name, version)

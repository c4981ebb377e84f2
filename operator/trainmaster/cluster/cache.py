"""Keep what the API server said last about one kind of object.

An object is kept as whatever its `read` function makes of it (slim and frozen). Versions are compared as numbers:
resourceVersion is etcd's revision, and since Kubernetes 1.35 its order is part of the API. So the answer to a write of
our own, which is stored at once, is never replaced by an older event that arrives later.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Document = dict[str, Any]
Name = tuple[str, str]  # namespace, name


@dataclass(frozen=True)
class CacheEntry(Generic[T]):
    """Hold one object with its uid and version."""

    uid: str
    version: int
    value: T


class Cache(Generic[T]):
    """Keep all objects of one kind. `on_change(old, new)` is called for each change that did not come from `learn`."""

    def __init__(
        self,
        read: Callable[[Document], T],
        group: Callable[[T], Hashable],
        on_change: Callable[[T | None, T | None], None],
    ) -> None:
        self._read = read
        self._group = group
        self._on_change = on_change
        self._entries: dict[Name, CacheEntry[T]] = {}
        self._groups: dict[Hashable, dict[Name, None]] = {}
        self._seen: dict[str, int] = {}  # the newest version of each watch, by namespace ("" is all)
        self._ahead: set[Name] = set()  # names that `learn` stored while a list is being read
        self._listed: dict[str, dict[Name, CacheEntry[T]]] = {}  # lists that are being read, by namespace

    def get(self, namespace: str, name: str) -> T | None:
        """Return the object of this name; None if there is none."""
        entry = self._entries.get((namespace, name))
        return entry.value if entry else None

    def group(self, key: Hashable) -> list[T]:
        """Return all objects of the group `key`, in the order of their names."""
        return [self._entries[name].value for name in sorted(self._groups.get(key, ()))]

    def __iter__(self) -> Iterator[T]:
        return iter([entry.value for entry in self._entries.values()])

    def __len__(self) -> int:
        return len(self._entries)

    def begin_list(self, scope: str) -> None:
        """Begin to read a list. From now on, objects that `learn` stores may be newer than that list."""
        self._forget_ahead(scope)
        self._listed[scope] = {}

    def page(self, scope: str, documents: Iterable[Document]) -> None:
        """Add a part of a new list. It takes effect in `replace`. Only what `read` makes of an object is kept."""
        listed = self._listed.setdefault(scope, {})
        listed.update((name_of(document), self._entry(document)) for document in documents)

    def replace(self, scope: str, documents: Iterable[Document], version: int) -> None:
        """Add the last part of a new list and put the list in force.

        Objects that are not in it are taken for deleted.
        """
        self.page(scope, documents)
        listed = self._listed.pop(scope)
        gone = [name for name in self._entries if name not in listed and scope in ("", name[0])]
        for name in gone:
            if name not in self._ahead:
                self._tell(self._remove(name), None)
        for name, entry in listed.items():
            old = self._entries.get(name)
            if not (old and name in self._ahead and old.version > entry.version):
                self._tell(*self._put(name, entry))
        self._forget_ahead(scope)
        self._seen[scope] = version

    def apply(self, scope: str, kind: str, document: Document) -> None:
        """Apply one event of a watch: ADDED, MODIFIED or DELETED."""
        version = version_of(document)
        self._seen[scope] = max(self._seen.get(scope, 0), version)
        old = self._entries.get(name_of(document))
        if old and old.version >= version:
            return
        if kind == "DELETED":
            self._tell(self._remove(name_of(document)), None)
        else:
            self._tell(*self._put(name_of(document), self._entry(document)))

    def learn(self, document: Document) -> None:
        """Store the answer to a request of our own, unless the watch has already passed its version."""
        version = version_of(document)
        name = name_of(document)
        if version <= max(self._seen.get(name[0], 0), self._seen.get("", 0)):
            return
        old = self._entries.get(name)
        if old is None or old.version < version:
            if not self._listed.keys().isdisjoint(("", name[0])):
                self._ahead.add(name)
            before, after = self._put(name, self._entry(document))
            if before and before.uid != after.uid:
                self._tell(before, None)  # the watch's event for it is older than our answer and will be ignored

    def unlearn(self, namespace: str, name: str, uid: str) -> None:
        """Remove an object with this uid, because a request of our own was answered with "not found"."""
        entry = self._entries.get((namespace, name))
        if entry and entry.uid == uid:
            self._tell(self._remove((namespace, name)), None)

    def _forget_ahead(self, scope: str) -> None:
        self._ahead = {name for name in self._ahead if scope not in ("", name[0])}

    def _entry(self, document: Document) -> CacheEntry[T]:
        return CacheEntry(document["metadata"]["uid"], version_of(document), self._read(document))

    def _put(self, name: Name, new: CacheEntry[T]) -> tuple[CacheEntry[T] | None, CacheEntry[T]]:
        """Return what was there before, and what is there now."""
        old = self._remove(name)
        self._entries[name] = new
        self._groups.setdefault(self._group(new.value), {})[name] = None
        return old, new

    def _remove(self, name: Name) -> CacheEntry[T] | None:
        entry = self._entries.pop(name, None)
        if entry:
            key = self._group(entry.value)
            self._groups[key].pop(name)
            if not self._groups[key]:
                del self._groups[key]
        return entry

    def _tell(self, old: CacheEntry[T] | None, new: CacheEntry[T] | None) -> None:
        if old and new and old.uid != new.uid:
            self._tell(old, None)
            old = None
        before, after = old.value if old else None, new.value if new else None
        if before != after:
            self._on_change(before, after)


def version_of(document: Document) -> int:
    """Return the resourceVersion as a number; 0 where it is no number."""
    version = document["metadata"].get("resourceVersion", "")
    return int(version) if version.isdecimal() else 0


def name_of(document: Document) -> Name:
    """Return the namespace and the name of an object."""
    metadata = document["metadata"]
    return metadata.get("namespace", ""), metadata["name"]

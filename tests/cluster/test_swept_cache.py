"""Documents that come one by one, in any order, and a list that says what there is."""

from hypothesis import given
from hypothesis import strategies as st
from trainmaster.cluster.swept_cache import SweptCache

from .test_cache import Change, thing

A, B, C = ("lab", "a"), ("lab", "b"), ("lab", "c")


class Watched:
    """A cache of texts, and what it told."""

    def __init__(self) -> None:
        self.told: list[Change] = []
        self.cache: SweptCache[str] = SweptCache(
            lambda document: str(document["text"]), lambda text: text[0], self._note
        )

    def _note(self, old: str | None, new: str | None) -> None:
        self.told.append((old, new))


def test_a_sweep_is_complete_when_every_document_has_come() -> None:
    cache = Watched().cache
    cache.take(None, thing("a", 1))
    listing = cache.sweep("", {A: 1, B: 2, C: 3}, 5, 0)
    assert set(listing.missing) == {B, C}
    cache.take("ADDED", thing("b", 4))
    assert not listing.complete.is_set()
    cache.take("DELETED", thing("c", 6))
    assert listing.complete.is_set()
    assert sorted(cache) == ["a@1", "b@4"]


def test_a_document_that_is_older_than_the_listed_one_is_not_enough() -> None:
    cache = Watched().cache
    listing = cache.sweep("", {A: 4}, 5, 0)
    cache.take(None, thing("a", 2))
    assert not listing.complete.is_set()
    cache.take("MODIFIED", thing("a", 4))
    assert listing.complete.is_set()


def test_what_is_not_listed_has_gone_unless_it_is_newer() -> None:
    watched = Watched()
    watched.cache.take("ADDED", thing("a", 1))
    watched.cache.take("ADDED", thing("b", 9))
    watched.cache.sweep("", {}, 5, 1)
    assert watched.told[2:] == [("a@1", None)]
    assert sorted(watched.cache) == ["b@9"]


def test_a_list_of_one_namespace_says_nothing_about_others() -> None:
    cache = Watched().cache
    cache.take("ADDED", thing("a", 1))
    cache.sweep("other", {}, 5, 0)
    assert sorted(cache) == ["a@1"]


def test_stale_documents_bring_nothing_back() -> None:
    """Neither what a sweep missed, nor what was told as deleted, nor what a request did not find."""
    cache = Watched().cache
    for name in "abc":
        cache.take("ADDED", thing(name, 2))
    cache.take("DELETED", thing("b", 7))
    cache.unlearn("lab", "c", "u")
    cache.sweep("", {}, 5, 2)
    cache.take("MODIFIED", thing("a", 4))
    cache.take("MODIFIED", thing("b", 6))
    cache.take("MODIFIED", thing("c", 2))
    cache.learn(thing("a", 5))
    cache.learn(thing("b", 7))
    assert len(cache) == 0
    cache.take("ADDED", thing("a", 8, uid="another"))
    assert sorted(cache) == ["a@8"]


def test_our_own_answer_counts_though_the_watch_has_told_of_others_since() -> None:
    """Events of different objects are handed over by kopf in any order."""
    watched = Watched()
    watched.cache.take("ADDED", thing("a", 1))
    watched.cache.take("ADDED", thing("b", 12))
    watched.cache.learn(thing("a", 11))
    assert watched.cache.get("lab", "a") == "a@11"
    watched.cache.take("MODIFIED", thing("a", 10))
    assert watched.cache.get("lab", "a") == "a@11"


def test_the_end_of_an_object_does_not_end_its_successor() -> None:
    """Their events have different uids, and kopf hands them over in any order."""
    watched = Watched()
    watched.cache.take("ADDED", thing("a", 1, uid="x"))
    watched.cache.take("ADDED", thing("a", 5, uid="y"))
    watched.cache.take("DELETED", thing("a", 4, uid="x"))
    assert watched.told == [(None, "a@1"), ("a@1", None), (None, "a@5")]


def test_a_restored_backup_is_believed() -> None:
    """A list has an older version than what was known before it; documents follow when kopf lists anew."""
    cache = Watched().cache
    cache.take("ADDED", thing("a", 100))
    cache.take("ADDED", thing("b", 101))
    cache.take("DELETED", thing("c", 102))
    listing = cache.sweep("", {A: 40, C: 30}, 50, cache.newest(""))
    assert sorted(cache) == ["a@100"]
    assert set(listing.missing) == {A, C}
    cache.take(None, thing("a", 40))
    cache.take(None, thing("c", 30))
    assert listing.complete.is_set()
    assert sorted(cache) == ["a@40", "c@30"]


def test_what_cannot_be_read_is_not_waited_for() -> None:
    cache = Watched().cache
    listing = cache.sweep("", {A: 1}, 5, 0)
    cache.skip(thing("a", 1))
    assert listing.complete.is_set()


EVENTS = st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), min_size=1, max_size=14)


@given(EVENTS, st.data())
def test_in_whatever_order_it_ends_where_the_api_server_ends(
    events: list[tuple[str, bool]], data: st.DataObject
) -> None:
    """Events come late, twice or never; after a last sweep and the documents that it lists, all is as it is."""
    there: dict[tuple[str, str], int] = {}
    stream, lists = [], []
    for number, (name, gone) in enumerate(events, start=1):
        stream.append(("DELETED" if gone else "MODIFIED", thing(name, number)))
        if gone:
            there.pop(("lab", name), None)
        else:
            there["lab", name] = number
        lists.append((dict(there), number))
    cache = Watched().cache
    for number in data.draw(st.lists(st.integers(0, len(stream) - 1)), "what arrives, and when"):
        if data.draw(st.booleans(), "a sweep"):
            cache.sweep("", *lists[max(number, cache.newest("") - 1)], 0)
        cache.take(*stream[number])
    listing = cache.sweep("", *lists[-1], 0)
    for missing in list(listing.missing):
        cache.take(None, thing(missing[1], there[missing]))
    assert listing.complete.is_set()
    assert sorted(cache) == sorted(f"{name}@{version}" for (_, name), version in there.items())

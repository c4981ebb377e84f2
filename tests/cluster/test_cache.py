"""What is remembered of the API server's objects, in whatever order their news arrive."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from trainmaster.cluster.cache import Cache

Document = dict[str, Any]
Change = tuple[str | None, str | None]


def thing(name: str, version: int, uid: str = "u", text: str = "") -> Document:
    metadata = {"namespace": "lab", "name": name, "uid": uid, "resourceVersion": str(version)}
    return {"metadata": metadata, "text": text or f"{name}@{version}"}


class Watched:
    """A cache of texts, and what it told."""

    def __init__(self) -> None:
        self.told: list[Change] = []
        self.cache: Cache[str] = Cache(lambda document: str(document["text"]), lambda text: text[0], self._note)

    def _note(self, old: str | None, new: str | None) -> None:
        self.told.append((old, new))


def test_news_are_told_once() -> None:
    watched = Watched()
    watched.cache.apply("", "ADDED", thing("a", 1))
    watched.cache.apply("", "ADDED", thing("a", 1))
    watched.cache.apply("", "MODIFIED", thing("a", 2))
    watched.cache.apply("", "DELETED", thing("a", 3))
    assert watched.told == [(None, "a@1"), ("a@1", "a@2"), ("a@2", None)]
    assert len(watched.cache) == 0


def test_what_we_wrote_is_not_replaced_by_older_news() -> None:
    watched = Watched()
    watched.cache.apply("", "ADDED", thing("a", 1))
    watched.cache.learn(thing("a", 5))
    watched.cache.apply("", "MODIFIED", thing("a", 3))
    assert watched.cache.get("lab", "a") == "a@5"
    watched.cache.apply("", "MODIFIED", thing("a", 5))
    watched.cache.apply("", "MODIFIED", thing("a", 6))
    assert watched.told == [(None, "a@1"), ("a@5", "a@6")]


def test_numbers_are_compared_as_numbers() -> None:
    watched = Watched()
    watched.cache.apply("", "ADDED", thing("a", 9))
    watched.cache.apply("", "MODIFIED", thing("a", 10))
    assert watched.cache.get("lab", "a") == "a@10"


def test_an_answer_that_comes_after_its_objects_end_brings_nothing_back() -> None:
    """Created at 5, deleted at 8, and our own answer "created" arrives last."""
    watched = Watched()
    watched.cache.apply("", "ADDED", thing("a", 5))
    watched.cache.apply("", "DELETED", thing("a", 8))
    watched.cache.learn(thing("a", 5))
    assert watched.cache.get("lab", "a") is None


def test_a_new_list_tells_what_has_gone() -> None:
    watched = Watched()
    watched.cache.replace("", [thing("a", 1), thing("b", 2)], 2)
    watched.told.clear()
    watched.cache.replace("", [thing("b", 2), thing("c", 4)], 9)
    assert watched.told == [("a@1", None), (None, "c@4")]


def test_a_list_of_one_namespace_says_nothing_about_others() -> None:
    watched = Watched()
    watched.cache.replace("lab", [thing("a", 1)], 1)
    watched.cache.replace("other", [], 5)
    assert watched.cache.get("lab", "a") == "a@1"


def test_what_was_created_while_a_list_was_read_stays() -> None:
    watched = Watched()
    watched.cache.begin_list("")
    watched.cache.learn(thing("new", 7))
    watched.cache.replace("", [thing("old", 3)], 5)
    assert watched.cache.get("lab", "new") == "new@7"
    watched.cache.begin_list("")
    watched.cache.replace("", [thing("old", 3)], 9)
    assert watched.cache.get("lab", "new") is None


def test_of_what_we_wrote_nothing_is_left_when_it_has_gone() -> None:
    watched = Watched()
    watched.cache.begin_list("")
    watched.cache.learn(thing("early", 2))
    watched.cache.replace("", [], 1)
    watched.cache.apply("", "DELETED", thing("early", 3))
    for number in range(4, 100, 2):
        watched.cache.learn(thing(f"late-{number}", number))
        watched.cache.apply("", "DELETED", thing(f"late-{number}", number + 1))
    assert len(watched.cache) == 0
    assert not watched.cache._ahead


def test_a_restored_backup_is_believed() -> None:
    """A restored etcd comes back with older versions: a list is the truth, whatever was known before."""
    watched = Watched()
    watched.cache.replace("", [thing("a", 100)], 100)
    watched.cache.begin_list("")
    watched.cache.replace("", [thing("a", 40)], 50)
    watched.cache.apply("", "MODIFIED", thing("a", 60))
    assert watched.cache.get("lab", "a") == "a@60"


def test_another_object_of_the_same_name_is_an_end_and_a_beginning() -> None:
    watched = Watched()
    watched.cache.apply("", "ADDED", thing("a", 1, uid="x"))
    watched.cache.apply("", "ADDED", thing("a", 5, uid="y"))
    assert watched.told == [(None, "a@1"), ("a@1", None), (None, "a@5")]


def test_an_object_of_our_own_tells_the_end_of_another_of_its_name() -> None:
    """The API server let us make it, so the other has gone; the watch tells so later, and of an older version."""
    watched = Watched()
    watched.cache.apply("", "ADDED", thing("a", 1, uid="x"))
    watched.cache.learn(thing("a", 5, uid="y"))
    watched.cache.apply("", "DELETED", thing("a", 4, uid="x"))
    assert watched.told == [(None, "a@1"), ("a@1", None)]
    assert watched.cache.get("lab", "a") == "a@5"


def test_groups_follow_their_objects() -> None:
    watched = Watched()
    watched.cache.replace("", [thing("b", 1, text="g-b"), thing("a", 2, text="g-a"), thing("c", 3, text="h-c")], 3)
    assert watched.cache.group("g") == ["g-a", "g-b"]
    watched.cache.apply("", "MODIFIED", thing("a", 4, text="h-a"))
    assert watched.cache.group("g") == ["g-b"]
    assert watched.cache.group("h") == ["h-a", "h-c"]
    watched.cache.unlearn("lab", "b", "another uid")
    assert watched.cache.group("g") == ["g-b"]
    watched.cache.unlearn("lab", "b", "u")
    assert watched.cache.group("g") == []


EVENTS = st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=12)


@given(EVENTS, st.data())
def test_late_answers_of_our_own_change_nothing(events: list[tuple[str, bool]], data: st.DataObject) -> None:
    """However late the answer to a write arrives, the cache ends where the watch ends."""
    stream = [
        ("DELETED" if gone else "MODIFIED", thing(name, number)) for number, (name, gone) in enumerate(events, start=1)
    ]
    plain, late = Watched(), Watched()
    for number, (kind, document) in enumerate(stream):
        plain.cache.apply("", kind, document)
        if kind == "MODIFIED" and data.draw(st.booleans(), "the answer comes before the event"):
            late.cache.learn(document)
        late.cache.apply("", kind, document)
        answer = stream[data.draw(st.integers(0, number), "a late answer")]
        if answer[0] == "MODIFIED":
            late.cache.learn(answer[1])
    assert sorted(plain.cache) == sorted(late.cache)

"""One piece of a pod over another, as a table."""

from typing import Any

import pytest
from trainmaster.api.overlay import lay, lost

CASES: dict[str, tuple[Any, Any, Any]] = {
    "members are merged": ({"a": 1, "b": 2}, {"b": 3, "c": 4}, {"a": 1, "b": 3, "c": 4}),
    "objects are merged deeply": ({"s": {"x": 1, "y": 1}}, {"s": {"y": 2}}, {"s": {"x": 1, "y": 2}}),
    "plain lists are replaced": ({"args": [1, 2]}, {"args": [3]}, {"args": [3]}),
    "another kind of value wins": ({"a": {"b": 1}}, {"a": "text"}, {"a": "text"}),
    "containers are merged by name": (
        {"containers": [{"name": "trainer", "tty": True}, {"name": "side"}]},
        {"containers": [{"name": "trainer", "image": "x"}]},
        {"containers": [{"name": "trainer", "tty": True, "image": "x"}, {"name": "side"}]},
    ),
    "a volume has one source": (
        {"volumes": [{"name": "v", "emptyDir": {}}]},
        {"volumes": [{"name": "v", "configMap": {"name": "c"}}]},
        {"volumes": [{"name": "v", "configMap": {"name": "c"}}]},
    ),
    "a variable has one source": (
        {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
        {"env": [{"name": "A", "valueFrom": {"fieldRef": {}}}]},
        {"env": [{"name": "A", "valueFrom": {"fieldRef": {}}}, {"name": "B", "value": "2"}]},
    ),
    "mounts are told apart by their path": (
        {"volumeMounts": [{"name": "a", "mountPath": "/a"}, {"name": "b", "mountPath": "/b"}]},
        {"volumeMounts": [{"name": "c", "mountPath": "/a", "readOnly": True}]},
        {"volumeMounts": [{"name": "c", "mountPath": "/a", "readOnly": True}, {"name": "b", "mountPath": "/b"}]},
    ),
    "the same folder is one place, with a slash at its end or without": (
        {"volumeMounts": [{"name": "a", "mountPath": "/a/"}]},
        {"volumeMounts": [{"name": "c", "mountPath": "/a"}]},
        {"volumeMounts": [{"name": "c", "mountPath": "/a"}]},
    ),
    "tolerations add up": (
        {"tolerations": [{"key": "a"}, {"key": "b"}]},
        {"tolerations": [{"key": "b"}, {"key": "c"}]},
        {"tolerations": [{"key": "a"}, {"key": "b"}, {"key": "c"}]},
    ),
    "what has no name is left as it is": (
        {"env": [{"name": "A"}, {"key": "B"}, "C"]},
        {"env": [{"name": "A", "value": "1"}, {"key": "D"}, {"name": ["E"]}]},
        {"env": [{"name": "A", "value": "1"}, {"key": "B"}, "C", {"key": "D"}, {"name": ["E"]}]},
    ),
    "nothing above": ({"a": [1]}, {}, {"a": [1]}),
    "nothing below": ({}, {"a": [1]}, {"a": [1]}),
}


@pytest.mark.parametrize(("below", "above", "expected"), CASES.values(), ids=CASES.keys())
def test_what_stands_above_wins(below: Any, above: Any, expected: Any) -> None:
    assert lay(below, above) == expected


@pytest.mark.parametrize(("below", "above", "_"), CASES.values(), ids=CASES.keys())
def test_laying_twice_changes_nothing(below: Any, above: Any, _: Any) -> None:
    once = lay(below, above)
    assert lay(once, above) == once


@pytest.mark.parametrize(("below", "above", "_"), CASES.values(), ids=CASES.keys())
def test_nothing_is_lost_of_what_is_laid_already(below: Any, above: Any, _: Any) -> None:
    assert list(lost(lay(below, above), above)) == []


def test_what_is_lost_is_told_by_its_place() -> None:
    places = {name: list(lost(below, above)) for name, (below, above, _) in CASES.items()}
    assert {name: found for name, found in places.items() if found} == {
        "members are merged": [("b",)],
        "objects are merged deeply": [("s", "y")],
        "plain lists are replaced": [("args",)],
        "another kind of value wins": [("a",)],
        "a volume has one source": [("volumes", 0)],
        "a variable has one source": [("env", 0)],
        "mounts are told apart by their path": [("volumeMounts", 0)],
        "the same folder is one place, with a slash at its end or without": [("volumeMounts", 0)],
        "what has no name is left as it is": [("env", 0)],
    }

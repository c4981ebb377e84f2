"""Two people submit a job of one name at once."""

from typing import Any

import pytest
from trainmaster.cluster.access import Access
from trainmaster.wire import names

from .apiserver import Document
from .test_submit import Place, Run, place, run

__all__ = ["place", "run"]


def test_of_two_at_once_one_is_whole_and_the_other_says_so(
    place: Place, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second comes between the first one's job and its code, and takes that for cut off."""
    call, other = Access.call, list[int]()

    def meanwhile(access: Access, method: str, path: str, *more: Any, **named: Any) -> Document:
        if path.endswith("/configmaps") and not other:
            other.append(0)
            other[0] = run("submit", str(place.folder / "job.yaml"))[0]
        return call(access, method, path, *more, **named)

    monkeypatch.setattr(Access, "call", meanwhile)
    code, _, err = run("submit", str(place.folder / "job.yaml"))
    assert (other, code) == ([0], 3)
    assert "there is a job digits in this namespace already" in err
    there = place.job()
    assert names.SUBMISSION not in there["metadata"].get("annotations", {})
    parts = there["spec"]["training"]["code"]["bundle"]["configMaps"]
    owners = [one["metadata"]["ownerReferences"][0]["uid"] for one in place.maps if one["metadata"]["name"] in parts]
    assert owners == [there["metadata"]["uid"]]

"""Define what the status says of single nodes and pods: nodes to keep away from, and the last words of deleted pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from trainmaster.api.status_model import ClippedText, Count, StatusModel, Time

if TYPE_CHECKING:
    from dataclasses import dataclass  # mypy checks `replace` of the standard library's dataclasses only
else:
    from pydantic.dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class AvoidedNode(StatusModel):
    """A node that failed this job again and again: new pods of the job keep away from it for a while."""

    node: Annotated[str, Field(min_length=1, max_length=253)]
    """Its name."""
    reason: ClippedText = ""
    """`reason` says why, in a sentence."""
    until: Time
    """`until` is when it is given another chance."""
    lifted: bool = False
    """true: the rest of the cluster has no room, so it is used all the same, and not avoided anew until then."""


@dataclass(frozen=True, kw_only=True)
class LastLines(StatusModel):
    """LastLines has what a pod printed last that was deleted while it ran, whoever deleted it. Its log went with it."""

    replica: Annotated[str, Field(min_length=1, max_length=253)]
    """The replica, for example worker-0."""
    incarnation: Count = 0
    """The number of its pod."""
    text: ClippedText = ""
    """`text` has the lines, at most 1,000 characters of them."""

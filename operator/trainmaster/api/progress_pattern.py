"""Define spec.training.progress: where a script's output says how far it is.

The agent searches for the expressions (`trainmaster_trainer/agent/printed_figures.py`), within bounds of length and
time.
"""

from __future__ import annotations

import re
import warnings
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from trainmaster.api.model import Model
from trainmaster.api.sizes import BAD_EXPRESSION, without_nul


def _with_one_group(text: str) -> str:
    """Return the expression, or refuse it if Python cannot read it or it has not exactly one group."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            groups = re.compile(text).groups
    except (re.error, OverflowError, RecursionError) as error:
        cure = r"Write one of Python's (module re), for example loss=([0-9.]+)"
        raise _refused(f"is no regular expression: {error}", cure) from None
    if groups != 1:
        cure = "Put the number, and nothing else, into one pair of parentheses; write (?:...) for all others"
        raise _refused(f"has {groups} groups in parentheses, and the one that is read cannot be told", cure)
    return without_nul(text)


def _refused(what: str, cure: str) -> PydanticCustomError:
    return PydanticCustomError(BAD_EXPRESSION, "{what}. {cure}", {"what": what, "cure": cure})


_Expression = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_with_one_group)]


class ProgressExpressions(Model):
    """Regular expressions of Python, with one group each, which is the number."""

    loss: _Expression | None = None
    """The loss, for example loss=([0-9.]+). The newest lines of each rank are looked at, the first and the last \
1,000 characters of each."""
    step: _Expression | None = None
    """`step` finds how many steps of the whole training are done, for example (\\d+)/\\d+ \\[ in a bar of tqdm that \
counts steps. Without it, the optimizer steps that torch takes are counted, where the script uses torch."""
    total: _Expression | None = None
    """`total` finds how many steps there will be, for example \\d+/(\\d+) \\[. spec.training.steps goes before it."""

    @property
    def expressions(self) -> dict[str, str]:
        """Return the expressions that are set, by what they find."""
        return {name: text for name, text in (("loss", self.loss), ("step", self.step), ("total", self.total)) if text}

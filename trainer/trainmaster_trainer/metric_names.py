"""MetricNames keeps the names of a task's metrics the same on all ranks and in all steps, so that they have means."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.group import Group

MOST_METRICS, LONGEST_NAME = 32, 128
VALIDATION_LOSS = "validation_loss"
TAKEN = ("loss", VALIDATION_LOSS)  # names of the means of loss()
_FIELD = "spec.training.task: metrics()"
_ALWAYS = "Give the same names for every batch, with float('nan') where there is nothing to measure."


class MetricNames:
    """MetricNames holds the names that all ranks have agreed on; before that, those of this rank."""

    def __init__(self) -> None:
        self.known: tuple[str, ...] = ()
        self._seen = self._agreed = False

    def recall(self, names: Collection[str]) -> None:
        """Go on with the names of an attempt before, which losses that no file has yet are known by."""
        self.known, self._seen = tuple(sorted(names)), bool(names)

    def note(self, names: Collection[str]) -> None:
        """Take the names of a step on a rank that sees its loss.

        Raises:
            ConfigurationError: they are not those of the steps before.
        """
        if self._seen:
            check_same_names(self.known if self._seen else None, names)
        self.known, self._seen = tuple(sorted(names)), True

    def agree(self, group: Group) -> None:
        """Compare the names with those of all ranks, once. All ranks call it together.

        Raises:
            ConfigurationError: two ranks have different ones; all ranks raise it.
        """
        if self._agreed:
            return
        told = group.gather(list(self.known) if self._seen else None)
        names = {rank: one for rank, one in enumerate(told) if one is not None}
        if not names:
            return  # no rank has seen a loss yet
        first = next(iter(names))
        for rank, one in names.items():
            if one != names[first]:
                raise ConfigurationError(
                    f"{_FIELD} gave {_listed(names[first])} on rank {first} and {_listed(one)} on rank {rank}, and "
                    f"means over the ranks need the same on all. {_ALWAYS}"
                )
        self.known, self._agreed = tuple(names[first]), True


def check_names(where: str, names: Iterable[object], taken: Collection[str] = ()) -> None:
    """Refuse names that no file or screen could show, and those that are taken.

    Raises:
        ConfigurationError: names the first such name; `where` says who gave it.
    """
    for name in names:
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable() or name in taken:
            others = f", and not {' or '.join(taken)}, which are the means of what loss() gives" if taken else ""
            raise ConfigurationError(
                f"{where} a metric called {name!r:.150}. Choose a name of 1 to {LONGEST_NAME} printable "
                f"characters{others}."
            )


def check_same_names(before: Collection[str] | None, now: Collection[str]) -> None:
    """Refuse names that are not those of the batches before; None: there were none.

    Raises:
        ConfigurationError: names what is missing or new.
    """
    if before is not None and {*before} != {*now}:
        raise ConfigurationError(f"{_FIELD} gave {_listed(now)}, and {_listed(before)} for a batch before. {_ALWAYS}")


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"

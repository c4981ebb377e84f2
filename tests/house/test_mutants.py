"""The table of bugs that `make mutants` puts in still fits the code."""

import pytest
from trainmaster.api.generate import ROOT

from tests.mutants.table import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_bug_can_be_put_in(mutant: Mutant) -> None:
    assert (ROOT / mutant.file).read_text().count(mutant.old) == 1
    files = mutant.tests.partition(" -k ")[0].split()
    assert all((ROOT / "tests" / name).exists() for name in files)


def test_there_are_thirty_at_least() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 30

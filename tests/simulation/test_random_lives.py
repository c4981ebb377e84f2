"""Random lives by seed: as many as fit in a short while here; `make simulate N=...` lives through more."""

import pytest

from tests.simulation.campaign import Campaign, run

LIVES, GROUP = 600, 50


@pytest.mark.parametrize("first", range(0, LIVES, GROUP))
def test_a_random_life_ends_as_it_should(first: int) -> None:
    campaign: Campaign = run(range(first, first + GROUP))
    assert not campaign.failed, campaign.failed[0]

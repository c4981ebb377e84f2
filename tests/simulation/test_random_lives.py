"""The gate: random lives by seed until so many faults have been injected.

`make soak` injects fifteen times as many, and `make simulate N=...` as many as one likes.
"""

from collections.abc import Callable

import pytest

from tests.simulation.campaign import Campaign, spread
from tests.simulation.lives import LONELY
from tests.simulation.troubles import KINDS

FAULTS = 10_000
LONELY_FAULTS = 4_000
SOAKED = 15
# Of each hundred faults so many kill a process; most of the others are words that were lost or came twice.
DEATHS = 1.5


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("faults", [FAULTS, pytest.param(SOAKED * FAULTS, marks=pytest.mark.soak)])
def test_every_random_life_ends_as_it_should(record_property: Callable[[str, object], None], faults: int) -> None:
    campaign = spread(faults=faults)
    record_property("lives", campaign.lives)
    record_property("faults", campaign.faults)
    assert not campaign.failed, "\n\n".join(campaign.failed[:3])
    assert campaign.faults >= faults
    _is_well_mixed(campaign)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("faults", [LONELY_FAULTS, pytest.param(SOAKED * LONELY_FAULTS, marks=pytest.mark.soak)])
def test_every_random_life_of_members_that_come_and_go_ends_as_it_should(faults: int) -> None:
    campaign = spread(first=LONELY, faults=faults)
    assert not campaign.failed, "\n\n".join(campaign.failed[:3])
    assert campaign.faults >= faults
    _is_well_mixed(campaign)


def _is_well_mixed(campaign: Campaign) -> None:
    """No kind has gone missing, and there is more than noise."""
    assert set(campaign.injected) == KINDS
    assert campaign.deaths >= campaign.faults * DEATHS / 100, campaign.injected

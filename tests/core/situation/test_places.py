"""Who fills which place, who stands by: for whatever stands in a status that people can edit."""

from hypothesis import given
from hypothesis import strategies as st
from trainmaster.core.regime.choice import look
from trainmaster.core.situation import places
from trainmaster.core.states.observed import Observed

from tests.builders import NOON, a_job

INDEXES = st.integers(0, 12)
SUBSTITUTES = st.dictionaries(INDEXES.map(places.name_of) | st.text(max_size=3), INDEXES)


def standing_by(workers: int, substitutes: dict[str, int], spares: int) -> tuple[int, ...]:
    """The indexes of the spares of such a job."""
    job = a_job().with_workers(workers).where(scheduling={"spares": spares}).at("Running", substitutes=substitutes)
    return tuple(slot.index for slot in look(job.build(), Observed(), NOON).spares)


@given(st.integers(1, 8), SUBSTITUTES, st.integers(0, 4))
def test_nobody_fills_two_places_and_no_spare_fills_any(workers: int, substitutes: dict[str, int], spares: int) -> None:
    seats, beside = places.seated(workers, substitutes), standing_by(workers, substitutes, spares)
    assert (len(seats), len(beside)) == (workers, spares)
    assert len({*seats, *beside}) == workers + spares
    assert all(index >= 0 for index in (*seats, *beside))


@given(st.integers(0, 8), SUBSTITUTES)
def test_what_is_written_is_read_back(workers: int, substitutes: dict[str, int]) -> None:
    seats = places.seated(workers, substitutes)
    assert places.seated(workers, places.written(seats)) == seats


@given(st.integers(0, 8), st.integers(0, 8), SUBSTITUTES)
def test_places_that_stay_keep_their_workers_when_the_group_grows(
    fewer: int, more: int, substitutes: dict[str, int]
) -> None:
    before = places.seated(fewer, substitutes)
    assert places.seated(fewer + more, places.written(before))[:fewer] == before


def test_without_substitutes_everybody_fills_the_place_of_their_number() -> None:
    assert places.seated(3, {}) == (0, 1, 2)
    assert standing_by(3, {}, 2) == (3, 4)
    assert places.written((0, 1, 2)) == {}


def test_a_place_that_is_added_goes_to_the_spare_when_its_own_worker_trains_elsewhere() -> None:
    assert places.seated(4, {"worker-1": 3}) == (0, 3, 2, 1)

"""Pieces make one tensor, each place of it once, and the time for that grows with their number alone."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trainmaster.wire.tiling import Box, make_one, whole_of

BOXES = st.lists(
    st.tuples(st.tuples(*[st.integers(0, 3)] * 2), st.tuples(*[st.integers(0, 3)] * 2)), min_size=1, max_size=5
)


def each_place_once(boxes: list[Box]) -> bool:
    """As it is meant, place by place."""
    places = [
        place
        for offset, shape in boxes
        for place in itertools.product(*(range(begin, begin + n) for begin, n in zip(offset, shape, strict=True)))
    ]
    every = list(itertools.product(*map(range, whole_of(boxes))))
    return sorted(places) == every


@given(BOXES)
def test_it_agrees_with_a_count_of_all_places(boxes: list[Box]) -> None:
    assert make_one(boxes) == each_place_once(boxes)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (1, 0), ()])
def test_a_whole_tensor_is_one_and_two_of_it_are_not(shape: tuple[int, ...]) -> None:
    box = ((0,) * len(shape), shape)
    assert make_one([box])
    assert make_one([box, box]) == (0 in shape)


def test_sixty_thousand_pieces_take_no_pairs() -> None:
    """Of pairs there would be two thousand million."""
    rows = [((begin, 0), (1, 8)) for begin in range(1 << 16)]
    assert make_one(rows)
    assert not make_one([*rows[:-1], rows[0]])
    assert not make_one([((0, 0), (0, 0))] * (1 << 16) + [((0, 1), (1, 1))])

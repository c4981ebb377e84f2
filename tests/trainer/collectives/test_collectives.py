"""Every all-reduce: the same bits on all ranks, torch's sum, and exactly the bytes that the textbook says."""

import pytest

from tests.trainer.ranks import NewJob, Options

FLOAT = 4
SIZES = [0, 1, 3, 7, 1000, 100_003, 300_000]
ALGORITHMS = ["Native", "Ring", "Driver", "Hierarchical", "HierarchicalCopy", "OneDevice"]
NO_MEMORY = {"TRAINMASTER_SHARED_MEMORY": "off"}


@pytest.mark.parametrize("world", [2, 3, 4, 8])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_sum_is_torchs_and_the_same_on_all_ranks(new_job: NewJob, algorithm: str, world: int) -> None:
    answers = new_job().call(world, "reductions:sums", algorithm=algorithm, sizes=SIZES)
    for by_rank in zip(*answers, strict=True):
        assert len({answer["sha256"] for answer in by_rank}) == 1
        assert max(answer["difference"] for answer in by_rank) < 1e-6


@pytest.mark.parametrize(("algorithm", "world"), [("Native", 2), ("Native", 3), ("Ring", 3)])
def test_a_mean_is_the_sum_divided(new_job: NewJob, algorithm: str, world: int) -> None:
    answers = new_job().call(world, "reductions:means", algorithm=algorithm, sizes=SIZES)
    assert answers == [[True] * len(SIZES)] * world


@pytest.mark.parametrize("algorithm", ["Native", "Driver", "OneDevice"])
def test_sums_in_the_order_of_ranks_do_not_depend_on_the_place(new_job: NewJob, algorithm: str) -> None:
    answers = new_job().call(4, "reductions:sums", algorithm=algorithm, sizes=SIZES)
    assert all(answer["in_order"] for answers_of_rank in answers for answer in answers_of_rank)


def moved(answers: list[list[Options]]) -> list[tuple[int, int]]:
    return [(answer["sent"], answer["received"]) for (answer,) in answers]


@pytest.mark.parametrize("world", [2, 3, 4, 8])
def test_the_driver_moves_2_times_n_minus_1_times_the_size(new_job: NewJob, world: int) -> None:
    size = 1003
    answers = new_job().call(world, "reductions:sums", algorithm="Driver", sizes=[size])
    of_driver, *of_others = moved(answers)
    assert sum(of_driver) == 2 * (world - 1) * size * FLOAT
    assert of_others == [(size * FLOAT, size * FLOAT)] * (world - 1)


@pytest.mark.parametrize("world", [2, 3, 4, 8])
def test_every_rank_of_the_ring_sends_and_receives_the_least(new_job: NewJob, world: int) -> None:
    size = 24 * 41  # divisible by all of them
    answers = new_job().call(world, "reductions:sums", algorithm="Ring", sizes=[size])
    least = 2 * size * FLOAT * (world - 1) // world
    assert moved(answers) == [(least, least)] * world


def test_the_ring_moves_the_chunks_that_there_are_where_the_size_does_not_divide(new_job: NewJob) -> None:
    answers = new_job().call(4, "reductions:sums", algorithm="Ring", sizes=[10])
    # Chunks of 3, 3, 2, 2 elements: a rank sends all but the one after its own, then all but the one after that.
    chunks = [3, 3, 2, 2]
    assert [answer["sent"] for (answer,) in answers] == [
        FLOAT * (20 - chunks[(rank + 1) % 4] - chunks[(rank + 2) % 4]) for rank in range(4)
    ]
    assert sum(sent for sent, _ in moved(answers)) == sum(received for _, received in moved(answers)) == 2 * 3 * 40


@pytest.mark.parametrize("variables", [{}, NO_MEMORY], ids=["memory", "network"])
@pytest.mark.parametrize(("world", "inside"), [(4, 2), (6, 2), (8, 4), (3, 3)])
def test_hierarchical_lies_between_driver_and_ring(
    new_job: NewJob, world: int, inside: int, variables: dict[str, str]
) -> None:
    size, replicas = 1200, world // inside
    answers = new_job(variables=variables).call(
        world, "reductions:sums", ranks_per_pod=inside, algorithm="Hierarchical", sizes=[size]
    )
    of_leader = (inside - 1) * size * FLOAT + 2 * size * FLOAT * (replicas - 1) // replicas
    for rank, (sent, received) in enumerate(moved(answers)):
        expected = size * FLOAT if rank % inside else of_leader
        assert (sent, received) == (expected, expected), rank
    ring, driver = 2 * size * FLOAT * (world - 1) / world, (world - 1) * size * FLOAT
    assert ring <= of_leader <= driver


@pytest.mark.parametrize(
    ("variables", "kind"), [({}, "SharedMemory"), (NO_MEMORY, "Native")], ids=["memory", "network"]
)
def test_native_is_shared_memory_on_one_host(new_job: NewJob, variables: dict[str, str], kind: str) -> None:
    answers = new_job(variables=variables).call(2, "reductions:sums", algorithm="Native", sizes=[5])
    assert {answer["kind"] for (answer,) in answers} == {kind}


@pytest.mark.parametrize("function", ["small_slots", "small_funnel"])
@pytest.mark.parametrize("world", [2, 3, 5])
def test_chunks_go_round_the_slots_many_times(new_job: NewJob, world: int, function: str) -> None:
    """1000 sums of changing size through slots of 64 numbers: a slot that is overwritten too early is a wrong sum."""
    sizes = [(number * 37) % 1500 + 1 for number in range(300)] + [20_000] * 3
    answers = new_job().call(world, f"reductions:{function}", chunk=256, sizes=sizes)
    assert [answer for found in answers for answer in found if answer != "right"] == []


def test_a_peer_that_has_ended_after_its_part_ends_no_wait_for_another_one(new_job: NewJob) -> None:
    """Of the last exchange of a training, one rank may have all before another one was told of it."""
    new_job().call(3, "reductions:outlive_a_peer")


@pytest.mark.parametrize("world", [2, 3])
def test_a_dead_peer_ends_the_wait(new_job: NewJob, world: int) -> None:
    job = new_job().calling("reductions:lose_a_peer", last=world - 1)
    running = job.start(world)
    assert running.wait_for(world - 1) == -9
    assert [running.wait_for(rank) for rank in range(world - 1)] == [0] * (world - 1), running.output()


@pytest.mark.parametrize("world", [2, 3, 4])
def test_shards_are_gathered_and_scattered_as_torch_does(new_job: NewJob, world: int) -> None:
    """300,000 numbers are several chunks of a slot, and 100,003 divide by nothing."""
    dtypes = ["float32", "bfloat16", "float64", "uint8"]
    answers = new_job().call(world, "reductions:shards", sizes=[1, 7, 1000, 100_003, 300_000], dtypes=dtypes)
    assert answers == [[{"gathered": True, "scattered": True}] * 20] * world


@pytest.mark.parametrize("world", [2, 3, 4])
def test_torch_s_collectives_go_through_memory_where_ranks_share_it(new_job: NewJob, world: int) -> None:
    """Whole numbers, which every order adds up to the same; what no slot is for goes to gloo."""
    sizes, dtypes = [1, 7, 100_003], ["float32", "bfloat16", "float64", "int64"]
    answers = new_job().call(world, "reductions:host_group", sizes=sizes, dtypes=dtypes)
    assert answers == [{"backend": "trainmaster", "wrong": []}] * world


def test_torch_s_collectives_are_gloo_s_where_ranks_are_apart(new_job: NewJob) -> None:
    job = new_job(variables=NO_MEMORY)
    answers = job.call(2, "reductions:host_group", sizes=[7], dtypes=["float32"])
    assert [answer["wrong"] for answer in answers] == [[], []]
    assert "trainmaster" not in answers[0]["backend"]

"""Strategies that split the model: OneDevice's losses, and 1/N of its memory.

The tolerance is 1e-5 relative for the first ten steps: float32 sums in another order, and no more.
"""

from dataclasses import replace

import pytest

from tests.trainer.collectives.test_collectives import NO_MEMORY
from tests.trainer.ranks import Job, NewJob, Options, read_json
from tests.trainer.strategies.test_strategies import TASKS, TOLERANCE

STEPS = 10
MORE = {"digits": {"layers": 3}, "text": {"layers": 2, "heads": 4}}  # four layers each, at least
SLOW: Options = {"seconds": 0.04}  # so that the kill comes before the end
ORACLE: dict[str, Job] = {}

# Strategy, options, and the numbers of ranks to try with digits and with text: what text would repeat of a Mesh,
# test_numerics.py has.
CASES: list[tuple[str, Options, dict[str, tuple[int, ...]]]] = [
    ("FullySharded", {}, {"digits": (1, 2, 4), "text": (3,)}),
    ("Pipeline", {}, {"digits": (1, 3), "text": (2, 4)}),
    ("Pipeline", {"schedule": "GPipe", "microBatches": 3}, {"digits": (4,), "text": (2,)}),
    ("Tensor", {}, {"digits": (1, 2), "text": (4,)}),
    ("Mesh", {"data": 2, "tensor": 2}, {"digits": (4,)}),
    ("Mesh", {"sharded": 2, "pipeline": 2}, {"digits": (4,), "text": (4,)}),
    ("Mesh", {"data": 2, "sharded": 2}, {"digits": (4,)}),
    ("Mesh", {"pipeline": 2, "tensor": 2}, {"digits": (4,)}),
    ("Mesh", {"sharded": 3, "tensor": 2}, {"digits": (6,)}),
]


def plan(name: str) -> Options:
    """50 is not divisible by 3 or 4, so shares of unequal size are weighed too."""
    task: Options = TASKS[name]
    arguments = {**task["arguments"], **MORE[name]}
    task = {**task, "task": "split_tasks:WithoutPickle"} if name == "digits" else task
    return {**task, "arguments": arguments, "steps": STEPS, "checkpoint_every": STEPS, "global_batch_size": 50}


def undisturbed(new_job: NewJob, name: str) -> Job:
    """OneDevice's run, made once."""
    if name not in ORACLE:
        ORACLE[name] = new_job("one", strategy="OneDevice", **plan(name)).run(1)
    return ORACLE[name]


@pytest.mark.parametrize(
    ("name", "strategy", "options", "worlds"),
    [
        (name, strategy, options, worlds[name])
        for name in TASKS
        for strategy, options, worlds in CASES
        if name in worlds
    ],
)
def test_losses_equal_those_of_one_device(
    new_job: NewJob, name: str, strategy: str, options: Options, worlds: tuple[int, ...]
) -> None:
    """And no object is pickled on the way: the digits do not let anybody do so."""
    expected = undisturbed(new_job, name)
    for world in worlds:
        job = new_job(f"world-{world}", strategy=strategy, strategy_options=options, **plan(name)).run(world)
        assert job.losses() == pytest.approx(expected.losses(), rel=TOLERANCE), world
        assert job.result()["metrics"] == pytest.approx(expected.result()["metrics"], rel=1e-3)


@pytest.mark.parametrize(
    ("strategy", "options", "world"), [("FullySharded", {}, 3), ("Mesh", {"data": 2, "sharded": 2}, 4)]
)
def test_so_they_are_between_hosts(new_job: NewJob, strategy: str, options: Options, world: int) -> None:
    """Which share no memory: torch's own collectives."""
    job = new_job(strategy=strategy, strategy_options=options, variables=NO_MEMORY, **plan("text")).run(world)
    assert job.losses() == pytest.approx(undisturbed(new_job, "text").losses(), rel=TOLERANCE)


@pytest.mark.parametrize("world", [3])
def test_tables_that_do_not_divide_are_split_all_the_same(new_job: NewJob, world: int) -> None:
    """128 characters among three ranks; heads and hidden units divide."""
    text: Options = TASKS["text"]
    task = {**plan("text"), "arguments": {**text["arguments"], "heads": 3, "width": 24}}
    expected = new_job("one", strategy="OneDevice", **task).run(1)
    job = new_job("three", strategy="Tensor", **task).run(world)
    assert job.losses() == pytest.approx(expected.losses(), rel=TOLERANCE)


@pytest.mark.parametrize(
    ("strategy", "options", "world", "most"),
    [
        ("FullySharded", {}, 4, 0.26),
        ("Tensor", {}, 4, 0.27),
        ("Pipeline", {}, 3, 0.39),  # two layers of five and a bit
        ("Mesh", {"sharded": 2, "tensor": 2}, 4, 0.27),
    ],
)
def test_each_rank_holds_its_part_only(
    new_job: NewJob, strategy: str, options: Options, world: int, most: float
) -> None:
    """Bytes of parameters and moments, rank by rank: about 1/N, but for what does not divide."""
    counts = []
    for kind, ranks in (("OneDevice", 1), (strategy, world)):
        job = new_job(kind, strategy=kind, task="split_tasks:WeighedDigits", global_batch_size=48, steps=2)
        job.folder.mkdir()
        arguments = {"folder": str(job.folder), "hidden": 64, "layers": 5}
        job.but(arguments=arguments, strategy_options=options if ranks > 1 else {}).run(ranks)
        counts.append([read_json(job.folder / f"bytes-{rank}") for rank in range(ranks)])
    (whole,), parts = counts
    assert whole["moments"] == 2 * whole["parameters"] > 50_000
    for what in whole:
        assert max(part[what] for part in parts) <= most * whole[what], what
        assert sum(part[what] for part in parts) == pytest.approx(whole[what], rel=0.05), what


@pytest.mark.parametrize(
    ("strategy", "options", "world"),
    [
        ("Pipeline", {"microBatches": 5}, 3),
        ("Tensor", {}, 2),
        ("Mesh", {"sharded": 2, "pipeline": 2}, 4),
    ],
)
def test_a_resumed_run_ends_in_the_same_bits(new_job: NewJob, strategy: str, options: Options, world: int) -> None:
    task = {"task": "split_tasks:TwoGroups", "arguments": SLOW, "checkpoint_every": 3, "global_batch_size": 32}
    whole = new_job("whole", strategy=strategy, strategy_options=options, **task).but(steps=9).run(world)
    job = new_job("parts", strategy=strategy, strategy_options=options, **task).but(steps=9)
    running = job.start(world)
    running.reach(4)
    running.kill()
    job.run(world, attempt=2)
    assert job.losses() == whole.losses()
    assert job.manifest(9)["model_sha256"] == whole.manifest(9)["model_sha256"]


@pytest.mark.parametrize(
    ("strategy", "options", "world"),
    [("FullySharded", {}, 3), ("Pipeline", {}, 2), ("Mesh", {"sharded": 2, "tensor": 2}, 4)],
)
def test_memory_has_every_rank_s_part(new_job: NewJob, strategy: str, options: Options, world: int) -> None:
    """No checkpoint before the kill: all ranks go on from the last step that all of them have in memory."""
    task = {"task": "split_tasks:TwoGroups", "arguments": SLOW, "checkpoint_every": 1000, "memory_every": 1}
    plan = {"strategy": strategy, "strategy_options": options, "steps": 12, "global_batch_size": 32, **task}
    whole = new_job("whole", **plan).run(world)
    job = replace(new_job("parts", **plan), memory=True)
    running = job.start(world)
    running.reach(4)
    running.kill()
    job.run(world, attempt=2)
    assert job.losses() == whole.losses()
    assert job.manifest(12)["model_sha256"] == whole.manifest(12)["model_sha256"]
    assert min(line["step"] for line in job.lines() if line["attempt"] == 2) > 1

"""Every synchronous strategy gives OneDevice's losses on the same seed and global batch.

The tolerance is 1e-5 relative for the first ten steps: float32 sums in another order, and no more.
"""

import pytest
from trainmaster.wire.strategies import INDEPENDENT, STRATEGIES, where
from trainmaster_trainer.checkpoint.checkpointable import Snapshots
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.loop_independent import LOOPS
from trainmaster_trainer.strategies import CLASSES, find_strategy

from tests.trainer.ranks import Job, NewJob, Options

TOLERANCE = 1e-5
STEPS = 10
TASKS = {
    "digits": {"task": "trainmaster_trainer.tasks.digits:Digits", "arguments": {"hidden": 32}},
    "text": {
        "task": "trainmaster_trainer.tasks.text:Text",
        "arguments": {"layers": 1, "width": 16, "heads": 2, "context": 16, "bytes": 100_000},
    },
}
ORACLE: dict[str, Job] = {}
ONE_MACHINE = ("Mirrored", "CentralStorage")
SYNCHRONOUS: list[tuple[str, Options]] = [
    ("AllReduce", {}),
    ("AllReduce", {"algorithm": "Ring"}),
    ("AllReduce", {"algorithm": "Hierarchical"}),
    ("AllReduce", {"algorithm": "Driver"}),
    ("Mirrored", {"reduction": "Native"}),
    ("Mirrored", {"reduction": "HierarchicalCopy"}),
    ("Mirrored", {"reduction": "OneDevice"}),
    ("CentralStorage", {}),
]


@pytest.fixture(scope="module", params=TASKS)
def task(request: pytest.FixtureRequest) -> Options:
    # 50 is not divisible by 3 or 4, so shares of unequal size are weighed too.
    return {**TASKS[request.param], "steps": STEPS, "checkpoint_every": STEPS, "global_batch_size": 50}


def undisturbed(new_job: NewJob, task: Options) -> Job:
    """Return OneDevice's run, which is made once."""
    name = task["task"]
    if name not in ORACLE:
        ORACLE[name] = new_job("one", strategy="OneDevice", **task).run(1)
    return ORACLE[name]


def inside(strategy: str, world: int) -> int:
    """Ranks per replica: two where that makes two levels, all where there is one machine."""
    if strategy in ONE_MACHINE:
        return world
    return 2 if world == 4 else 1


@pytest.mark.parametrize(("strategy", "options"), SYNCHRONOUS, ids=str)
def test_losses_equal_those_of_one_device(new_job: NewJob, task: Options, strategy: str, options: Options) -> None:
    expected = undisturbed(new_job, task)
    for world in (1, 2, 3, 4):
        job = new_job(f"world-{world}", strategy=strategy, strategy_options=options, **task)
        assert job.run(world, ranks_per_pod=inside(strategy, world)).losses() == pytest.approx(
            expected.losses(), rel=TOLERANCE
        ), world
        assert job.result()["metrics"] == pytest.approx(expected.result()["metrics"], rel=1e-3)


def test_a_batch_smaller_than_one_per_rank_in_some_steps_only_is_still_exact(new_job: NewJob) -> None:
    # 37 samples in batches of 30: the second batch runs over the end of the epoch.
    expected = new_job("one", strategy="OneDevice", global_batch_size=30).run(1).losses()
    assert new_job("four", global_batch_size=30).run(4).losses() == pytest.approx(expected, rel=TOLERANCE)


def test_equal_weights_have_equal_hashes_at_any_world_size(new_job: NewJob) -> None:
    arguments = {"hidden": 32, "learning_rate": 0.0}
    task = {"task": TASKS["digits"]["task"], "arguments": arguments, "steps": 1}
    hashes = {new_job(f"w{world}", **task).run(world).manifest(1)["model_sha256"] for world in (1, 2, 3)}
    assert len(hashes) == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Gossip", "restart individually, they are no group of ranks as here. For a group there are OneDevice"),
        ("AllReduced", "Did you mean 'AllReduce'"),
        ("onedevice", "there is no 'onedevice'"),
    ],
)
def test_an_unknown_strategy_is_named_with_its_likely_spelling(name: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        find_strategy(name)
    assert str(caught.value).startswith("spec.strategy.type: ")


@pytest.mark.parametrize(
    ("changes", "world", "message"),
    [
        ({"strategy": "OneDevice"}, 2, "Set spec.workers.replicas (and gpus) to 1"),
        ({"global_batch_size": 1}, 2, "spec.training.globalBatchSize: 1 samples cannot be shared by 2 ranks"),
        ({"strategy_options": {"algorithm": "Rings"}}, 1, "is not one of Native, Ring"),
        ({"strategy_options": {"speed": 9}}, 1, "spec.strategy.allReduce.speed: AllReduce has no such option"),
    ],
)
def test_what_cannot_work_ends_with_78_and_names_the_field(
    new_job: NewJob, changes: Options, world: int, message: str
) -> None:
    running = new_job(**changes).start(world)
    codes = running.wait()
    assert 78 in codes
    assert {*codes} <= {78, 1}  # 1: a rank that still joins the other, which has left
    assert message in running.output()


def test_every_strategy_is_trained_by_a_class_or_by_loops_of_its_members() -> None:
    """Those of the first kind step together in a group; those of the second restart individually."""
    assert set(CLASSES) == set(STRATEGIES) - set(INDEPENDENT)
    assert {name for name, _ in LOOPS} == set(INDEPENDENT)


def test_the_table_says_whose_snapshots_are_replicated_or_copied() -> None:
    found = {
        kind: {name for name, strategy in CLASSES.items() if strategy.snapshots is kind}
        for kind in (Snapshots.REPLICATED, Snapshots.COPIED)
    }
    assert found == {
        Snapshots.REPLICATED: set(where(lambda traits: traits.replicated_snapshots)),
        Snapshots.COPIED: set(where(lambda traits: traits.copied_snapshots)),
    }

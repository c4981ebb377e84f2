"""Models with parameters that are unused, tied, or used now and then train alike under every strategy.

What a strategy cannot carry is refused with a cure.
"""

from __future__ import annotations

import pytest
from trainmaster_trainer.checkpoint.load import read

from tests.trainer.ranks import NewJob, Options

# (name, strategy and its options, ranks, of which so many are one worker's)
STRATEGIES: dict[str, tuple[Options, int, int]] = {
    "Native": ({"strategy": "AllReduce"}, 3, 1),
    "Ring": ({"strategy": "AllReduce", "strategy_options": {"algorithm": "Ring"}}, 2, 1),
    "Mirrored": ({"strategy": "Mirrored"}, 2, 2),
    "CentralStorage": ({"strategy": "CentralStorage"}, 2, 2),
    "FullySharded": ({"strategy": "FullySharded"}, 2, 1),
    "reproducible": ({"strategy": "AllReduce", "reproducible": True}, 3, 1),
    "LocalSGD": ({"strategy": "LocalSGD", "strategy_options": {"every": 1, "outer": "Average"}}, 1, 1),
}
ORACLE: dict[str, list[float]] = {}
DENSE = ("Native", "Mirrored", "CentralStorage", "FullySharded", "reproducible")


CASES = [
    (task, name)
    for task in ("WithUnused", "WithTiedWeights", "WithExperts", "WithPhases", "WithTransposedWeight")
    for name in STRATEGIES
    # Its ranks must use the same parameters at every step, and those of a layer have one dtype.
    if name != "FullySharded" or task not in ("WithExperts", "WithPhases")
]


def plan(task: str) -> Options:
    """Three ranks have equal shares of a batch, and two have not."""
    return {"task": f"odd_tasks:{task}", "global_batch_size": 9, "steps": 8, "checkpoint_every": 8}


def undisturbed(new_job: NewJob, task: str) -> list[float]:
    """Return the losses of OneDevice, which are made once."""
    if task not in ORACLE:
        ORACLE[task] = new_job("one", **plan(task), strategy="OneDevice").run(1).losses()
    return ORACLE[task]


@pytest.mark.parametrize(("task", "name"), CASES)
def test_the_losses_are_those_of_one_device(new_job: NewJob, task: str, name: str) -> None:
    strategy, ranks, inside = STRATEGIES[name]
    job = new_job("many", **plan(task), **strategy).run(ranks, ranks_per_pod=inside)
    assert job.losses() == pytest.approx(undisturbed(new_job, task), rel=1e-4)


@pytest.mark.parametrize(("task", "name"), [case for case in CASES if case[1] in DENSE and case[0] != "WithPhases"])
def test_they_are_so_in_parts_too(new_job: NewJob, task: str, name: str) -> None:
    strategy, ranks, inside = STRATEGIES[name]
    job = new_job("many", **plan(task), **strategy, micro_batch_size=2).run(ranks, ranks_per_pod=inside)
    assert job.losses() == pytest.approx(undisturbed(new_job, task), rel=1e-4)


@pytest.mark.parametrize("strategy", ["FullySharded", "Pipeline"])
def test_an_optimizers_own_counter_outlives_a_restart_where_parameters_are_divided(
    new_job: NewJob, strategy: str
) -> None:
    plan: Options = {"task": "odd_tasks:WithCounter", "strategy": strategy}
    whole = new_job("whole", **plan).but(steps=9).run(2)
    job = new_job("parts", **plan).but(steps=4).run(2).but(steps=9).run(2, attempt=2)
    assert job.losses() == whole.losses()
    assert job.manifest(9)["scalars"]["optimizer"]["own"] == {"counter": {"steps": 9}}


@pytest.mark.parametrize("task", ["WithUnused", "WithExperts", "WithCounter"])
def test_resumed_is_undisturbed_bit_by_bit(new_job: NewJob, task: str) -> None:
    plan: Options = {"task": f"odd_tasks:{task}", "global_batch_size": 9, "strategy": "AllReduce"}
    whole = new_job("whole", **plan).but(steps=9).run(3)
    job = new_job("parts", **plan).but(steps=4).run(3).but(steps=9).run(3, attempt=2)
    assert job.manifest(9)["model_sha256"] == whole.manifest(9)["model_sha256"]


@pytest.mark.parametrize("name", DENSE)
def test_gradients_that_name_rows_are_refused(new_job: NewJob, name: str) -> None:
    strategy, ranks, inside = STRATEGIES[name]
    running = new_job(task="odd_tasks:WithSparseRows", **strategy).start(ranks, ranks_per_pod=inside)
    assert 78 in running.wait()
    assert "spec.training.task: the layer '0' has sparse gradients" in running.output()
    assert "sparse=False" in running.output()


def test_layers_of_several_dtypes_are_refused(new_job: NewJob) -> None:
    running = new_job(task="odd_tasks:WithPhases", strategy="FullySharded").start(2)
    assert 78 in running.wait()
    assert "have several dtypes: line.weight (float32), waves (complex64). Give them one" in running.output()


@pytest.mark.parametrize("strategy", ["OneDevice", "FullySharded"])
def test_an_optimizer_that_wants_to_compute_the_loss_is_refused(new_job: NewJob, strategy: str) -> None:
    running = new_job(task="odd_tasks:WithClosure", strategy=strategy).start(1 if strategy == "OneDevice" else 2)
    assert 78 in running.wait()
    assert "LBFGS, computes the loss several times in one step" in running.output()


@pytest.mark.parametrize("task", ["WithSparseRows", "WithPhases"])
def test_local_sgd_trains_them(new_job: NewJob, task: str) -> None:
    options = {"every": 1, "outer": "Average"}
    job = new_job("two", **plan(task), strategy="LocalSGD", strategy_options=options).run(2)
    assert job.losses() == pytest.approx(undisturbed(new_job, task), rel=1e-4)


@pytest.mark.parametrize("parts_of", [None, 2])
def test_a_loss_that_depends_on_less_later_on_says_so(new_job: NewJob, parts_of: int | None) -> None:
    running = new_job(task="odd_tasks:Changing", strategy="AllReduce", steps=50, micro_batch_size=parts_of).start(2)
    assert 1 in running.wait()
    assert "did not depend on every parameter that the first step's loss depended on" in running.output()


def test_what_a_layer_of_a_pipeline_raises_stays_what_it_is(new_job: NewJob) -> None:
    """A class of failure is found by the error's class."""
    running = new_job(task="odd_tasks:Breaking", strategy="Pipeline").start(2)
    assert 1 in running.wait()
    assert "\nMemoryError: a layer is out of memory" in running.output()
    assert "failed to run forward" not in running.output()


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("WithDoublePhases", "table of the model of WithDoublePhases is torch.complex128, which a checkpoint cannot"),
        ("WithStranger", "a parameter of shape [5] that is not the model's"),
        ("WithExtraState", "1._extra_state of the model of WithExtraState is dict, which a checkpoint cannot"),
    ],
)
@pytest.mark.parametrize("strategy", ["OneDevice", "Pipeline"])
def test_what_no_checkpoint_could_hold_is_refused_at_the_start(
    new_job: NewJob, task: str, words: str, strategy: str
) -> None:
    ranks = 1 if strategy == "OneDevice" else 2
    arguments = {"words": True} if task == "WithExtraState" else {}
    running = new_job(task=f"odd_tasks:{task}", arguments=arguments, strategy=strategy).start(ranks)
    assert 78 in running.wait()
    assert words in running.output()


MESH: Options = {"strategy": "Mesh", "strategy_options": {"data": 2, "sharded": 1, "pipeline": 1, "tensor": 1}}


@pytest.mark.parametrize("strategy", [{"strategy": "FullySharded"}, MESH], ids=["FullySharded", "Mesh"])
@pytest.mark.parametrize("parts_of", [None, 2])
def test_ranks_that_use_different_parameters_are_noticed_before_that_is_kept(
    new_job: NewJob, strategy: Options, parts_of: int | None
) -> None:
    """Torch would add up one expert's gradient and the other's, as they lie in the same place."""
    plan: Options = {"task": "odd_tasks:WithRoutes", "steps": 50, "checkpoint_every": 1, **strategy}
    job = new_job(**plan, micro_batch_size=parts_of)
    running = job.start(2)
    assert 78 in running.wait()
    assert "a step's gradients were of different parameters on different ranks" in running.output()
    assert not list(job.checkpoints().glob("step-*")), "the first step already was a mixed one"


@pytest.mark.parametrize("name", [name for name in STRATEGIES if name != "CentralStorage"])
def test_extra_state_that_is_a_tensor_outlives_a_restart(new_job: NewJob, name: str) -> None:
    strategy, ranks, inside = STRATEGIES[name]
    plan: Options = {"task": "odd_tasks:WithExtraState", "global_batch_size": 9, **strategy}
    whole = new_job("whole", **plan).but(steps=6).run(ranks, ranks_per_pod=inside)
    job = new_job("parts", **plan).but(steps=4).run(ranks, ranks_per_pod=inside)
    job = job.but(steps=6).run(ranks, attempt=2, ranks_per_pod=inside)
    assert job.manifest(6)["model_sha256"] == whole.manifest(6)["model_sha256"]


def test_extra_state_that_would_stay_behind_is_refused(new_job: NewJob) -> None:
    """ParameterServer: test_parameter_server.py."""
    running = new_job(task="odd_tasks:WithExtraState", strategy="CentralStorage").start(2, ranks_per_pod=2)
    assert 78 in running.wait()
    assert "keeps 1._extra_state (get_extra_state), which CentralStorage does not carry" in running.output()


def test_a_buffer_that_is_replaced_is_averaged_where_models_are(new_job: NewJob) -> None:
    plan: Options = {"task": "odd_tasks:WithReplacedBuffer", "strategy_options": {"every": 1, "outer": "Average"}}
    alone = new_job("one", task=plan["task"], strategy="OneDevice").run(1)
    job = new_job("many", strategy="LocalSGD", **plan).run(2)
    assert job.losses() == pytest.approx(alone.losses(), rel=1e-4)
    found, expected = (read(one.checkpoints(), 6).state.tensors["model/mean"] for one in (job, alone))
    assert found.tolist() == pytest.approx(expected.tolist(), rel=1e-4)

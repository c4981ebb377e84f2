"""Finding a task: each mistake is named with its field and its cure. And the example in the documentation works."""

import hashlib
import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from trainmaster_trainer import task as task_module
from trainmaster_trainer.answers import figures_of, loss_of, make_model, metrics_of
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.rates import Rates
from trainmaster_trainer.task import load_task
from trainmaster_trainer.tasks.digits import Digits
from typing_extensions import override

from tests.trainer.ranks import HERE, NewJob, Options

HALF = """
from trainmaster_trainer.task import Task

class Half(Task):
    def model(self): ...
    def optimizer(self, parameters): ...
"""


@pytest.mark.parametrize(
    ("reference", "arguments", "message"),
    [
        ("", {}, "spec.training.task: '' is not of the form 'module:Class'"),
        ("small_tasks", {}, "is not of the form 'module:Class'"),
        ("nowhere.at_all:X", {}, "there is no module 'nowhere'. It was looked for in the working directory"),
        ("small_tasks.deeper:X", {}, "there is no module 'small_tasks.deeper'"),
        ("needs_what_is_missing:X", {}, "'needs_what_is_missing' needs the module 'leftpad', which this image"),
        ("not_python:X", {}, "'not_python' is not valid Python"),
        (
            "small_tasks:Lines",
            {},
            "has no 'Lines'; its tasks are ['Line', 'Tallied', 'LineWithRunningMeans', ",
        ),
        ("small_tasks:not_a_task", {}, "is no Task. Derive the class from trainmaster_trainer.task.Task"),
        ("half_a_task:Half", {"size": 1}, "half_a_task:Half has no method dataset and no method loss of its own"),
        ("small_tasks:Line", {"widht": 2}, "spec.training.arguments.widht: small_tasks:Line has no such argument"),
        ("small_tasks:Line", {"widht": 2}, "Did you mean 'width'?"),
        (
            "small_tasks:Needy",
            {},
            "spec.training.arguments.size: small_tasks:Needy needs it; it takes (size: int, colour",
        ),
        ("small_tasks:Needy", {"size": 1, "colour": "blue"}, "blue is out of stock"),
        ("trainmaster_trainer.tasks.text:Text", {"width": 10, "heads": 3}, "10 is not a multiple of heads, 3"),
        ("trainmaster_trainer.tasks.text:Text", {"bytes": 10}, "context: 64 is more than the text has; raise bytes"),
    ],
)
def test_each_mistake_has_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: str, arguments: Options, message: str
) -> None:
    (tmp_path / "needs_what_is_missing.py").write_text("import leftpad")
    (tmp_path / "not_python.py").write_text("def def")
    (tmp_path / "half_a_task.py").write_text(HALF)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(HERE)
    with pytest.raises(ConfigurationError) as caught:
        load_task(reference, arguments)
    assert str(caught.value).startswith("spec.training.")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Linear(2, 2).requires_grad_(requires_grad=False), "no parameter that requires a gradient"),
        (
            nn.Sequential(nn.LazyLinear(2), nn.LazyBatchNorm1d()),
            "0.weight, 0.bias, 1.weight of the model of Given have no shape",
        ),
        (nn.ReLU(), "nothing is to be trained"),
        (None, "model() of Given gave NoneType. Return a torch.nn.Module"),
    ],
)
def test_a_model_that_cannot_be_trained_is_refused(model: nn.Module, message: str) -> None:
    class Given(Digits):
        @override
        def model(self) -> nn.Module:
            return model

    with pytest.raises(ConfigurationError, match=re.escape(message)) as caught:
        make_model(Given())
    assert str(caught.value).startswith("spec.training.task: ")


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (torch.ones(3), "loss() of Given gave a tensor of shape [3]. Return the mean of the samples' losses"),
        (1.5, "loss() of Given gave float. Return the mean"),
        ((torch.ones(()), "3"), "loss() of Given gave tuple. Return the mean"),
        (None, "loss() of Given gave NoneType. Return the mean"),
        (torch.tensor(1.5), "no gradient leads from what loss() of Given gave to the model. Compute it from the"),
    ],
)
def test_a_loss_that_cannot_be_followed_back_is_refused(loss: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        loss_of(answering(loss=loss), None, None)


@pytest.mark.parametrize("loss", [torch.tensor(2.0), torch.tensor([2.0]), torch.tensor([[2.0]])])
def test_a_loss_of_one_number_has_no_dimension(loss: Tensor) -> None:
    assert loss_of(answering(loss=loss.requires_grad_()), None, None).value.shape == ()


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        (None, "evaluate() of Given gave NoneType. Return a dict of numbers by name"),
        (0.5, "evaluate() of Given gave float. Return a dict"),
    ],
)
def test_figures_that_are_no_numbers_are_refused(figures: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        figures_of(answering(figures=figures), nn.ReLU())


@pytest.mark.parametrize("factor", [None, "a lot"])
def test_a_learning_rate_factor_that_is_no_number_is_refused(factor: object) -> None:
    class Given(Digits):
        @override
        def learning_rate_factor(self, fraction: float) -> Any:
            return factor

    task = Given()
    rates = Rates(task, task.optimizer(list(task.model().parameters())))
    with pytest.raises(ConfigurationError, match=re.escape(f"learning_rate_factor(0.25) of Given gave {factor!r}")):
        rates.set(0.25)


class Adafactor(torch.optim.SGD):
    """Finds its rate by itself."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=0.1)
        self.param_groups[0]["lr"] = None


def test_an_optimizer_that_finds_its_own_rate_is_left_alone_unless_a_factor_wants_it() -> None:
    class Scheduled(Digits):
        @override
        def learning_rate_factor(self, fraction: float) -> float:
            return 1 - fraction

    optimizer = Adafactor(Digits().model().parameters())
    Rates(Digits(), optimizer).set(0.5)
    assert optimizer.param_groups[0]["lr"] is None
    with pytest.raises(ConfigurationError, match="the lr of Adafactor is None, and Scheduled has a learning_rate_fact"):
        Rates(Scheduled(), optimizer)


def test_evaluation_leaves_each_module_in_its_own_mode() -> None:
    model = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(2).eval())
    figures_of(answering(figures={}), model)
    assert [module.training for module in model.modules()] == [True, True, False]
    with pytest.raises(ConfigurationError):
        figures_of(answering(figures=None), model.eval())
    assert not any(module.training for module in model.modules())


NUMBERS = (1, True, 0.5, np.float16(0.5), np.int64(3), np.array(0.5), np.ones((1, 1)), torch.tensor([2]))
NO_NUMBERS: tuple[Any, ...] = (
    1 + 2j,
    np.complex64(1 + 2j),
    np.ones(1, complex),
    torch.tensor([1 + 2j]),
    None,
    {},
    "0.5",
    10**400,
)


@pytest.mark.parametrize("value", [*NO_NUMBERS, np.array("0.5"), np.ones(2), np.ones(0), torch.ones(2)])
def test_what_is_no_number_is_refused_as_a_metric_and_as_a_figure(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"metrics\(\) of Given gave .* as 'odd'. Give one number"):
        metrics_of(answering(metrics={"odd": value}), None, None, torch.device("cpu"))
    with pytest.raises(ConfigurationError, match=r"evaluate\(\) of Given gave .* as 'odd'. Give one number"):
        figures_of(answering(figures={"odd": value}), nn.ReLU())


@pytest.mark.parametrize("value", [*NUMBERS, torch.ones(1, 1).bfloat16()])
def test_a_metric_or_figure_may_be_a_number_of_whatever_kind(value: Any) -> None:
    """A metric is on the device of the loss: steps that come after a restart are put beside those before it."""
    found = metrics_of(answering(metrics={"val/top 5": value}), None, None, torch.device("meta"))["val/top 5"]
    assert (found.shape, found.dtype, found.device.type) == ((), torch.float32, "meta")
    figure = figures_of(answering(figures={"val/top 5": value}), nn.ReLU())["val/top 5"]
    assert (type(figure), figure) == (float, value)


@pytest.mark.parametrize("name", ["", "x" * 129, 3, "two\nlines", "a\x1b[31m"])
def test_a_name_that_cannot_be_shown_is_refused(name: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"metrics\(\) of Given gave a metric called .*Choose a name"):
        metrics_of(answering(metrics={name: 0.5}), None, None, torch.device("cpu"))
    with pytest.raises(ConfigurationError, match=r"evaluate\(\) of Given gave a metric called .*Choose a name"):
        figures_of(answering(figures={name: 0.5}), nn.ReLU())


@pytest.mark.parametrize("name", ["loss", "validation_loss"])
def test_a_name_of_a_mean_of_the_loss_is_refused(name: str) -> None:
    """The mean of the validation samples' losses would be overwritten by a metric of its name."""
    with pytest.raises(ConfigurationError, match=rf"metrics\(\) of Given gave a metric called '{name}'. Choose a name"):
        metrics_of(answering(metrics={name: 0.5}), None, None, torch.device("cpu"))


def test_more_metrics_than_can_be_shown_are_refused() -> None:
    many = {str(number): 1.0 for number in range(10_000)}
    with pytest.raises(ConfigurationError, match=r"gave 10000 metrics. Return 32 at most"):
        metrics_of(answering(metrics=many), None, None, torch.device("cpu"))


def answering(loss: Any = None, figures: Any = None, metrics: Any = None) -> Digits:
    """A task with these answers."""

    class Given(Digits):
        @override
        def loss(self, outputs: Any, targets: Any) -> Any:
            return loss

        @override
        def metrics(self, outputs: Any, targets: Any) -> dict[str, Any]:
            return metrics or {}

        @override
        def evaluate(self, model: nn.Module) -> Any:
            return figures

    return Given()


def test_the_example_in_the_docstring_is_a_whole_task(tmp_path: Path, new_job: NewJob) -> None:
    text = task_module.__doc__ or ""
    code = re.search(r"in `rings.py`:\n\n(.*?)\n\nThe same class", text, re.DOTALL)
    assert code
    (tmp_path / "rings.py").write_text(textwrap.dedent(code[1]))
    job = new_job(
        task="rings:Rings",
        arguments={"width": 64},
        working_directory=str(tmp_path),
        steps=60,
        global_batch_size=256,
        checkpoint_every=60,
    )
    assert job.run(2).result()["metrics"]["accuracy"] > 0.8


def test_digits_are_the_table_that_was_published() -> None:
    (images, labels), (test_images, test_labels) = Digits().dataset(), Digits()._test
    pixels = np.rint(torch.cat([test_images, images]).numpy() * 16).astype(np.uint8)
    table = np.empty((1797, 65), np.uint8)
    table[np.random.RandomState(0).permutation(1797)] = np.hstack([pixels, torch.cat([test_labels, labels])[:, None]])
    published = "68aea062d35a127749050fa0e52dca09d6569ac08092c925610e0954e172dde2"  # of scikit-learn's copy as uint8
    assert hashlib.sha256(table.tobytes()).hexdigest() == published

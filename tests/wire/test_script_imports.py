"""Which framework a script is written for, by what it imports: plain cases are told, and doubtful ones are not."""

from __future__ import annotations

from pathlib import Path

import pytest
from trainmaster.wire.frameworks import FRAMEWORKS
from trainmaster.wire.script_imports import of_script, other_frameworks

ALONE = {name: f"import os\nimport numpy as np\nimport {traits.imports[0]}\n" for name, traits in FRAMEWORKS.items()}
NAMED = [name for name in FRAMEWORKS if name != "SageMaker"]


def others(folder: Path, framework: str, text: str, **modules: str) -> tuple[str, ...]:
    """The other frameworks that train.py is plainly written for; `modules` lie beside it."""
    for name, source in {"train": text, **modules}.items():
        path = folder / f"{name.replace('__in__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return other_frameworks([folder / "train.py"], [str(folder)], framework)


@pytest.mark.parametrize("framework", NAMED)
def test_a_script_of_each_other_framework_is_told(tmp_path: Path, framework: str) -> None:
    for other in NAMED:
        assert others(tmp_path, framework, ALONE[other]) == (() if other == framework else (other,))


@pytest.mark.parametrize(
    ("framework", "text"),
    [
        ("Torch", "import xgboost\nif __name__ == '__main__':\n    import lib.model\n"),
        ("Torch", "import flax, optax, jax\nfrom trainmaster_trainer import session\n"),
        ("Torch", "import sklearn\nfrom tensorflow import keras\nopen('torch.txt')\n"),
        ("JAX", "from mpi4py import MPI\nfrom lib import model\n"),
        ("LightGBM", '"""Not by lightgbm: this is for xgboost."""\nwith open("a"):\n    import xgboost\n'),
        ("Spark", "import lightning\n"),
    ],
)
def test_it_is_told_in_whatever_form_it_is_written(tmp_path: Path, framework: str, text: str) -> None:
    assert others(tmp_path, framework, text, lib__in__model="import pandas\n")


@pytest.mark.parametrize(
    ("framework", "text"),
    [
        # What has its own framework somewhere.
        ("Torch", "import torch\nimport xgboost  # for its DMatrix\n"),
        ("Torch", "import horovod.torch as hvd, torch\n"),
        ("Torch", "import ray\ndef train():\n    from lightning import Trainer\n"),
        ("Torch", "import xgboost\nimport lib.own\n"),
        ("Torch", "import xgboost\ntry:\n    import torch\nexcept ImportError:\n    torch = None\n"),
        (
            "Torch",
            "import jax\nimport argparse\nargparse.ArgumentParser().add_argument('-b', choices=['jax', 'torch'])\n",
        ),
        ("Ray", "import torch\nfrom lib import start\n"),
        ("Spark", "import elephas, tensorflow\n"),
        ("JAX", "import tensorflow as tf\nimport flax\n"),
        # What may bring its own: a library that is not known, and Keras, which has backends.
        ("Torch", "import jax\nimport transformers\n"),
        ("Torch", "import xgboost\nimport our_company.training\n"),
        ("JAX", "import keras\nimport tensorflow as tf\n"),
        ("Ray", "import xgboost_ray\nimport xgboost\n"),
        ("Spark", "from xgboost.spark import SparkXGBRegressor\n"),
        ("Spark", "import lightgbm.dask\n"),
        ("Torch", "import horovod.spark\n"),
        # What cannot be seen.
        ("Torch", "import jax\nimport importlib\nimportlib.import_module(input())\n"),
        ("Torch", "import jax\nexec(open('more.py').read())\n"),
        ("Torch", "import jax\nfrom lib.broken import x\n"),
        ("Torch", "import jax\nimport subprocess\nsubprocess.run(['/opt/bin/torchrun', 'real.py'])\n"),
        # What finds its group, or its share of the work, by itself.
        ("Torch", "import jax, os\njax.distributed.initialize(process_id=int(os.environ['RANK']))\n"),
        ("Torch", "import xgboost, os\nshare = os.environ['TRAINMASTER_INDEX']\n"),
        ("Torch", "import xgboost, socket\nshare = socket.gethostname()\n"),
        # What is not imported each time.
        ("Torch", "import sys\nif '--export' in sys.argv:\n    import tensorflow\n"),
        ("Torch", "def export():\n    import tensorflow\n"),
        ("Torch", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import jax\n"),
        ("Torch", "import numpy\n"),
        ("SageMaker", "import xgboost\n"),
        ("Fortran", "import xgboost\n"),
    ],
)
def test_what_is_doubtful_is_not_told(tmp_path: Path, framework: str, text: str) -> None:
    more = {"lib__in__own": "import torch\n", "lib__in__start": "import ray\n", "lib__in__broken": "def x(:\n"}
    assert others(tmp_path, framework, text, **more) == ()


def test_a_module_of_the_users_is_no_library_of_its_name(tmp_path: Path) -> None:
    assert others(tmp_path, "Torch", "import ray\nimport xgboost\n", ray="import torch\n") == ()
    (tmp_path / "jax").mkdir()  # a folder of data
    assert others(tmp_path, "Torch", "import jax\n") == ("JAX",)


def test_modules_that_are_installed_are_not_looked_into(tmp_path: Path) -> None:
    """In pods PYTHONPATH may name a folder of them, and JAX has lines that import TensorFlow."""
    installed = tmp_path / "lib" / "site-packages"
    (installed / "jax").mkdir(parents=True)
    (installed / "jax" / "__init__.py").write_text("import torch\n")
    (tmp_path / "train.py").write_text("import jax\n")
    assert other_frameworks([tmp_path / "train.py"], [str(tmp_path), str(installed)], None) == ("JAX",)


def test_a_script_that_is_not_there_or_has_no_end_is_not_judged(tmp_path: Path) -> None:
    assert other_frameworks([tmp_path / "train.py"], [str(tmp_path)], None) == ()
    chain = {f"m{number}": f"import m{number + 1}\n" for number in range(60)}
    assert others(tmp_path, "Torch", "import jax, m0\n", **chain, m60="import torch\n") == ()
    assert others(tmp_path, "Torch", "import jax\n" + "x = 1\n" * 100_000) == ()


def test_modules_that_import_one_another_have_an_end(tmp_path: Path) -> None:
    assert others(tmp_path, "Torch", "import a\n", a="import b\n", b="import a\nfrom . import train\nimport jax\n") == (
        "JAX",
    )
    assert of_script([tmp_path / "train.py"], [str(tmp_path)]).certain == {"jax"}

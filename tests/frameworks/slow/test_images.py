"""The Dockerfiles of frameworks, built without a daemon, and a job in pods of each. No environment is mounted here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.frameworks.slow.test_sagemaker_in_pods import ROWS, with_rows
from tests.onebox.framework_jobs import a_spec_in, said, start_in
from tests.onebox.operator_jobs import Job
from tools.onebox import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]


@pytest.mark.parametrize(
    ("family", "framework", "script", "right"),
    [
        ("jax", "JAX", "jax_sgd.py", "processes=2 total=3"),
        ("boost", "XGBoost", "xgboost_trees.py", "processes=2 total=3 from=0"),
        ("boost", "LightGBM", "lightgbm_trees.py", "machines=2 "),
        ("tensorflow", "TensorFlow", "tensorflow_mirrored.py", "processes=2 from=0"),
    ],
)
def test_a_job_trains_in_the_image_of_its_family(
    job: Callable[[str], Job], family: str, framework: str, script: str, right: str
) -> None:
    image = Cluster().load_framework(family)
    one = start_in(image, job(framework.lower()), framework, f"/scripts/{script}")
    one.wait("Succeeded", 400)
    told = said(one)
    assert len(told) == 2
    assert all(line.startswith(right) for line in told)


def test_sagemakers_toolkit_trains_in_the_image_of_its_family(job: Callable[[str], Job]) -> None:
    """It has /opt/ml of its own, which nothing is mounted over."""
    job("rows").create(ROWS)
    spec = a_spec_in(Cluster().load_framework("sagemaker"), "SageMaker")
    arguments = {"sagemaker_program": "sagemaker_sum.py", "epochs": 2, "lr": 0.1}
    one = job("toolkit").submit(**with_rows(spec, ["train"], arguments))
    one.wait("Succeeded", 400)
    assert sorted(said(one)) == [f"hosts=2 rank={rank} total=30 before=0" for rank in range(2)]

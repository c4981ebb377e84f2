"""The Dockerfiles of frameworks, built without a daemon, and a job in pods of each. No environment is mounted here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cluster.framework_jobs import said, start_in
from tests.cluster.operator_jobs import Job
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

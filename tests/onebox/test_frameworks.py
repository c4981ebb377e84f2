"""Scripts of other frameworks in pods, with environments that are mounted. TensorFlow's: tests/frameworks/slow."""

from collections.abc import Callable, Iterator

import pytest

from tests.onebox.flavours import Flavour
from tests.onebox.framework_jobs import environments, said, start, wait_until_pods_have_ended
from tests.onebox.operator_jobs import Job
from tools.onebox.paths import AGENT_IMAGE

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def job(cluster: Flavour) -> Iterator[Callable[[str], Job]]:
    """A job of this name in a namespace that has the environments."""
    with environments(cluster) as named:
        yield named


def test_jax_finds_its_group_in_pods_and_is_right_after_a_death(job: Callable[[str], Job]) -> None:
    one = start(job("jax"), "JAX", "jax", "/scripts/jax_sgd.py", JAX_PLATFORMS="cpu", DIE_IN_ATTEMPT="1")
    status = one.wait("Succeeded")
    assert said(one) == ["processes=2 total=3"] * 2
    (line,) = status["restarts"]
    assert (line["class"], line["exit"], line["replica"]) == ("Signal", "SIGKILL", "worker-1 rank 1")
    assert line["evidence"] == "rank 1 ended with SIGKILL"
    installers = {pod["spec"]["initContainers"][0]["image"] for pod in one.pods().values()}
    assert installers == {AGENT_IMAGE.removeprefix("docker.io/")}, "no node pulls torch for it"
    assert "JAX" in one.kubectl("get", "tj/jax", "--output=wide")
    wait_until_pods_have_ended(one)


def test_xgboost_goes_on_from_what_it_saved_on_the_claim(job: Callable[[str], Job]) -> None:
    """Its tracker runs beside rank 0, in that pod. Nobody but us makes the job's folder on the claim."""
    one = start(job("trees"), "XGBoost", "boost", "/scripts/xgboost_trees.py", DIE_IN_ATTEMPT="1")
    status = one.wait("Succeeded")
    assert said(one) == ["processes=2 total=3 from=10"] * 2
    assert [line["exit"] for line in status["restarts"]] == ["SIGKILL"]


def test_a_script_that_fails_in_a_pod_says_why_in_the_status(job: Callable[[str], Job]) -> None:
    status = start(job("absent"), "JAX", "boost", "/scripts/jax_sgd.py").wait("Failed")
    assert "No module named 'jax'" in status["message"]
    assert status.get("restartCount", 0) == 0


def test_a_script_of_another_framework_fails_in_a_pod_and_names_the_field(job: Callable[[str], Job]) -> None:
    status = start(job("other"), "LightGBM", "boost", "/scripts/trees_alone.py").wait("Failed")
    assert "training.framework: /scripts/trees_alone.py imports XGBoost and not LightGBM" in status["message"]
    assert status.get("restartCount", 0) == 0

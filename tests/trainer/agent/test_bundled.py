"""The code of a job in a pod: verified and unpacked before anything starts, and where the ranks then are."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from trainmaster.wire import bundle, codec, names
from trainmaster.wire.agent_states import AgentState
from trainmaster.wire.bundle import BundleEntry
from trainmaster.wire.training import TrainingPlan
from trainmaster_trainer.agent import bundled
from trainmaster_trainer.agent.agent_settings import SettingsError

from tests.trainer.agent.intake import Intake
from tests.trainer.agent.machine import SCRIPTS, AgentProcess, SharedParent, Witness

W0 = ("worker", 0)
FILES = [
    BundleEntry("pkg/train.py", (SCRIPTS / "tell.py").read_bytes()),
    BundleEntry("pkg/witness.py", (SCRIPTS / "witness.py").read_bytes()),
    BundleEntry("again", link="pkg/train.py"),
]
ARCHIVE = bundle.pack(FILES)


def mount(folder: Path, packed: bytes) -> Path:
    """The parts as kubelet mounts them: links to the present files, beside its own folder."""
    (folder / "..data").mkdir(parents=True)
    size = max(400, len(packed) // 20)
    for number, start in enumerate(range(0, len(packed), size)):
        (folder / "..data" / f"{number:03}").write_bytes(packed[start : start + size])
        (folder / f"{number:03}").symlink_to(Path("..data", f"{number:03}"))
    return folder


def variables(tmp_path: Path, plan: TrainingPlan, packed: bytes) -> dict[str, str]:
    return {
        names.ENV_CODE: str(mount(tmp_path / "bundle", packed)),
        names.ENV_SCRATCH: str(tmp_path / "scratch"),
        names.ENV_TRAINING: codec.encode(plan).decode(),
    }


@pytest.mark.parametrize(("given", "begins"), [(None, ""), ("pkg", "/pkg"), ("/app", "/app")])
def test_the_plan_begins_where_the_code_lies(tmp_path: Path, given: str | None, begins: str) -> None:
    plan = TrainingPlan("AllReduce", task="a:B", code=bundle.digest(ARCHIVE), working_directory=given)
    environment = variables(tmp_path, plan, bundle.compress(ARCHIVE))
    for _ in range(2):  # an agent that starts anew in the same scratch folder
        environment[names.ENV_TRAINING] = codec.encode(plan).decode()
        bundled.bring(environment)
    code = tmp_path / "scratch" / "code"
    found = codec.decode(TrainingPlan, environment[names.ENV_TRAINING])
    assert found.working_directory == (begins if given == "/app" else f"{code}{begins}")
    assert (code / "again").read_bytes() == FILES[0].data
    assert found.task == plan.task


@pytest.mark.parametrize(
    ("packed", "why"),
    [
        (bundle.compress(bundle.pack(FILES[:1])), "not what was sent"),
        (b"", "not what was sent"),
        (bundle.compress(ARCHIVE)[:-20], "damaged"),
        (bytes(bundle.MOST_BYTES + 1), "more than 8 MiB"),
    ],
)
def test_what_was_not_sent_is_never_unpacked(tmp_path: Path, packed: bytes, why: str) -> None:
    plan = TrainingPlan("AllReduce", task="a:B", code=bundle.digest(ARCHIVE))
    environment = variables(tmp_path, plan, packed or b"")
    with pytest.raises(SettingsError, match=f"spec.training.code: the bundle cannot be used: .*{why}"):
        bundled.bring(environment)
    assert not (tmp_path / "scratch").exists()


def test_an_image_that_was_not_mounted_is_named(tmp_path: Path) -> None:
    """An API server without image volumes drops the source, and a volume without one is an empty folder."""
    environment = variables(tmp_path, TrainingPlan("AllReduce", command=("python", "t.py"), code_image=True), b"")
    shutil.rmtree(tmp_path / "bundle" / "..data")
    with pytest.raises(SettingsError, match=r"spec\.training\.code\.image: no file is in it.*ImageVolume"):
        bundled.bring(environment)
    (tmp_path / "bundle" / "t.py").touch()
    bundled.bring(environment)
    assert codec.decode(TrainingPlan, environment[names.ENV_TRAINING]).working_directory == str(tmp_path / "bundle")


def test_a_job_without_code_is_as_it_was(tmp_path: Path) -> None:
    environment = variables(tmp_path, TrainingPlan("AllReduce", task="a:B", working_directory="x"), b"none")
    before = dict(environment)
    bundled.bring(environment)
    del environment[names.ENV_CODE]
    bundled.bring(environment)
    assert environment == {key: value for key, value in before.items() if key != names.ENV_CODE}


@pytest.fixture
def agent(tmp_path: Path, intake: Intake, shared_parent: SharedParent) -> Iterator[AgentProcess]:
    """An agent of a pod whose job has code, not yet started."""
    plan = TrainingPlan("OneDevice", command=("python3", "pkg/train.py"), code=bundle.digest(ARCHIVE))
    one = AgentProcess(tmp_path, intake, plan)
    one.variables[names.ENV_WARM_SOCKET] = str(shared_parent.path)
    yield one
    one.end()


def test_ranks_run_the_code(tmp_path: Path, agent: AgentProcess, intake: Intake, witness: Witness) -> None:
    mounted = mount(tmp_path / "bundle", bundle.compress(ARCHIVE))
    agent.start(**{names.ENV_CODE: str(mounted)})
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 1)])
    (world,) = witness.wait(what="world")
    assert world["folder"] == str(agent.scratch / "code")
    assert names.ENV_CODE not in world["environment"]
    intake.wait_state(AgentState.FINISHED, 1, W0)


def test_an_agent_with_other_code_ends_before_anything_starts(tmp_path: Path, agent: AgentProcess) -> None:
    shutil.rmtree(agent.scratch)
    mounted = mount(tmp_path / "bundle", bundle.compress(bundle.pack(FILES[:1])))
    agent.start(**{names.ENV_CODE: str(mounted)})
    assert agent.wait() == names.EXIT_BAD_CONFIGURATION
    (line,) = agent.text.splitlines()
    assert line.startswith("trainmaster agent: spec.training.code: the bundle cannot be used: its SHA-256 is ")
    assert line.endswith("Submit the job again")

"""The model in one file that plain torch reads: of every strategy, the newest or the best, out of folder and store."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn
from trainmaster.cli.export import ExportSource, NotFoundError, source_of
from trainmaster.cli.main import main
from trainmaster_trainer import export_model
from trainmaster_trainer.tasks.digits import Digits

from tests.builders import a_job
from tests.trainer.crew import NewCrew
from tests.trainer.ranks import Job, NewJob, Options
from tests.trainer.test_evaluations import SCRIPTED

PAGE = Path(__file__).parents[2] / "docs" / "export.md"
DIGITS: Options = {
    "task": "trainmaster_trainer.tasks.digits:Digits",
    "arguments": {"hidden": 16, "layers": 3},
    "steps": 3,
    "checkpoint_every": 3,
    "global_batch_size": 32,
}
WAYS: list[tuple[str, Options, int]] = [
    ("AllReduce", {}, 2),
    ("CentralStorage", {}, 2),
    ("LocalSGD", {"every": 2}, 2),
    ("FullySharded", {}, 2),
    ("Pipeline", {}, 2),
    ("Tensor", {}, 2),
    ("Mesh", {"pipeline": 2, "tensor": 2}, 4),
]


def in_plain_torch(file: Path) -> float:
    """The loss on the digits that nobody has trained with, of a model that is written down here."""
    parts: list[nn.Module] = []
    for width in (64, 16, 16):
        parts += [nn.Linear(width, 16), nn.ReLU(), nn.Dropout()]
    model = nn.Sequential(*parts, nn.Linear(16, 10)).eval()
    model.load_state_dict(load_file(file))
    images, labels = Digits().validation_dataset()
    with torch.no_grad():
        return float(nn.functional.cross_entropy(model(images), labels))


def exported(job: Job, *options: str) -> Path:
    """The file, written by what the command starts: here it need not import torch once more."""
    file = job.folder / "model.safetensors"
    assert export_model.main([str(job.checkpoints()), "--output", str(file), *options]) == 0
    return file


@pytest.mark.parametrize(("strategy", "options", "ranks"), WAYS)
def test_plain_torch_computes_what_the_ranks_did(new_job: NewJob, strategy: str, options: Options, ranks: int) -> None:
    job = new_job(strategy=strategy, strategy_options=options, **DIGITS).run(ranks, ranks_per_pod=ranks)
    assert in_plain_torch(exported(job)) == pytest.approx(job.result()["metrics"]["validation_loss"], rel=1e-5)


@pytest.mark.parametrize("servers", [2, 0])
def test_that_of_members_that_come_and_go(new_crew: NewCrew, servers: int) -> None:
    job = new_crew(2, servers, **DIGITS).start().finish()
    assert in_plain_torch(exported(job)) == pytest.approx(job.result()["metrics"]["validation_loss"], rel=1e-5)
    assert all(0 <= line["metrics"]["accuracy"] <= 1 for line in job.lines() if "loss" in line)


def test_the_best_one_and_where_it_is_from(new_job: NewJob, capfd: pytest.CaptureFixture[str]) -> None:
    job = new_job(**{**SCRIPTED, "steps": 17}).run(1)
    with safe_open(exported(job, "--best"), "pt") as file:
        assert file.metadata()["trainmaster.step"] == "10"
        assert file.metadata()["trainmaster.model_sha256"] == job.manifest(10)["model_sha256"]
    newest = job.folder / "newest.pt"
    assert main(["export", str(job.folder), "-o", str(newest)]) == 0, "its ending says the format"
    assert int(torch.load(newest, weights_only=True)["steps"]) == 17
    assert newest.stat().st_mode == exported(job).stat().st_mode, "whoever may read the one may read the other"
    assert "the model after step 17, " in capfd.readouterr().out
    assert [main(["export", str(job.folder), "-o", no_file]) for no_file in ("-", "", ".", "x.pt/")] == [2] * 4
    assert "Name one, such as model.safetensors" in capfd.readouterr().err
    shutil.rmtree(job.checkpoints() / "step-00000010")
    assert main(["export", str(job.folder), "-o", str(newest), "--best"]) == 1
    assert "the best checkpoint, of step 10, is not there or not good" in capfd.readouterr().err


def test_a_bad_checkpoint_is_passed_over(new_job: NewJob, capfd: pytest.CaptureFixture[str]) -> None:
    job = new_job(steps=4).run(1)
    shard = next((job.checkpoints() / "step-00000004").glob("shard-*"))
    shard.write_bytes(shard.read_bytes()[:-1] + b"\0")
    with safe_open(exported(job), "pt") as file:
        assert file.metadata()["trainmaster.step"] == "2"
    assert "the checkpoint of step 4 is passed over" in capfd.readouterr().err
    assert export_model.main([str(job.checkpoints()), "--output", str(job.folder / "x"), "--best"]) == 1
    assert "Set spec.checkpoint.best and training.evaluateEverySteps" in capfd.readouterr().err
    assert export_model.main([str(job.checkpoints()), "--output", str(job.folder / "no" / "x")]) == 1
    assert f"--output {job.folder}/no/x: there is no folder {job.folder}/no. Make it" in capfd.readouterr().err


def test_that_in_an_object_store(new_job: NewJob, tmp_path: Path) -> None:
    store = f"file://{tmp_path}/store"
    job = new_job(**DIGITS, checkpoint_url=store).run(2)
    file = tmp_path / "model.safetensors"
    assert main(["export", store, "-o", str(file)]) == 0
    assert in_plain_torch(file) == pytest.approx(job.result()["metrics"]["validation_loss"], rel=1e-5)


def test_a_job_is_found_by_its_name(
    new_job: NewJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    job = new_job(steps=2).run(1)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(job.folder, tmp_path / ".trainmaster" / "line-20261125-101500")
    (tmp_path / ".trainmaster" / "line-20261125-101501-2").mkdir()  # a run that has saved nothing
    (tmp_path / ".trainmaster" / "line-two-20261125-101502").mkdir()
    assert main(["export", "line", "-o", "line.safetensors"]) == 0
    assert load_file("line.safetensors").keys() == {"0.weight", "0.bias", "2.weight", "2.bias"}
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert main(["export", "another", "-o", "another.safetensors"]) == 2
    assert (
        "no run of another with a checkpoint lies in .trainmaster/ here, and on the cluster:" in capfd.readouterr().err
    )
    assert main(["export", "./nowhere", "-o", "nowhere.safetensors"]) == 2
    assert "./nowhere: there is no such folder" in capfd.readouterr().err


def test_where_a_job_on_a_cluster_keeps_its_model(tmp_path: Path) -> None:
    def kept(**storage: object) -> ExportSource:
        job = a_job().where(checkpoint={"storage": storage} if storage else {}).build()
        return source_of(job)

    store = kept(objectStore={"url": "s3://bucket/models/", "endpoint": "http://minio:9000"})
    assert re.fullmatch(r"s3://bucket/models/digits-.{1,8}", store.place)
    assert store.endpoint == "http://minio:9000"
    assert kept(path=str(tmp_path)).place == str(tmp_path)
    with pytest.raises(NotFoundError, match=r"on the claim models, which is not mounted here. Copy them out of a pod"):
        kept(persistentVolumeClaim={"claimName": "models"})
    with pytest.raises(NotFoundError, match=r"no spec.checkpoint.storage, so its model is in its pods' own folders"):
        kept()


def test_the_page_loads_it(new_job: NewJob) -> None:
    job = new_job(**{**DIGITS, "arguments": {}, "strategy": "OneDevice"}).run(1)
    exported(job).rename(job.folder / "digits.safetensors")
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    done = subprocess.run([sys.executable, "-c", code], cwd=job.folder, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("the digit is most likely "), done.stderr

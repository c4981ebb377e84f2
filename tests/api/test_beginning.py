"""`init`, `schema` and `completion`: what a user has before the first job."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from trainmaster.api.document import load
from trainmaster.api.job import TrainingJob
from trainmaster.cli.init import name_of
from trainmaster.cli.json_schema import schema
from trainmaster.cli.main import main

from tests.api.good_specs import GOOD_SPECS

Fault = tuple[str, str]
KINDS: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": (list, tuple),
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}


def faults(value: Any, rules: dict[str, Any], path: str = "") -> list[Fault]:
    """What an editor would mark: types, choices, missing and unknown fields, bounds."""
    wanted = rules.get("type", [])
    kinds = [wanted] if isinstance(wanted, str) else wanted
    if kinds and not any(isinstance(value, KINDS[kind]) for kind in kinds):
        return [(path, "type")]
    found = [(path, "choice") for key in ("enum", "const") if key in rules and value not in _listed(rules[key])]
    if isinstance(value, dict):
        known, more = rules.get("properties", {}), rules.get("additionalProperties", True)
        found += [(f"{path}.{name}", "missing") for name in rules.get("required", []) if name not in value]
        for name, inner in value.items():
            if name in known:
                found += faults(inner, known[name], f"{path}.{name}")
            elif more is False:
                found.append((f"{path}.{name}", "unknown"))
            elif isinstance(more, dict):
                found += faults(inner, more, f"{path}.{name}")
    elif isinstance(value, (list, tuple)) and "items" in rules:
        found += [fault for item in value for fault in faults(item, rules["items"], f"{path}[]")]
    elif isinstance(value, (int, float)):
        found += [(path, "bound") for low in [rules.get("minimum")] if low is not None and value < low]
    return found


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@pytest.mark.parametrize("job", GOOD_SPECS.values(), ids=GOOD_SPECS.keys())
def test_an_editor_marks_nothing_in_a_good_job(job: dict[str, Any]) -> None:
    assert faults(job, schema()) == []


def test_an_editor_marks_mistakes() -> None:
    job = {
        "apiVersion": "trainmaster.dev/v2",
        "kind": "TrainingJob",
        "metadata": {"name": "a", "labels": {"any": "thing"}},
        "spec": {
            "strategy": {"type": "AllReduse"},
            "training": {"step": 3},
            "workers": {"replicas": -1, "cpu": 4, "memory": "4Gi", "template": {"spec": {"runtimeClassName": "x"}}},
        },
    }
    assert set(faults(job, schema())) == {
        (".apiVersion", "choice"),
        (".spec.strategy.type", "choice"),
        (".spec.training.step", "unknown"),
        (".spec.workers.replicas", "bound"),
    }
    assert "x-kubernetes" not in str(schema())


def test_init_writes_a_good_job_and_overwrites_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for words, name in ((["2 Rings!"], "rings"), (["script", "--script", "--name", "mine"], "mine")):
        assert main(["init", *words]) == 0
        job = load((tmp_path / words[0] / "job.yaml").read_bytes())
        assert isinstance(job, TrainingJob)
        assert job.name == name
        compile((tmp_path / words[0] / "train.py").read_text(), "train.py", "exec")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.py").write_text("years of work")
    capsys.readouterr()
    assert main(["init", "mine"]) == 2
    assert "mine/train.py is there already; name another folder" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["train.py"], "all or nothing"
    assert (tmp_path / "mine" / "train.py").read_text() == "years of work"
    assert main(["init", "new", "--name", "Bad Name"]) == 2
    assert "as bad-name" in capsys.readouterr().err
    assert main(["init", "mine/train.py/inside"]) == 2


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("", "training"),
        ("123", "training"),
        ("Déjà vu", "d-j-vu"),
        ("-a-", "a"),
        ("x" * 99, "x" * 40),
        ("日本", "training"),
    ],
)
def test_names_of_folders_become_names_of_jobs(text: str, name: str) -> None:
    assert name_of(text) == name
    job = {"apiVersion": "trainmaster.dev/v1", "kind": "TrainingJob", "metadata": {"name": name}}
    job |= {"spec": {"strategy": {"type": "OneDevice"}, "training": {"command": ["a"]}}}
    assert isinstance(load(yaml.safe_dump(job)), TrainingJob)


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The completion of bash."""
    path = tmp_path_factory.mktemp("completion") / "trainmaster.bash"
    told = subprocess.run([sys.executable, "-m", "trainmaster", "completion", "bash"], capture_output=True, check=True)
    path.write_bytes(told.stdout)
    return path


def completed(script: Path, folder: Path, *words: str) -> list[str]:
    """What bash offers for the last word."""
    line = " ".join(f"'{word}'" for word in ("trainmaster", *words))
    show = "printf '%s\\n' \"${COMPREPLY[@]}\""
    program = f"source '{script}'; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _trainmaster; {show}"
    told = subprocess.run(["bash", "-c", program], cwd=folder, capture_output=True, text=True, check=True)
    assert told.stderr == ""
    return told.stdout.split("\n")[:-1]


def test_bash_completes_commands_options_choices_and_runs(script: Path, tmp_path: Path) -> None:
    danger = tmp_path / ".trainmaster" / "digits-$(touch owned)"
    danger.mkdir(parents=True)
    (tmp_path / "job.yaml").touch()
    assert completed(script, tmp_path, "pl") == ["plot"]
    assert {"run", "submit", "convert"} <= set(completed(script, tmp_path, ""))
    assert completed(script, tmp_path, "run", "--workd") == ["--workdir"]
    assert completed(script, tmp_path, "list", "-o", "y") == ["yaml"]
    assert completed(script, tmp_path, "completion", "z") == ["zsh"]
    assert completed(script, tmp_path, "run", "jo") == ["job.yaml"]
    assert completed(script, tmp_path, "status", "dig") == ["digits-$(touch owned)"]
    assert not (tmp_path / "owned").exists(), "a name is no command"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_know_the_same_words(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    told = capsys.readouterr().out
    for word in ("plot", "workdir", "wide"):
        assert word in told

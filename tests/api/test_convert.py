"""Jobs of other operators become TrainingJobs; what has no counterpart is named, field by field."""

import contextlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from trainmaster.api.document import load
from trainmaster.api.job import TrainingJob
from trainmaster.cli.main import main
from trainmaster.conversion.readers import KINDS, Converted, of_command, of_file
from trainmaster.conversion.source import ConversionError

IMAGE = "shop.example/rings:3"


def a_pod(*command: str, **container: Any) -> dict[str, Any]:
    """A pod template whose container is named as Kubeflow wants it."""
    name = container.pop("name", "pytorch")
    return {"spec": {"containers": [{"name": name, "image": IMAGE, "command": [*command], **container}]}}


def converted(kind: str, spec: dict[str, Any], **metadata: Any) -> Converted:
    """What a job becomes, which is always one that `check` takes, unless somebody has to look at it."""
    document = {"kind": kind, "apiVersion": "x/v1", "metadata": {"name": "rings", **metadata}, "spec": spec}
    return of_file(yaml.safe_dump(document).encode())


def good(made: Converted) -> dict[str, Any]:
    """Its spec; the job is one that check takes."""
    read = load(yaml.safe_dump(made.job))
    assert isinstance(read, TrainingJob), read
    spec: dict[str, Any] = made.job["spec"]
    return spec


def told(made: Converted) -> dict[str, str]:
    """The notes by their paths."""
    return dict(made.notes)


def test_a_pytorchjob_with_torchrun_and_a_policy() -> None:
    limits = {"cpu": 8, "memory": "32Gi", "nvidia.com/gpu": 4}
    role = {
        "replicas": 1,
        "restartPolicy": "OnFailure",
        "template": a_pod(
            *("torchrun", "--nproc-per-node=4", "--nnodes=3", "train.py", "--lr", "0.1"),
            resources={"limits": limits, "requests": {**limits, "cpu": 4}},
            env=[{"name": "MASTER_ADDR", "value": "me"}, {"name": "LR", "value": 1}],
            ports=[{"containerPort": 1}],
            workingDir="/code",
        ),
    }
    policy = {"ttlSecondsAfterFinished": 60, "backoffLimit": 99, "cleanPodPolicy": "None", "suspend": True}
    made = converted(
        "PyTorchJob",
        {
            "pytorchReplicaSpecs": {"Master": role, "Worker": {**role, "replicas": 2}},
            "runPolicy": policy,
            "nprocPerNode": 4,
        },
    )
    spec = good(made)
    assert spec["workers"] == {
        "replicas": 3,
        "image": IMAGE,
        "env": [{"name": "LR", "value": "1"}],
        "cpu": 8,
        "memory": "32Gi",
        "gpus": 4,
    }
    assert spec["training"] == {"command": ["python", "train.py", "--lr", "0.1"], "workingDirectory": "/code"}
    assert (spec["failurePolicy"], spec["ttlSecondsAfterFinished"], spec["suspend"]) == ({"maxRestarts": 50}, 60, True)
    notes = told(made)
    assert notes["spec.runPolicy.backoffLimit"].startswith("99 became 50")
    assert (
        "differs from the limit"
        in notes["spec.pytorchReplicaSpecs.Master.template.spec.containers[0].resources.requests.cpu"]
    )
    assert "set by Trainmaster" in notes["spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].env[0]"]
    assert any(path.endswith("ports") for path in notes)


def test_a_leader_that_differs_and_elasticity() -> None:
    leader = {"template": a_pod("python", "lead.py")}
    worker = {"replicas": 2, "template": a_pod("python", "work.py", name="other")}
    elastic = {"minReplicas": 1, "maxReplicas": 3, "rdzvBackend": "etcd", "maxRestarts": 4}
    made = converted(
        "PyTorchJob", {"pytorchReplicaSpecs": {"Master": leader, "Worker": worker}, "elasticPolicy": elastic}
    )
    spec = good(made)
    assert spec["training"]["command"] == ["python", "work.py"]
    assert spec["elasticity"] == {"minReplicas": 1, "maxReplicas": 3}
    assert "differs from Worker in command" in told(made)["spec.pytorchReplicaSpecs.Master"]
    assert "without it" in told(made)["spec.elasticPolicy.rdzvBackend"]


def test_a_tfjob_with_servers_and_an_evaluator() -> None:
    role = {"replicas": 2, "template": a_pod("python", "t.py", name="tensorflow")}
    made = converted(
        "TFJob", {"tfReplicaSpecs": {"PS": role, "Worker": role, "Chief": {**role, "replicas": 1}, "Evaluator": role}}
    )
    spec = good(made)
    assert (spec["strategy"]["type"], spec["training"]["framework"]) == ("ParameterServer", "TensorFlow")
    assert (spec["workers"]["replicas"], spec["parameterServers"]["replicas"]) == (3, 2)
    assert "a job of its own" in told(made)["spec.tfReplicaSpecs.Evaluator"]


@pytest.mark.parametrize(("kind", "member"), [("JAXJob", "jaxReplicaSpecs"), ("XGBoostJob", "xgbReplicaSpecs")])
def test_other_frameworks(kind: str, member: str) -> None:
    made = converted(kind, {member: {"Worker": {"replicas": 2, "template": a_pod("python", "t.py")}}})
    assert good(made)["training"]["framework"] == kind.removesuffix("Job")


def test_an_mpijob_is_launched_by_its_first_worker() -> None:
    launcher = {"template": a_pod("mpirun", "-np", "4", "solve", resources={"limits": {"cpu": 1}})}
    worker = {"replicas": 2, "template": a_pod("/usr/sbin/sshd", "-De")}
    made = converted("MPIJob", {"slotsPerWorker": 2, "mpiReplicaSpecs": {"Launcher": launcher, "Worker": worker}})
    spec = good(made)
    assert spec["training"] == {"framework": "MPI", "command": ["mpirun", "-np", "4", "solve"]}
    assert (spec["workers"]["replicas"], spec["workers"]["cpu"]) == (2, 2)
    assert "cpu are left out" in told(made)["spec.mpiReplicaSpecs.Launcher"]


def test_a_trainjob_needs_its_runtime_and_takes_it_from_the_file() -> None:
    trainer = {
        "numNodes": 2,
        "args": ["--lr", "1"],
        "env": [{"name": "A", "value": "mine"}],
        "resourcesPerNode": {"limits": {"cpu": 1}},
    }
    job = {
        "kind": "TrainJob",
        "metadata": {"name": "rings"},
        "spec": {"runtimeRef": {"name": "torch-big"}, "trainer": trainer},
    }
    node = {
        "template": a_pod(
            "torchrun", "t.py", name="node", env=[{"name": "A", "value": "b"}, {"name": "C", "value": "d"}]
        )
    }
    jobs = [{"name": "node", "template": {"spec": node}}]
    runtime = {
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "torch-big"},
        "spec": {"mlPolicy": {"numNodes": 8}, "template": {"spec": {"replicatedJobs": jobs}}},
    }
    alone = of_file(yaml.safe_dump(job).encode())
    assert "is not in this file" in told(alone)["spec.runtimeRef"]
    made = of_file(yaml.safe_dump_all([job, runtime]).encode())
    spec = good(made)
    assert spec["workers"]["replicas"] == 2
    assert spec["workers"]["image"] == IMAGE
    assert spec["workers"]["env"] == [{"name": "C", "value": "d"}, {"name": "A", "value": "mine"}]
    assert "spec.runtimeRef" not in told(made)


def test_a_rayjob() -> None:
    group = {"replicas": 2, "minReplicas": 1, "maxReplicas": 4, "template": a_pod(name="ray-worker")}
    head = {"template": a_pod(), "rayStartParams": {}}
    cluster = {"workerGroupSpecs": [group, group], "headGroupSpec": head, "rayVersion": "2.52.0"}
    environment = "pip: [timm, nltk==3.9]\nuv: {packages: [pandas==2.3], check: true}\nenv_vars: {A: 1}\nnews: 3\n"
    made = converted(
        "RayJob", {"entrypoint": "python t.py --lr 1", "rayClusterSpec": cluster, "runtimeEnvYAML": environment}
    )
    spec = good(made)
    packages = {"names": ["nltk==3.9", "pandas==2.3"]}
    assert spec["training"] == {"framework": "Ray", "command": ["python", "t.py", "--lr", "1"], "packages": packages}
    assert spec["workers"]["replicas"] == 3, "the head is a node, too"
    assert spec["workers"]["env"] == [{"name": "A", "value": "1"}]
    assert spec["elasticity"] == {"minReplicas": 2, "maxReplicas": 5}
    notes = told(made)
    assert "beside the head of a Ray cluster" in notes["spec.entrypoint"]
    assert "one replica more" in notes["spec.rayClusterSpec.headGroupSpec"]
    assert "all workers are alike" in notes["spec.rayClusterSpec.workerGroupSpecs[1]"]
    assert "not known" in notes["spec.runtimeEnvYAML.news"]
    assert "timm is no package with its version" in notes["spec.runtimeEnvYAML.pip"]
    head["rayStartParams"]["num-cpus"] = "0"
    idle = good(converted("RayJob", {"entrypoint": "python t.py", "rayClusterSpec": cluster}))
    assert (idle["workers"]["replicas"], idle["elasticity"]) == (2, {"minReplicas": 1, "maxReplicas": 4})


@pytest.mark.parametrize(
    "text", ["env_vars: [A]", "env_vars: A", "pip: 3", "uv: {packages: {a: b}}", "pip: [[a]]", "["]
)
def test_a_runtime_environment_of_another_form_is_left_out_with_a_word(text: str) -> None:
    made = converted("RayJob", {"entrypoint": "python t.py", "runtimeEnvYAML": text})
    assert set(good(made)["training"]) == {"framework", "command"}
    assert any(path.startswith("spec.runtimeEnvYAML") for path in told(made)), made.notes


def test_what_a_pod_has_besides_goes_into_the_template() -> None:
    pod = a_pod("python", "t.py", securityContext={"runAsUser": 7}, livenessProbe={"exec": {"command": ["true"]}})
    pod["metadata"] = {"labels": {"team": "red", "training.kubeflow.org/x": "y"}}
    pod["spec"] |= {
        "hostNetwork": True,
        "runtimeClassName": "nvidia",
        "nodeSelector": {"a": "b"},
        "restartPolicy": "Never",
    }
    pod["spec"]["containers"].append({"name": "sidecar", "image": "x"})
    made = converted("PyTorchJob", {"pytorchReplicaSpecs": {"Worker": {"template": pod}}})
    workers = good(made)["workers"]
    assert workers["nodeSelector"] == {"a": "b"}
    template = workers["template"]
    assert template["metadata"] == {"labels": {"team": "red"}}
    assert template["spec"]["runtimeClassName"] == "nvidia"
    assert [container["name"] for container in template["spec"]["containers"]] == ["trainer", "sidecar"]
    assert any(path.endswith("hostNetwork") for path in told(made))


def test_a_job_in_a_list_as_kubectl_prints_it() -> None:
    job = {
        "kind": "PyTorchJob",
        "metadata": {"name": "rings"},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"template": a_pod("python", "t.py")}}},
    }
    listed = {"kind": "List", "apiVersion": "v1", "items": [{"kind": "ConfigMap"}, job]}
    assert of_file(yaml.safe_dump(listed).encode()).job["metadata"]["name"] == "rings"
    with pytest.raises(ConversionError, match="2 jobs"):
        of_file(yaml.safe_dump({**listed, "items": [job, job]}).encode())


def test_fields_that_nobody_knows_are_named() -> None:
    role = {"replicas": "two", "template": a_pod("python", "t.py"), "speed": 3}
    made = converted("PyTorchJob", {"pytorchReplicaSpecs": {"Worker": role, "Boss": {}}, "colour": "red"}, x=1)
    good(made)
    notes = told(made)
    for path in ("spec.colour", "spec.pytorchReplicaSpecs.Worker.speed", "spec.pytorchReplicaSpecs.Boss", "metadata.x"):
        assert "not known to convert" in notes[path]
    assert "no whole number" in notes["spec.pytorchReplicaSpecs.Worker.replicas"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("kind: PytorchJobs\n", "Did you mean PyTorchJob?"),
        ("kind: TrainingJob\n", "a TrainingJob already"),
        ("kind: Pod\n", "but Pod. It reads PyTorchJob"),
        ("", "no kind at all"),
        ("kind: [", "line 1"),
        ("kind: PyTorchJob\n", "has no spec"),
        ("kind: PyTorchJob\nspec: {pytorchReplicaSpecs: 3}\n", "spec.pytorchReplicaSpecs is missing"),
        ("kind: PyTorchJob\nspec: {pytorchReplicaSpecs: {Worker2: {}}}\n", "nobody who trains"),
        ("kind: RayJob\nspec: {a: 1}\n", "spec.entrypoint is missing"),
        ("kind: RayJob\nspec: {clusterSelector: {}, entrypoint: a}\n", "a cluster that runs already"),
        ("kind: RayJob\n---\nkind: RayJob\n", "2 jobs"),
    ],
)
def test_what_cannot_be_converted_says_why(text: str, why: str) -> None:
    with pytest.raises(ConversionError, match=why.replace("?", r"\?")):
        of_file(text.encode())


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "spec",
                    "template",
                    "containers",
                    "env",
                    "resources",
                    "limits",
                    "name",
                    "replicas",
                    "Worker",
                    "metadata",
                    "trainer",
                    "labels",
                    "pytorchReplicaSpecs",
                    "entrypoint",
                    "rayClusterSpec",
                    "workerGroupSpecs",
                    "command",
                    "runtimeRef",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=60)
@given(kind=st.sampled_from(KINDS), spec=ANYTHING, metadata=ANYTHING)
def test_whatever_stands_in_a_file_there_is_a_clear_end(kind: str, spec: Any, metadata: Any) -> None:
    document = yaml.safe_dump({"kind": kind, "metadata": metadata, "spec": spec}, allow_unicode=False)
    with contextlib.suppress(ConversionError):
        load(yaml.safe_dump(of_file(document.encode()).job))


def test_a_line_of_torchrun() -> None:
    words = "OMP_NUM_THREADS=4 torchrun --nnodes 1:3 --nproc-per-node 8 --max-restarts=2 -m shop.train --lr 0.1"
    made = of_command(words.split())
    spec = good(made)
    assert spec["training"]["command"] == ["python", "-m", "shop.train", "--lr", "0.1"]
    assert spec["workers"] == {"replicas": 3, "gpus": 8, "env": [{"name": "OMP_NUM_THREADS", "value": "4"}]}
    assert spec["elasticity"] == {"minReplicas": 1, "maxReplicas": 3}
    assert spec["failurePolicy"] == {"maxRestarts": 2}
    assert "replicas: 24" in told(made)["--nproc-per-node"]
    assert good(of_command(["torchrun", "Train_Me.py"]))["strategy"] == {"type": "OneDevice"}
    for word, said in (("$GPUS", "is no number"), ("-3", "is no number"), ("gpu", "depends on the machine")):
        notes = told(of_command(["torchrun", f"--nproc-per-node={word}", "t.py"]))
        assert f"{word} {said}" in notes["--nproc-per-node"]
    with pytest.raises(ConversionError, match="not supported"):
        of_command(["torchrun", "--tee", "3", "t.py"])
    with pytest.raises(ConversionError, match="no command line of torchrun"):
        of_command(["python", "t.py"])


def in_a_container(line: str, **container: Any) -> Converted:
    role = {"replicas": 2, "template": a_pod(*line.split(), **container)}
    return converted("PyTorchJob", {"pytorchReplicaSpecs": {"Worker": role}})


@pytest.mark.parametrize(("word", "said"), [("$GPUS", "is no number"), ("gpu", "depends on the machine")])
def test_a_line_of_torchrun_in_a_container_has_the_notes_of_a_bare_one(word: str, said: str) -> None:
    line = f"torchrun --nproc-per-node={word} t.py"
    assert told(in_a_container(line))["--nproc-per-node"] == told(of_command(line.split()))["--nproc-per-node"]
    assert said in told(in_a_container(line))["--nproc-per-node"]
    with_gpus = in_a_container(line, resources={"limits": {"nvidia.com/gpu": 4}})
    assert "--nproc-per-node" not in told(with_gpus), "its resources say how many"
    assert good(with_gpus)["workers"]["gpus"] == 4


@pytest.mark.parametrize("line", ["accelerate launch t.py", "deepspeed t.py"])
def test_a_launcher_whose_work_the_agents_do_may_stay(line: str) -> None:
    made = in_a_container(line)
    assert good(made)["training"]["command"] == line.split()
    assert not any("launcher" in note for note in told(made).values())
    assert "launcher" in " ".join(told(in_a_container("horovodrun t.py")).values())


def test_processes_in_a_container_that_its_gpus_do_not_fit() -> None:
    made = in_a_container("torchrun --nproc-per-node=8 t.py", resources={"limits": {"nvidia.com/gpu": 4}})
    assert "8 processes in each pod, which has 4 GPUs" in told(made)["--nproc-per-node"]


@pytest.mark.parametrize("bare", [True, False])
def test_restarts_of_torchrun_are_as_many_as_may_be_and_not_those_of_the_script(bare: bool) -> None:
    line = "torchrun --max-restarts 100 t.py"
    made = of_command(line.split()) if bare else in_a_container(line)
    assert good(made)["failurePolicy"] == {"maxRestarts": 50}
    assert told(made)["--max-restarts"].startswith("100 became 50")
    line = "torchrun t.py --max-restarts 3"
    assert "failurePolicy" not in good(of_command(line.split()) if bare else in_a_container(line))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pod = a_pod("sh", "-c", "torchrun t.py\n")
    job = {
        "kind": "PyTorchJob",
        "metadata": {"name": "Rings_2"},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"template": pod}}},
    }
    path = tmp_path / "theirs.yaml"
    path.write_text(yaml.safe_dump(job))
    assert main(["convert", str(path)]) == 0
    out, err = capsys.readouterr()
    assert yaml.safe_load(out)["metadata"] == {"name": "rings-2"}
    assert "starts a launcher inside of a shell" in err
    ours = tmp_path / "job.yaml"
    assert main(["convert", str(path), "-o", str(ours)]) == 0
    assert main(["check", str(ours)]) == 0
    capsys.readouterr()
    assert main(["convert", str(path), "-o", str(ours)]) == 2
    assert "file exists" in capsys.readouterr().err.lower()
    assert main(["convert", str(tmp_path / "none.yaml")]) == 2
    assert main(["convert", "--", "torchrun", "--nproc-per-node", "2", "t.py"]) == 0
    capsys.readouterr()
    assert main(["convert", "torchrun t.py --title 'two words'"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["spec"]["training"]["command"][-1] == "two words"
    assert main(["convert", "torchrun t.py --title 'two words"]) == 2
    assert "no closing quotation" in capsys.readouterr().err

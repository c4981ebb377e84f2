"""A rank sees what a rank of the real torchrun sees, but for the differences that stand here with their reasons."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from trainmaster.wire.agent_states import AgentState

from tests.trainer.agent.conftest import MakeAgent
from tests.trainer.agent.intake import Intake
from tests.trainer.agent.machine import SCRIPTS

W0 = ("worker", 0)
Facts = dict[str, Any]
TORCHRUN = ("torchrun", "--standalone", "--nproc-per-node", "2")
# Facts in which ranks may differ from those of torchrun.
ALLOWED = {
    "variables": "one by one below",
    "modules": "what the warm parent has imported is there (decision 0158)",
    "warnings": "of libraries that are there, their filters are there too",
    "descriptors": "one more: the file into which faulthandler writes the stacks of a rank that hangs",
    "finders": "on the first rank one more, that notes what is imported for the next attempt",
    **dict.fromkeys(("random", "seed of torch", "numpy", "drawn by torch"), "drawn anew by each process"),
    "$MASTER_ADDR": "an address in place of a name; the ranks meet there",
    "$MASTER_PORT": "a free one",
    "$ROLE_NAME": "the job's role, unless the command is torchrun with --role",
    "$TORCHELASTIC_RUN_ID": "the job's uid and attempt",
    "$TORCHELASTIC_ERROR_FILE": "in the agent's folder",
    "$PYTHONPATH": "the same, where there is one",
    "$PYTEST_CURRENT_TEST": "the test's own",
    "$SEEN": "the test's own",
}
LEFT_OUT = {"TORCHELASTIC_SIGNALS_TO_HANDLE": "torchrun tells it to its own agent, which is in the same process"}
ADDED = {
    "PYTHONPATH": "of the Pythons that the program starts: one more folder, which is not on its own sys.path",
    "GLOO_SOCKET_IFNAME": "the interface on which the replicas reach one another",
    "NCCL_SOCKET_IFNAME": "likewise",
    "RES_OPTIONS": "a lost packet of a name server costs a second, and not five (decision 0219)",
    "TEST_WITNESS": "the test's own",
}
DRAWN = ("random", "seed of torch", "numpy", "drawn by torch")
PROGRAMS = {"script": ("seen.py", "--x", "1"), "module": ("-m", "seen", "--x", "1")}


@pytest.fixture(scope="module")
def by_torchrun(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Facts, Facts]]:
    """What both ranks of real torchrun have seen, by kind of program."""
    folder = tmp_path_factory.mktemp("torchrun") / "user"
    folder.mkdir()
    shutil.copy(SCRIPTS / "seen.py", folder)
    inherited = {name: value for name, value in os.environ.items() if name not in ADDED}
    started = {
        kind: subprocess.Popen(
            [str(Path(sys.executable).parent / "torchrun"), *TORCHRUN[1:], *words],
            cwd=folder,
            env={**inherited, "SEEN": str(folder), "SEEN_AS": kind},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for kind, words in PROGRAMS.items()
    }
    for process in started.values():
        said = process.communicate()[0]
        assert process.returncode == 0, said.decode()
    return {kind: read(folder, kind) for kind in PROGRAMS}


def read(folder: Path, kind: str) -> tuple[Facts, Facts]:
    texts = ((folder / f"{kind}-{rank}.json").read_text() for rank in (0, 1))
    one, two = (json.loads(text.replace(str(folder), "/user")) for text in texts)
    return one, two


@pytest.mark.parametrize(
    "case",
    [
        ("script", ("python", "seen.py", "--x", "1")),
        ("module", ("python", "-m", "seen", "--x", "1")),
        ("script", (*TORCHRUN, "seen.py", "--x", "1")),
        ("module", (*TORCHRUN, "-m", "seen", "--x", "1")),
        ("script", ("python", "-u", "seen.py", "--x", "1")),
    ],
    ids=["script", "module", "torchrun", "torchrun module", "unbuffered"],
)
def test_a_rank_sees_what_torchrun_shows_it(
    agent: MakeAgent,
    intake: Intake,
    tmp_path: Path,
    by_torchrun: dict[str, tuple[Facts, Facts]],
    case: tuple[str, tuple[str, ...]],
) -> None:
    kind, command = case
    folder = tmp_path / "user"
    folder.mkdir()
    shutil.copy(SCRIPTS / "seen.py", folder)
    one = agent(*command, ranks=2, folder=folder, SEEN=str(folder), SEEN_AS=kind)
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 2)])
    intake.wait_state(AgentState.FINISHED, 1, W0)
    one.end()
    ours, theirs = read(folder, kind), [{**facts} for facts in by_torchrun[kind]]
    for found, wanted in zip(ours, theirs, strict=True):
        if command[0] == "python":  # torchrun itself adds the option
            assert found.pop("original") == [*command]
            del wanted["original"]
        assert differences(found, wanted) == {}
        assert {name for name in wanted["variables"] if name not in found["variables"]} <= LEFT_OUT.keys()
        assert {
            name for name in found["variables"] if name not in wanted["variables"] and name[:12] != "TRAINMASTER_"
        } <= ADDED.keys()
    for name in DRAWN:
        assert ours[0][name] != ours[1][name], f"{name}: as with torchrun, each process draws its own"


def differences(found: Facts, wanted: Facts) -> dict[str, tuple[Any, Any]]:
    """What differs and may not, with what is as it is and with what torchrun shows."""
    pairs = {**{name: (found[name], wanted[name]) for name in wanted}, **of_variables(found, wanted)}
    return {name: pair for name, pair in pairs.items() if name not in ALLOWED and pair[0] != pair[1]}


def of_variables(found: Facts, wanted: Facts) -> dict[str, tuple[str, str]]:
    ours, theirs = found["variables"], wanted["variables"]
    return {f"${name}": (ours[name], theirs[name]) for name in ours if name in theirs}

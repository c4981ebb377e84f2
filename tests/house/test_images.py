"""The images of frameworks follow one pattern, and install what the tests do."""

import re
import subprocess
from pathlib import Path

import pytest
from trainmaster.api.generate import ROOT
from trainmaster.wire.frameworks import FRAMEWORKS, TORCH

IMAGES, LOCKS = ROOT / "images" / "frameworks", ROOT / "requirements" / "frameworks"
FAMILIES = sorted(path.name for path in IMAGES.iterdir())
DOCKERFILES = sorted(
    {*(ROOT / "images").rglob("Dockerfile")} - {ROOT / "images" / "pause" / "Dockerfile"}
)  # of the tests
INSTRUCTIONS = {"ARG", "FROM", "LABEL", "RUN", "COPY", "ENV", "USER", "WORKDIR", "ENTRYPOINT", "CMD"}


def pattern(family: str) -> str:
    """What is left of a Dockerfile without its head, its name, its Debian packages, and the paragraph of its own."""
    text = (IMAGES / family / "Dockerfile").read_text()
    _, _, rest = text.partition("\nARG BASE_IMAGE")
    rest = re.sub(r"# Of this family only: .*?\n\n", "", rest, flags=re.DOTALL)
    return re.sub(r'SYSTEM_PACKAGES="[^"]*"', "", rest).replace(f"/{family}.lock", "/NAME.lock")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_images_of_all_families_are_on_the_same_pattern(family: str) -> None:
    assert (LOCKS / f"{family}.lock").exists()
    assert pattern(family) == pattern("jax")
    assert (IMAGES / family / "Dockerfile.dockerignore").read_text() == "*\n!requirements\n"


def test_each_framework_has_an_image() -> None:
    heads = "".join((IMAGES / family / "Dockerfile").read_text().partition("\nARG")[0] for family in FAMILIES)
    assert {name for name in FRAMEWORKS if f"`training.framework: {name}`" in heads or f"and `{name}`" in heads} == {
        *FRAMEWORKS
    } - {TORCH}


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_a_dockerfile_can_be_read_and_what_it_copies_is_there(path: Path) -> None:
    """Each instruction is one that buildah knows, and each command is valid for a shell. No image is built here."""
    text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE)
    lines = [line for line in re.sub(r"\\\n", " ", text).splitlines() if line.strip()]
    given = dict(re.findall(r'^ARG (\w+)="?([^"\n]*)"?$', text, re.MULTILINE))
    assert lines
    for line in lines:
        word, _, rest = line.partition(" ")
        assert word in INSTRUCTIONS
        if word == "RUN":
            subprocess.run(["sh", "-n", "-c", rest], check=True)
        if word == "COPY" and "--from" not in rest:
            *sources, _ = [part for part in rest.split() if not part.startswith("--")]
            for source in sources:
                assert (ROOT / re.sub(r"\$\{(\w+)\}", lambda found: given[found[1]], source)).exists(), source

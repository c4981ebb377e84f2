"""The images of frameworks follow one pattern, and install what the tests do."""

import re

import pytest
from trainmaster.api.generate import ROOT

IMAGES, LOCKS = ROOT / "images" / "frameworks", ROOT / "requirements" / "frameworks"
FAMILIES = sorted(path.name for path in IMAGES.iterdir())


def pattern(family: str) -> str:
    """What is left of a Dockerfile without its head, its name, and what its wheels need of Debian."""
    text = (IMAGES / family / "Dockerfile").read_text()
    _, _, rest = text.partition("\nARG BASE_IMAGE")
    return re.sub(r'SYSTEM_PACKAGES="[^"]*"', "", rest).replace(f"/{family}.lock", "/NAME.lock")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_images_of_all_families_are_on_the_same_pattern(family: str) -> None:
    assert (LOCKS / f"{family}.lock").exists()
    assert pattern(family) == pattern(FAMILIES[0])
    assert (IMAGES / family / "Dockerfile.dockerignore").read_text() == "*\n!requirements\n"

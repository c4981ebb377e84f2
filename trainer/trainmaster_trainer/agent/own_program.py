"""Write the programs by which another interpreter finds our own packages, wherever they lie."""

from __future__ import annotations

from pathlib import Path
from typing import List


def package_roots() -> List[str]:
    """Return the folders from which both packages are imported here."""
    import trainmaster  # noqa: PLC0415 for its place only

    packages = [Path(__file__).absolute().parent.parent, *(Path(path).absolute() for path in trainmaster.__path__)]
    return [str(package.parent) for package in packages]


def program_of(module: str, path: str = "sys.path") -> str:
    """Return a program that imports a module of ours whatever the user's folders are, and runs its `main`.

    `path`: what sys.path is to be from then on, as an expression of Python.
    """
    return (
        f"import sys; path = {path}; sys.path = {package_roots()!r} + [one for one in path if one.startswith(("
        f"sys.prefix, sys.base_prefix))]; from {module} import main; sys.path = path; main()"
    )

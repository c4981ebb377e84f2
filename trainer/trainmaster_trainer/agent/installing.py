"""Install Python packages for one replica by pip, into an environment of its own above that of the image.

It is a virtual environment that sees the modules of the interpreter that the ranks run with: what is there and fits is
not installed again, and what is there is never changed. No shell, no options of the user's, no prompt.
"""

from __future__ import annotations

import glob
import os
import re
import subprocess
import sys
import urllib.parse
import venv
from pathlib import Path
from typing import Dict, List, NamedTuple, Tuple, Type

from trainmaster.wire.bundle import BundleError
from trainmaster.wire.files import delete_folder
from trainmaster.wire.printable import printable
from trainmaster.wire.sources import PackageSource, SourceUnavailableError

from trainmaster_trainer.agent import process
from trainmaster_trainer.agent.bundled import modules_of

_SECRET = re.compile(r"(://)[^/@\s]+@")
_SHOWN = 300
_OUR_FOLDERS = "image.pth"  # of the environment: where the modules of the image are
_NO_PIP = (
    "the image has no pip, nor Python's own copy of it (ensurepip): add pip to the image (spec.workers.image), or the "
    "packages themselves"
)


class _Sign(NamedTuple):
    """A sign is what pip prints when it fails for a reason, and what that means. `in_log`: it is in its log alone."""

    words: str
    error: Type[Exception]
    meaning: str
    in_log: bool = False


# From top to bottom: an index that is away also finds no version of anything.
_SIGNS = (
    _Sign(r"No space left on device|Disk quota exceeded", BundleError, "there is no space left in the pod"),
    _Sign(r"(401|403) (Client )?Error|: 40[13] |User for \S+:", BundleError, "the index wants other credentials", True),
    _Sign(
        r"subprocess-exited-with-error|metadata-generation-failed|Failed (building wheel|to build)|BackendUnavailable",
        BundleError,
        "a package cannot be built here: name a version that has a wheel, or put a wheel into packages.wheels",
    ),
    _Sign(
        r"Retrying \(Retry|NewConnectionError|ConnectTimeout|ReadTimeout|Connection (aborted|refused|reset)|"
        r"connection error:|ProxyError|HTTP error 5\d\d|50[0234] (Server )?Error|name resolution",
        SourceUnavailableError,
        "the index cannot be reached",
        in_log=True,
    ),
    _Sign(
        r"is not a supported wheel on this platform|requires a different Python|Requires-Python|require a different py",
        BundleError,
        "a package is made for another Python or another kind of machine",
    ),
    _Sign(r"ResolutionImpossible|conflicting dependencies", BundleError, "packages want different versions of another"),
    _Sign(r"No matching distribution|Could not find a version", BundleError, "there is no such package or version"),
    _Sign(r"Could not open requirements file|Invalid requirement", BundleError, "the requirements cannot be read"),
    _Sign(r"HASH|do not match the hashes|--hash", BundleError, "a file is not the one that the requirements name"),
)


def install(packages: PackageSource, folder: Path, code: Path) -> None:
    """Install packages into a folder. `code`: where a file of requirements lies.

    Raises:
        BundleError: they cannot be installed, and another try would change nothing.
        UnavailableError: the index does not answer.
    """
    delete_folder(folder)
    venv.EnvBuilder(system_site_packages=True, symlinks=True, with_pip=False).create(folder)
    modules = modules_of(folder)
    modules.mkdir(parents=True, exist_ok=True)
    # From these folders this interpreter imports what is installed.
    installed = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (modules / _OUR_FOLDERS).write_text("".join(f"{path}\n" for path in installed), encoding="utf-8")
    words, variables = _pip(folder)
    log = folder / "pip.log"  # it has the answers of the index, which pip does not print
    owner = os.getpid()
    done = subprocess.run(
        [*words, "install", *_OPTIONS, "--log", str(log), *_wanted(packages, code)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=variables,
        check=False,
        cwd=folder,
        preexec_fn=lambda: process.die_with_parent(owner),
    )
    said = _without_secrets(done.stdout.decode(errors="replace"))
    for line in said.splitlines():
        sys.stderr.write(f"pip: {printable(line)}\n")
    sys.stderr.flush()
    if done.returncode:
        raise _why(said, _without_secrets(log.read_text(errors="replace")) if log.exists() else said, done.returncode)
    log.unlink()


_OPTIONS = ("--no-input", "--disable-pip-version-check", "--no-cache-dir", "--progress-bar", "off", "--no-color")


def _wanted(packages: PackageSource, code: Path) -> List[str]:
    words: List[str] = []
    if packages.wheels:
        if not Path(packages.wheels).is_dir():
            raise BundleError(f"there is no folder {packages.wheels} with wheels: correct packages.wheels")
        words += ["--no-index", "--find-links", packages.wheels]
    if packages.requirements:
        file = code / packages.requirements
        if not file.is_file():
            raise BundleError(f"there is no file {packages.requirements} in the code: correct packages.requirements")
        words += ["--requirement", str(file.absolute())]
    return [*words, "--", *packages.names] if packages.names else words


def _pip(folder: Path) -> Tuple[List[str], Dict[str, str]]:
    """Return how pip is run by the interpreter of the folder, and its variables.

    It is the image's pip, which that interpreter sees as well, or else the wheel of it that Python has (ensurepip).
    """
    hidden = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_ROOT", "PIP_PYTHON")
    variables = {name: value for name, value in os.environ.items() if name not in hidden}
    variables["PIP_REQUIRE_VIRTUALENV"] = "true"  # whatever happens, nothing else is written to
    python = str(folder / "bin" / "python")
    seen = subprocess.run([python, "-c", "import pip"], env=variables, capture_output=True, check=False)
    if seen.returncode:
        wheels = _bundled_pip()
        if not wheels:
            raise BundleError(_NO_PIP)
        variables["PYTHONPATH"] = wheels[-1]
    return [python, "-m", "pip"], variables


def _bundled_pip() -> List[str]:
    try:
        import ensurepip  # noqa: PLC0415 some distributions leave it out
    except ImportError:
        return []
    near = glob.glob(str(Path(ensurepip.__file__).parent / "_bundled" / "pip-*.whl"))  # noqa: PTH207
    return sorted([*near, *glob.glob("/usr/share/python-wheels/pip-*.whl")])  # noqa: PTH207


def _without_secrets(text: str) -> str:
    """Return what pip prints without credentials: pip hides them itself nearly everywhere, this is the rest."""
    for name, value in os.environ.items():
        if name.startswith("PIP_") and "@" in value:
            for address in value.split():
                password = urllib.parse.urlsplit(address).password
                for secret in {password, urllib.parse.unquote(password or "")} - {None, ""}:
                    text = text.replace(str(secret), "****")
    return _SECRET.sub(r"\1****@", text)


def _why(said: str, log: str, code: int) -> Exception:
    """Return why pip has failed, with the line that says it."""
    for sign in _SIGNS:
        if re.search(sign.words, log if sign.in_log else said):
            return sign.error(f"{sign.meaning}: {_line(said, sign.words)}")
    return SourceUnavailableError(f"pip ended with {code}: {_line(said, 'ERROR')}")


def _line(said: str, words: str) -> str:
    lines = said.splitlines()
    errors = [line for line in lines if line.startswith("ERROR") and not line.startswith("ERROR: No matching")]
    named = [line for line in lines if re.search(words, line)]
    chosen = next((line for line in errors if re.search(words, line)), None) or (errors or named or lines or [""])[0]
    return printable(chosen.strip(), _SHOWN).replace("ERROR: ", "")

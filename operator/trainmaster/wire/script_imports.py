"""Read which packages a script imports, from its file and the modules beside it, without running it.

`check` tells by it that a script is written for another framework than its job names. A rank of several refuses such a
script, as each would train a model of its own (docs/decisions/0202). What cannot be known is a doubt, in which nothing
is refused: a package that is not listed here may train in a group, and so may a script that asks for its rank.
"""

from __future__ import annotations

import ast
import pkgutil
import re
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Dict, FrozenSet, Iterator, List, Optional, Sequence, Set, Tuple

from trainmaster.wire.frameworks import FRAMEWORKS, TORCH

_MOST_FILES = 50
_MOST_BYTES = 1 << 18  # of one file
KNOWN = frozenset(name for traits in FRAMEWORKS.values() for name in traits.imports)
# Packages that bring numbers, tables, pictures, files and words, and no group of processes. Others may bring one.
_PLAIN = frozenset(
    (
        *("numpy", "scipy", "pandas", "polars", "pyarrow", "sklearn", "statsmodels", "numba", "einops", "cloudpickle"),
        *("matplotlib", "seaborn", "plotly", "PIL", "cv2", "skimage", "imageio"),
        *("tqdm", "rich", "click", "absl", "six"),
        *("yaml", "toml", "dotenv", "requests", "joblib", "psutil", "attr", "pydantic", "typing_extensions"),
        *("h5py", "zarr", "fsspec", "s3fs", "gcsfs", "boto3", "botocore", "safetensors", "huggingface_hub"),
        *("datasets", "tokenizers", "tensorflow_datasets", "tensorboard", "tensorboardX", "mlflow", "ml_collections"),
        *("trainmaster", "trainmaster_trainer"),
    )
)
# Who asks for these finds its place in the group by itself; who names these programs may start one.
_PLACES = re.compile(
    r"(GROUP_|LOCAL_|ROLE_)?(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT)|HOSTNAME|TORCHELASTIC_\w+"
    r"|TRAINMASTER_(ADDRESS|INDEX|ROLE|ROSTER)"
    r"|(.*[\s/])?(torchrun|mpirun|mpiexec|horovodrun|accelerate|deepspeed|spark-submit)([\s/].*)?",
    re.DOTALL,
)
_BY_NAME = frozenset(("import_module", "__import__", "exec", "eval", "run_path", "run_module", "gethostname"))
_BY_ATTRIBUTE = _BY_NAME - {"exec", "eval"}
_LINE = re.compile(rb"^[ \t]*(?:import|from)[ \t]+([\w.]+)", re.MULTILINE)  # names the first module of an import
_FOR_ANY = "SageMaker"  # whose containers have scripts of any framework
# A library's bindings for another framework's cluster.
_BINDINGS = frozenset(("spark", "ray", "dask"))


@dataclass(frozen=True)
class Imports:
    """Hold the frameworks' packages that a script imports."""

    certain: FrozenSet[str]
    """What is imported whenever the script runs."""
    possible: FrozenSet[str]
    """What it imports, maybe within a function or under a condition, or names in a text."""
    is_clear: bool
    """Whether nothing that it does may bring a group of processes in another way."""


@dataclass
class _ScriptFile:
    certain: Set[str] = field(default_factory=set)  # dotted names of modules
    possible: Set[str] = field(default_factory=set)
    named: Set[str] = field(default_factory=set)  # its texts, such as the choices of an argument
    is_clear: bool = True


def of_script(entries: Sequence[Path], folders: Sequence[str]) -> Imports:
    """Return what the files `entries` import, and the modules that they import from `folders`."""
    own = _users(folders)
    read: Dict[Path, _ScriptFile] = {}
    sure = _reached(entries, own, read, lambda file: file.certain)
    every = _reached(entries, own, read, lambda file: file.possible)
    unknown = every - KNOWN - _PLAIN - _standard_library()
    named = {name for file in read.values() for name in file.named}
    return Imports(
        certain=frozenset(sure & KNOWN),
        possible=frozenset((every | named) & KNOWN),
        is_clear=not unknown and 0 < len(read) < _MOST_FILES and all(file.is_clear for file in read.values()),
    )


def _users(folders: Sequence[str]) -> List[Path]:
    """Return the folders that are the user's own: packages are installed in the others."""
    return [Path(one) for one in folders if not one.rstrip("/").endswith(("site-packages", "dist-packages"))]


def other_frameworks(entries: Sequence[Path], folders: Sequence[str], framework: Optional[str]) -> Tuple[str, ...]:
    """Return the frameworks that a script is plainly written for, none of which is the one that its job names."""
    own = FRAMEWORKS.get(framework or TORCH)
    if own is None or framework == _FOR_ANY or _has_line(entries, _users(folders), own.imports):
        return ()
    imports = of_script(entries, folders)
    return named_by(imports.certain) if imports.is_clear and not imports.possible.intersection(own.imports) else ()


def _has_line(entries: Sequence[Path], folders: Sequence[Path], packages: Sequence[str]) -> bool:
    """Return whether a line of the script, or of what it imports from `folders`, imports one of these.

    Most scripts need no further look, for which a restart would wait.
    """
    waiting, seen = [*entries], {*entries}
    while waiting and len(seen) < _MOST_FILES:
        path = waiting.pop()
        try:
            with path.open("rb") as file:
                names = {name.decode() for name in _LINE.findall(file.read(_MOST_BYTES))}
        except OSError:
            continue
        if any(name.partition(".")[0] in packages for name in names):
            return True
        beside = {one for name in names for one in _modules(name, path, folders) or ()} - seen
        waiting += beside
        seen |= beside
    return False


def named_by(packages: FrozenSet[str]) -> Tuple[str, ...]:
    """Return the frameworks to which these packages belong."""
    return tuple(name for name, traits in FRAMEWORKS.items() if packages.intersection(traits.imports))


def _reached(
    entries: Sequence[Path],
    folders: Sequence[Path],
    read: Dict[Path, _ScriptFile],
    which: Callable[[_ScriptFile], Set[str]],
) -> Set[str]:
    """Return the packages that are imported from elsewhere, over all files of the user's that are."""
    waiting, seen, packages = [*entries], {*entries}, set()
    while waiting:
        path = waiting.pop()
        if path not in read:
            if len(read) == _MOST_FILES:
                break
            read[path] = _read(path)
        for name in which(read[path]):
            found = _modules(name, path, folders)
            if found is None:
                packages.add(name.partition(".")[0])
            else:
                waiting += [one for one in found if one not in seen]
                seen.update(found)
    return packages


def _modules(name: str, importer: Path, folders: Sequence[Path]) -> Optional[List[Path]]:
    """Return the files of the user's that are run where this module is imported; None if it is not the user's."""
    dots = len(name) - len(name.lstrip("."))
    places = [importer.parents[min(dots, len(importer.parents)) - 1]] if dots else folders
    parts = [part for part in name[dots:].split(".") if part]
    found: List[Path] = []
    is_users = bool(dots)
    for place in places:
        for count in range(len(parts)):
            path = place.joinpath(*parts[: count + 1])
            found += [one for one in (path / "__init__.py", path.with_name(f"{parts[count]}.py")) if one.is_file()]
            # A folder of data may have a library's name, and does not take its place.
            is_users = is_users or bool(found) or (path.is_dir() and parts[0] not in KNOWN)
    return found if is_users else None


def _read(path: Path) -> _ScriptFile:
    """Return what a file imports. Of one that cannot be read or is none of this Python's, nothing is known."""
    try:
        with path.open("rb") as file:
            source = file.read(_MOST_BYTES + 1)
        tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return _ScriptFile(is_clear=False)
    found = _ScriptFile(certain={name for statement in _always(tree.body) for name in _imported(statement)})
    for node in ast.walk(tree):
        names = _imported(node)
        found.possible.update(names)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.named.add(node.value)
            names = [node.value] if _PLACES.fullmatch(node.value) else []
        else:
            names = [name for name in names if _BINDINGS.intersection(name.split(".")[1:2])]
        if names or _is_unseen(node):
            found.is_clear = False
    found.is_clear = found.is_clear and len(source) <= _MOST_BYTES
    return found


def _always(statements: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run whenever the file does as a script."""
    for statement in statements:
        of_main = isinstance(statement, ast.If) and "id='__name__'" in ast.dump(statement.test)
        if isinstance(statement, ast.With) or (isinstance(statement, ast.If) and of_main):
            yield from _always(statement.body)
        else:
            yield statement


def _imported(node: ast.AST) -> List[str]:
    """Return the dotted names of the modules that a statement imports; names of what it takes from them may be some."""
    if isinstance(node, ast.Import):
        return [one.name for one in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    origin = "." * node.level + (node.module or "")
    members = [one.name for one in node.names if one.name != "*"]
    return [origin, *(f"{origin}{'.' if node.module else ''}{member}" for member in members)]


def _is_unseen(node: ast.AST) -> bool:
    """Return whether this imports or runs what is not written here, or asks which machine this is."""
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    if isinstance(called, ast.Attribute):
        return called.attr in _BY_ATTRIBUTE
    return isinstance(called, ast.Name) and called.id in _BY_NAME


def _standard_library() -> FrozenSet[str]:
    names = getattr(sys, "stdlib_module_names", None)  # since Python 3.10
    if names is not None:
        return frozenset(names)
    folder = sysconfig.get_paths()["stdlib"]
    found = pkgutil.iter_modules([folder, f"{folder}/lib-dynload"])
    return frozenset((*sys.builtin_module_names, *(one.name for one in found)))

"""What a rank's process does before and after the user's code. Runs in a child forked by `warm`, or started afresh.

`python -m trainmaster_trainer.agent.rank` is the slow way in, where a fork would be unsafe. The environment says
everything: the plan (ENV_TRAINING), where the error file goes, which rank this is.
"""

from __future__ import annotations

import faulthandler
import importlib
import importlib.util
import io
import multiprocessing.process
import os
import runpy
import signal
import sys
import time
import types
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, NoReturn, Optional

from trainmaster.wire import codec, names
from trainmaster.wire.training import TrainingPlan

from trainmaster_trainer.agent import command, errors, imports, lifeline, process, stacks

# A pool of one of these in the warm parent is a thread, and forks are unsafe then.
THREAD_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_LISTEN = 3  # the descriptor of the listening socket in a rank that is started afresh
_THREADS_SECONDS = 5.0  # for threads that a task has started and not ended
_NOT_FOUND = 127
_NOT_EXECUTABLE = 126


class BadConfigurationError(Exception):
    """What is to be run is not there. A restart would not help."""

    trainmaster_configuration_error = True


# --- Ways in ---------------------------------------------------------------------------------------------------


def detach(parent: int) -> None:
    """In a freshly forked child: become a process of its own, that ends with its parent."""
    os.setsid()
    process.die_with_parent(parent)
    process.default_signals()
    process.as_needed_as_before()


def become(message: Dict[str, Any], descriptors: List[int]) -> Callable[[], int]:
    """Become what the request asks for; the answer is what is then to be done, up to the exit code."""
    if message["start"] == "store":
        (listener,) = descriptors
        process.close_descriptors(keep=[listener])
        process.rename("tm-store")
        return partial(serve_store, message["host"], message["port"], listener)
    output, errors_to, *inherited = descriptors
    _redirect(output, errors_to)
    process.close_descriptors(keep=inherited)
    os.environ.clear()
    os.environ.update(message["environment"])
    for descriptor in inherited:
        os.set_inheritable(descriptor, True)  # a script may replace this process
        os.environ[names.ENV_LISTEN] = str(descriptor)
    process.rename(f"tm-rank-{os.environ.get('RANK', '')}")
    as_if_started_afresh()
    return run


def spawn(message: Dict[str, Any], descriptors: List[int]) -> int:
    """The same with a new interpreter."""
    output, errors_to, *listener = descriptors
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, output, 1),
        (os.POSIX_SPAWN_DUP2, errors_to, 2),
    ]
    environment = dict(message["environment"])
    for descriptor in listener:
        actions.append((os.POSIX_SPAWN_DUP2, descriptor, _LISTEN))
        environment[names.ENV_LISTEN] = str(_LISTEN)
    arguments = [sys.executable, "-m", __name__, str(os.getpid())]
    return os.posix_spawn(sys.executable, arguments, environment, file_actions=actions, setsid=True)


def main() -> NoReturn:
    """A rank in an interpreter of its own."""
    process.die_with_parent(int(sys.argv[1]))
    process.default_signals()
    process.leave(run())


def serve_store(host: str, port: int, listener: int) -> int:
    """Serve torch's store on a socket that listens already, until killed: it outlives every rank."""
    torch = importlib.import_module("torch.distributed")
    store = torch.TCPStore(host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener)
    while store is not None:
        signal.pause()
    return 0


# --- Becoming a process of one's own ---------------------------------------------------------------------------


def _redirect(output: int, errors_to: int) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (errors_to, 2)):
        os.dup2(source, target)


def as_if_started_afresh() -> None:
    """What Python and libraries derive from the environment once, at their start, done for the new environment."""
    time.tzset()
    _look_again_for_modules()
    numpy = sys.modules.get("numpy")
    if numpy is not None and "numpy.random" in sys.modules:
        numpy.random.seed()  # else all ranks would draw the same "random" numbers
    torch = sys.modules.get("torch")
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if torch is not None and threads.isdigit() and int(threads) > 1:
        torch.set_num_threads(int(threads))


def _look_again_for_modules() -> None:
    """Forget what folders of the user's modules had in them, and which were not there.

    Not `importlib.invalidate_caches()`, which writes to each of some hundred finders, a page of its own in a forked
    process. Python looks into a folder again when its time has changed; below its own prefix that is enough.
    """
    own = (sys.prefix, sys.base_prefix)
    for path in sys.path:
        if not path.startswith(own):
            sys.path_importer_cache.pop(path, None)


def _open_streams(unbuffered: bool) -> None:
    """Line by line even into a pipe: the last words of a rank that is killed must not be lost in a buffer."""
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 for the whole life of the process
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        raw = open(descriptor, "wb", buffering=0 if unbuffered else -1, closefd=False)  # noqa: SIM115
        before = getattr(sys, name)
        # write_through: nothing stays in the text layer; line_buffering: nothing after a line's end in the lower one.
        stream = io.TextIOWrapper(raw, before.encoding, before.errors, line_buffering=True, write_through=unbuffered)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


# --- Running ---------------------------------------------------------------------------------------------------


def run() -> int:
    """Run what the plan says; the answer is the process's exit code. A task's rank ends right here."""
    _open_streams(unbuffered=bool(os.environ.get("PYTHONUNBUFFERED")))
    stacks.register(os.environ.get(names.ENV_STACKS_FILE))
    faulthandler.enable()  # a segmentation fault says where, as under torchrun's @record
    plan = codec.decode(TrainingPlan, os.environ[names.ENV_TRAINING])
    if plan.task:  # which may end when its training is over, and not before: what a script does is its own affair
        lifeline.hold(os.environ.get(names.ENV_PROGRESS_FILE))
    exit_code = _run_to_the_end(plan)
    if plan.task:  # whose threads are nobody's main affair, as those of a script may be
        process.leave(exit_code, _THREADS_SECONDS)
    return exit_code


def _run_to_the_end(plan: TrainingPlan) -> int:
    try:
        return _exit_code(_run_plan(plan))
    except SystemExit as end:
        if not isinstance(end.code, (int, type(None))):
            _leave_evidence(end)  # sys.exit("please set DATA_DIR")
        return _exit_code(end.code)
    except BaseException as error:  # noqa: BLE001 whatever it is, it is the rank's last word
        return _last_words(error)


def _run_plan(plan: TrainingPlan) -> Any:
    _enter_folder(plan.working_directory)
    if plan.task:
        _set_first_path(str(Path.cwd()))
        _note_imports(without=plan.task.partition(":")[0])
        return importlib.import_module("trainmaster_trainer.rank").main()
    if not plan.command:
        raise BadConfigurationError("training has neither a task nor a command")
    invocation = command.parse(plan.command, sys.executable)
    if invocation.note:
        sys.stderr.write(f"trainmaster: {invocation.note}\n")
    if invocation.unbuffered:
        _open_streams(unbuffered=True)
    _note_imports(without=invocation.target if invocation.kind == command.MODULE else "")
    return _RUNNERS[invocation.kind](invocation)


def _note_imports(without: str) -> None:
    imports.note(os.environ.get(names.ENV_IMPORTS), without.partition(".")[0])


def _enter_folder(folder: Optional[str]) -> None:
    try:
        if folder:
            os.chdir(folder)
    except OSError as error:
        if not errors.is_the_users(error):
            raise
        raise BadConfigurationError(f"workingDirectory: {error.strerror}: {folder}") from None
    # Where multiprocessing looks for a script with a relative path; it notes the folder when it is imported.
    multiprocessing.process.ORIGINAL_DIR = str(Path.cwd())  # type: ignore[attr-defined]


def _run_script(invocation: command.Invocation) -> None:
    path = invocation.target
    sys.argv = [path, *invocation.arguments]
    if Path(path).is_dir() or path.endswith((".zip", ".pyz")):
        runpy.run_path(path, run_name="__main__")
        return
    try:
        with io.open_code(str(Path(path).absolute())) as file:
            source = file.read()
    except OSError as error:
        if not errors.is_the_users(error):
            raise
        raise BadConfigurationError(f"the script cannot be read: {error.strerror}: {Path(path).absolute()}") from None
    _set_first_path(str(Path(path).resolve().parent))
    # A module of its own, for good: what runs after the script's end (threads, atexit) must find it too.
    main_module = types.ModuleType("__main__")
    main_module.__dict__.update(__file__=path, __builtins__=__builtins__, __cached__=None, __spec__=None)
    sys.modules["__main__"] = main_module
    exec(compile(source, path, "exec"), main_module.__dict__)  # noqa: S102 this is what a rank is for


def _run_module(invocation: command.Invocation) -> None:
    _set_first_path(str(Path.cwd()))
    sys.argv = [invocation.target, *invocation.arguments]
    try:
        found = importlib.util.find_spec(invocation.target)
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise BadConfigurationError(f"no module named {invocation.target} in {Path.cwd()!s} or on PYTHONPATH")
    runpy.run_module(invocation.target, run_name="__main__", alter_sys=True)


def _execute(invocation: command.Invocation) -> int:
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and that would be inherited
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        os.execvp(invocation.target, list(invocation.arguments))  # noqa: S606 no shell is what is wanted
    except OSError as error:
        if not errors.is_the_users(error):
            raise
        raise BadConfigurationError(f"the command cannot be run: {error.strerror}: {invocation.target}") from None


_RUNNERS: Dict[str, Callable[[command.Invocation], Any]] = {
    command.SCRIPT: _run_script,
    command.MODULE: _run_module,
    command.EXECUTE: _execute,
}


def _set_first_path(first: str) -> None:
    """sys.path as a new interpreter would have it: the script's folder first, then PYTHONPATH, then the rest."""
    rest = sys.path if getattr(sys.flags, "safe_path", False) else sys.path[1:]
    wanted = [str(Path(path).absolute()) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [first, *wanted, *[path for path in rest if path not in wanted]]


# --- Ends ------------------------------------------------------------------------------------------------------


def _exit_code(value: Any) -> int:
    """What Python makes of a SystemExit's value."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value & 0xFF
    errors.say(errors.text_of(value))
    return 1


def _leave_evidence(error: BaseException) -> None:
    error.__traceback__ = errors.users_part(error.__traceback__)
    errors.write(os.environ.get(names.ENV_ERROR_FILE), error)


def _last_words(error: BaseException) -> int:
    _leave_evidence(error)
    if getattr(type(error), "trainmaster_configuration_error", False):
        errors.say(f"trainmaster: {errors.text_of(error)}")
        return names.EXIT_BAD_CONFIGURATION
    sys.excepthook(type(error), error, error.__traceback__)
    return 128 + signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1


if __name__ == "__main__":
    main()

"""Do what a rank's process does before and after the user's code, in a child forked by `warm` or started afresh.

`python -m trainmaster_trainer.agent.rank_process` is the slow way in, where a fork would be unsafe. The environment
says everything: the plan (ENV_TRAINING), where the error file goes, which rank this is.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import io
import itertools
import multiprocessing.process
import os
import signal
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, NoReturn, Optional, Tuple

from trainmaster.wire import codec, launcher_line, names, torchrun
from trainmaster.wire.training import TrainingPlan

from trainmaster_trainer.agent import (
    any_python,
    command,
    foreign_script,
    frameworks,
    imports,
    main_module,
    new_interpreter,
    optimizer_steps,
    process,
    rank_death,
    rank_errors,
    stack_signal,
    teardown,
)
from trainmaster_trainer.agent.main_module import BadConfigurationError

# A pool of one of these in the warm parent is a thread, and forks are unsafe then.
THREAD_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_LISTEN = 3  # the descriptor of the listening socket in a rank that is started afresh
_THREADS_SECONDS = 5.0  # for threads that a task has started and not ended
_LONG = 1 << 63  # what a C long holds, which a larger exit code is no more


# --- Ways in ---------------------------------------------------------------------------------------------------


def detach(parent: int) -> None:
    """Make a freshly forked child a process of its own, which ends with its parent."""
    os.setsid()
    process.die_with_parent(parent)
    process.default_signals()
    process.as_needed_as_before()


def become(message: Dict[str, Any], descriptors: List[int]) -> Callable[[], int]:
    """Become what the request asks for; return what is then to be done, which returns the exit code."""
    if message["start"] == "store":
        (listener,) = descriptors
        process.close_descriptors(keep=[listener])
        process.rename("tm-store")
        return partial(serve_store, message["host"], message["port"], listener)
    output, errors_to, *inherited = descriptors
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (errors_to, 2)):
        os.dup2(source, target)
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
    """Start a rank with a new interpreter in place of a fork; return its pid."""
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
    arguments = new_interpreter.command((), os.getpid())
    return os.posix_spawn(arguments[0], arguments, environment, file_actions=actions, setsid=True)


def main() -> NoReturn:
    """Run a rank in an interpreter of its own."""
    parent, *options = sys.argv[2:]
    if parent:
        process.die_with_parent(int(parent))
    process.default_signals()
    process.rename(f"tm-rank-{os.environ.get('RANK', '')}")
    new_interpreter.note_options(options)
    sys.exit(run())


def serve_store(host: str, port: int, listener: int) -> int:
    """Serve torch's store on a socket that listens already, until killed: it outlives every rank."""
    torch = importlib.import_module("torch.distributed")
    store = torch.TCPStore(host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener)
    while store is not None:
        signal.pause()
    return 0


# --- Becoming a process of one's own ---------------------------------------------------------------------------


def as_if_started_afresh() -> None:
    """Do for the new environment what Python and libraries derive from the environment once, at their start."""
    time.tzset()
    # `importlib.invalidate_caches()` writes to each of some hundred finders, which costs a forked process a page
    # each. Python looks into a folder again when its time has changed; below its own prefix that is enough.
    own = (sys.prefix, sys.base_prefix)
    for path in sys.path:
        if not path.startswith(own):
            sys.path_importer_cache.pop(path, None)
    numpy = sys.modules.get("numpy")
    if numpy is not None and "numpy.random" in sys.modules:
        numpy.random.seed()  # else all ranks would draw the same "random" numbers
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "default_generator"):  # a module of the user's may have its name
        torch.default_generator.seed()  # likewise: the masks of dropout, say. Python's own `random` sees to itself
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if torch is not None and threads.isdigit() and int(threads) > 1:
        torch.set_num_threads(int(threads))
    if numpy is not None and threads.isdigit() and int(threads) > 1 and "OPENBLAS_NUM_THREADS" not in os.environ:
        _set_blas_threads(int(threads))


def _set_blas_threads(count: int) -> None:
    """Give NumPy's OpenBLAS, which the warm parent has loaded with one thread, as many as it would have taken."""
    with contextlib.suppress(OSError):
        maps = Path("/proc/self/maps").read_text().splitlines()
        for path in {line.split(maxsplit=5)[-1] for line in maps if "openblas" in line}:
            library = ctypes.CDLL(path)
            for prefix, suffix in itertools.product(("scipy_", ""), ("64_", "")):
                setter = getattr(library, f"{prefix}openblas_set_num_threads{suffix}", None)
                if setter is not None:
                    setter(count)


def _open_streams(unbuffered: bool) -> None:
    """Open the standard streams, line by line even into a pipe: the last lines of a killed rank must not be lost."""
    for name, descriptor in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        mode = "r" if descriptor == 0 else "w"
        raw = open(descriptor, f"{mode}b", buffering=0 if unbuffered and descriptor else -1, closefd=False)  # noqa: SIM115
        file: Any = getattr(raw, "raw", raw)
        file.name = f"<{name}>"  # as Python calls them
        before = getattr(sys, f"__{name}__")
        # write_through: nothing stays in the text layer; line_buffering: nothing after a line's end in the lower one.
        by_line = descriptor > 0 and not unbuffered
        stream: Any = io.TextIOWrapper(
            raw, before.encoding, before.errors, line_buffering=by_line, write_through=unbuffered
        )
        stream.mode = mode
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


# --- Running ---------------------------------------------------------------------------------------------------


def run() -> int:
    """Run what the plan says, and end right here; return the process's exit code where another framework has run.

    Python's own end stops each thread that asks for the interpreter, also in a function of torch's that must not be
    left so: the process would be aborted though its work is done. Other frameworks want that end: see
    `_choose_interpreter`.
    """
    plan = codec.decode(TrainingPlan, os.environ[names.ENV_TRAINING])
    _choose_interpreter(plan)
    teardown.begin()
    _open_streams(unbuffered=bool(os.environ.get("PYTHONUNBUFFERED")) and not sys.flags.ignore_environment)
    stack_signal.listen(os.environ.get(names.ENV_STACKS_FILE))
    faulthandler.enable()  # a segmentation fault says where, as under torchrun's @record
    if plan.task or plan.framework is None:  # an exec lets go of it, which the agent takes for no death
        rank_death.hold(os.environ.get(names.ENV_PROGRESS_FILE))
    exit_code = _run_to_the_end(plan)
    if plan.task:  # whose threads do not matter any more, as those of a script may
        process.leave(exit_code, _THREADS_SECONDS)
    if plan.framework is None:
        process.leave(exit_code)
    return exit_code


def _choose_interpreter(plan: TrainingPlan) -> None:
    """Go on as a new interpreter where the program could tell that it was forked."""
    options: Tuple[str, ...] = ()
    folders: List[str] = []
    entries: List[Path] = []
    if plan.command:
        with contextlib.suppress(torchrun.CommandError):  # said by `_run_plan`, which comes to it too
            invocation = command.parse(plan.command, sys.executable)
            if invocation.kind == command.EXECUTE:
                return
            options, here = invocation.options, plan.working_directory or ""
            folders, entries = main_module.folders(invocation, here), main_module.entries(invocation, here)
    # The native parts of other frameworks want to be taken apart by Python itself, and the parent has imported no more
    # than torch for them.
    if plan.framework is not None and new_interpreter.is_forked():
        new_interpreter.become_new("", options)
    why = new_interpreter.reason(os.environ, options, folders, entries)
    if why:
        new_interpreter.become_new(why, options)


def _run_to_the_end(plan: TrainingPlan) -> int:
    try:
        return _exit_code(_run_plan(plan))
    except BaseException as raised:  # noqa: BLE001 whatever it is, it is the rank's last word
        error = foreign_script.explained(raised)
    # Outside of the `except`: what fails from here on did not happen while this one was handled.
    if not isinstance(error, SystemExit):
        return _last_words(error)
    if not isinstance(error.code, (int, type(None))):
        _leave_evidence(error)  # sys.exit("please set DATA_DIR")
    return _exit_code(error.code)


def _run_plan(plan: TrainingPlan) -> Any:
    _enter_folder(plan.working_directory)
    if plan.task:
        main_module.set_first_path(str(Path.cwd()))
        _note_imports(without=plan.task.partition(":")[0])
        return importlib.import_module("trainmaster_trainer.rank").main()
    if not plan.command:
        raise BadConfigurationError("training has neither a task nor a command")
    foreign_script.refuse(plan.command, plan.framework, int(os.environ["WORLD_SIZE"]))
    if plan.framework is None and not plan.progress:
        foreign_script.tell_of_uncounted(plan.command)
    # On a claim of a cluster the folder of checkpoints is the job's own, and nobody has made it.
    with contextlib.suppress(OSError, KeyError):  # a script that needs it says so itself
        Path(os.environ[names.ENV_CHECKPOINTS]).mkdir(parents=True, exist_ok=True)
    words = frameworks.prepare(plan)
    invocation = command.parse(words, sys.executable)
    if invocation.note:
        sys.stderr.write(f"trainmaster: {invocation.note}\n")
    if invocation.launch is not None:
        invocation = _as_launched(invocation, invocation.launch)
    if invocation.unbuffered:
        _open_streams(unbuffered=True)
    if invocation.kind == command.EXECUTE and invocation.launch is None and not launcher_line.is_python(words[0]):
        any_python.put_first_on_path(os.environ)
    any_python.prepare(os.environ, int(os.environ["WORLD_SIZE"]) if plan.framework is None else 1)
    _note_imports(without=invocation.target if invocation.kind == command.MODULE else "")
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = [*words] if invocation.launch is None else _as_torchrun_starts(invocation)
    if invocation.kind != command.EXECUTE:
        optimizer_steps.count()
    return _RUNNERS[invocation.kind](invocation)


def _as_launched(invocation: command.Invocation, launch: torchrun.Launch) -> command.Invocation:
    """Return the invocation with what torchrun would give this rank besides, if it may start so many ranks."""
    world, ranks = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
    torchrun.check_size(launch, world // ranks, ranks, _per_node(launch.per_node))
    os.environ["ROLE_NAME"] = launch.role
    words = list(invocation.arguments)
    if launch.tells_local_rank:
        local = f"{launch.local_rank_option}={os.environ['LOCAL_RANK']}"
        words.insert(words.index(launch.program) + 1 if invocation.kind == command.EXECUTE else 0, local)
    return replace(invocation, arguments=tuple(words))


def _as_torchrun_starts(invocation: command.Invocation) -> List[str]:
    """Return the command line that torchrun would give this rank."""
    module = ["-m"] if invocation.kind == command.MODULE else []
    return [sys.executable, "-u", *module, invocation.target, *invocation.arguments]


def _per_node(text: Optional[str]) -> Optional[int]:
    """Return the number that --nproc-per-node comes to on this machine; None where it is left out."""
    if text is None or text.isdigit():
        return int(text) if text else None
    if text in ("auto", "gpu"):
        devices = int(importlib.import_module("torch").cuda.device_count())
        if devices:
            return devices
        if text == "gpu":
            raise torchrun.CommandError(
                "training.command: --nproc-per-node=gpu finds no GPU here: set spec.workers.gpus where there are some, "
                "or replace gpu by a number"
            )
    if text in ("auto", "cpu"):
        return os.cpu_count()
    raise torchrun.CommandError(f"training.command: --nproc-per-node is a number, auto, gpu or cpu, not {text!r}")


def _note_imports(without: str) -> None:
    imports.note(os.environ.get(names.ENV_IMPORTS), without.partition(".")[0])


def _enter_folder(folder: Optional[str]) -> None:
    try:
        if folder:
            os.chdir(folder)
    except OSError as error:
        if not rank_errors.is_the_users(error):
            raise
        raise BadConfigurationError(f"workingDirectory: {error.strerror}: {folder}") from None
    # Where multiprocessing looks for a script with a relative path; it notes the folder when it is imported.
    multiprocessing.process.ORIGINAL_DIR = str(Path.cwd())  # type: ignore[attr-defined]


def _execute(invocation: command.Invocation) -> int:
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and that would be inherited
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        os.execvp(invocation.target, list(invocation.arguments))  # noqa: S606 no shell is what is wanted
    except OSError as error:
        if not rank_errors.is_the_users(error):
            raise
        cure = " (each word is an item of its own: [python, train.py])" if " " in invocation.target else ""
        raise BadConfigurationError(
            f"training.command: the command cannot be run: {error.strerror}: {invocation.target}{cure}"
        ) from None


_RUNNERS: Dict[str, Callable[[command.Invocation], Any]] = {
    command.SCRIPT: main_module.run_script,
    command.MODULE: main_module.run_module,
    command.EXECUTE: _execute,
}


# --- Ends ------------------------------------------------------------------------------------------------------


def _exit_code(value: Any) -> int:
    """Return what Python makes of a SystemExit's value."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value & 0xFF if -_LONG <= value < _LONG else 0xFF
    rank_errors.say(rank_errors.text_of(value))
    return 1


def _last_words(error: BaseException) -> int:
    _leave_evidence(error)
    if getattr(type(error), "trainmaster_configuration_error", False):
        rank_errors.say(f"trainmaster: {rank_errors.text_of(error)}")
        return names.EXIT_BAD_CONFIGURATION
    if getattr(type(error), "trainmaster_says_all", False):
        rank_errors.say(f"trainmaster: {type(error).__name__}: {rank_errors.text_of(error)}")
        return 1
    _show(error)
    return 128 + signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1


def _leave_evidence(error: BaseException) -> None:
    error.__traceback__ = rank_errors.users_part(error)
    rank_errors.write(os.environ.get(names.ENV_ERROR_FILE), error)


def _show(error: BaseException) -> None:
    """Show an uncaught exception as Python does, with the program's own hook where it has one."""
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except BaseException as second:  # noqa: BLE001 such a hook must not hide the error itself
        rank_errors.say("Error in sys.excepthook:")
        second.__traceback__ = rank_errors.users_part(second)
        sys.__excepthook__(type(second), second, second.__traceback__)
        rank_errors.say("\nOriginal exception was:")
        sys.__excepthook__(type(error), error, error.__traceback__)


if __name__ == "__main__":
    main()

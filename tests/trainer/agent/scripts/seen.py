"""Writes down all that a rank can see at its start: one JSON file per rank, in the folder SEEN."""

import sys

AT_START = sorted(name for name, module in sys.modules.items() if module is not None)

import gc  # noqa: E402 the modules that were there before any import come first
import json  # noqa: E402
import locale  # noqa: E402
import multiprocessing  # noqa: E402
import os  # noqa: E402
import random  # noqa: E402
import resource  # noqa: E402
import signal  # noqa: E402
import threading  # noqa: E402
import warnings  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

FACTS = globals()


def stream(name: str) -> list[Any]:
    """What can be seen of a standard stream, and of the file below it."""
    one = getattr(sys, name)
    kind = os.fstat(one.fileno()).st_mode & 0o170000
    buffered = [one.line_buffering, one.write_through, type(one.buffer).__name__]
    return [one.name, one.mode, one.encoding, one.errors, one.newlines, one.isatty(), one.fileno(), kind, *buffered]


def of_python() -> dict[str, Any]:
    """What needs no library."""
    umask = os.umask(0)
    os.umask(umask)
    return {
        "modules": AT_START,
        "variables": dict(os.environ),
        "main": [
            __name__,
            __package__,
            getattr(__spec__, "name", None),
            getattr(__spec__, "origin", None),
            type(FACTS["__loader__"]).__name__,
            FACTS.get("__cached__"),
        ],
        "file": FACTS["__file__"],
        "arguments": sys.argv,
        "original": sys.orig_argv,
        "path": sys.path,
        "finders": [getattr(one, "__name__", type(one).__name__) for one in sys.meta_path],
        "hooks": [sys.excepthook is sys.__excepthook__, threading.excepthook is threading.__excepthook__],
        "flags": {
            name: getattr(sys.flags, name)
            for name in dir(sys.flags)
            if name[0] != "_" and name not in ("count", "index")
        },
        "options": [sys._xoptions, sys.warnoptions, sys.dont_write_bytecode, sys.pycache_prefix],
        "warnings": [repr(one) for one in warnings.filters],
        "streams": {name: stream(name) for name in ("stdin", "stdout", "stderr")},
        "descriptors": sorted(int(path.name) for path in Path("/proc/self/fd").iterdir())[:-1],
        "folder": str(Path.cwd().name),
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if "RLIMIT_" in name},
        "umask": umask,
        "signals": {int(one): repr(signal.getsignal(one)).split(" at ")[0] for one in signal.valid_signals()},
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "timer": signal.getitimer(signal.ITIMER_REAL),
        "locale": [locale.setlocale(locale.LC_ALL), sys.getfilesystemencoding(), locale.getpreferredencoding()],
        "threads": [one.name for one in threading.enumerate()],
        "process": [multiprocessing.current_process().name, multiprocessing.get_start_method(True), os.nice(0)],
        "parent": multiprocessing.parent_process() is None,
        "children": [one.name for one in multiprocessing.active_children()],
        "collector": [gc.get_threshold(), gc.isenabled(), gc.get_debug(), len(gc.garbage)],
        "interpreter": [sys.getrecursionlimit(), sys.getswitchinterval(), sys.getdlopenflags(), sys.gettrace() is None],
        "cores": sorted(os.sched_getaffinity(0)),
        "leads": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
        "random": random.random(),  # noqa: S311 it is what is looked at
    }


def of_libraries() -> dict[str, Any]:
    """What NumPy and torch say of themselves, and whether the ranks meet by what torchrun's contract says."""
    import logging  # noqa: PLC0415 after the rest

    import numpy as np  # noqa: PLC0415
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    facts = {
        "threads of torch": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "seed of torch": torch.initial_seed(),
        "dtype": str(torch.get_default_dtype()),
        "modes": [torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")],
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "sharing": torch.multiprocessing.get_sharing_strategy(),  # type: ignore[no-untyped-call]
        "start of torch": torch.multiprocessing.get_start_method(True),
        "cuda": [torch.cuda.is_initialized(), torch.cuda.is_available()],  # type: ignore[no-untyped-call]
        "loggers": [logging.getLogger().level, logging.getLogger("torch").level, len(logging.getLogger().handlers)],
        "numpy": float(np.random.rand()),  # noqa: NPY002 the global generator is meant
        "drawn by torch": float(torch.rand(1)),
        "launched": dist.is_torchelastic_launched(),
    }
    dist.init_process_group("gloo")
    total = torch.tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(total)
    met = [dist.get_rank(), dist.get_world_size(), total.item()]
    dist.barrier()
    dist.destroy_process_group()
    return {**facts, "met": met}


if __name__ == "__main__":
    seen = of_python()
    seen = {**seen, **of_libraries()}
    place = Path(os.environ["SEEN"], f"{os.environ['SEEN_AS']}-{os.environ['RANK']}.json")
    place.write_text(json.dumps(seen))
    sys.exit(int(os.environ.get("SEEN_EXIT", "0")))

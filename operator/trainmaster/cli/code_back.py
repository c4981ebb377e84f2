"""Run `trainmaster code NAME -o DIR`: write the code that a job on a cluster runs into a folder."""

import argparse
from pathlib import Path

from trainmaster.api.problem import reason
from trainmaster.cli.cluster import EXIT_CLUSTER, EXIT_INVALID
from trainmaster.cli.targets import find_local
from trainmaster.cli.terminal import complain, tell
from trainmaster.cluster.access import Access, AccessError
from trainmaster.cluster.submission import code_of
from trainmaster.wire import bundle
from trainmaster.wire.sources import SourceUnavailableError


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit code."""
    folder = Path(options.output)
    if find_local(options.name, options):
        complain(f"{options.name} ran on this machine: its code lies in the folder of its JOB.yaml, and none was sent")
        return EXIT_INVALID
    try:
        if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
            complain(f"{folder}: it is there already and is not an empty folder; name another with -o")
            return EXIT_INVALID
        access = Access(options.context, options.namespace)
        entries = code_of(access, access.job(options.name))
        bundle.write(entries, folder)
    except (AccessError, SourceUnavailableError) as error:
        complain(f"trainmaster code: {error}")
        return EXIT_CLUSTER
    except bundle.BundleError as error:
        complain(f"trainmaster code: {options.name}: {error}")
        return EXIT_INVALID
    except OSError as error:
        complain(f"trainmaster code: {error.filename or folder}: {reason(error)}")
        return EXIT_INVALID
    tell([f"{len(entries)} files in {folder}"])
    return 0

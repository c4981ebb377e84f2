"""Say which code a job runs, where it is not known from `trainmaster submit`: the git commit of its folder."""

from __future__ import annotations

import subprocess

_SECONDS = 10.0


def commit() -> dict[str, str]:
    """Return the commit of the working directory, and whether files differ from it; nothing where git knows none."""
    try:
        head = _git("rev-parse", "HEAD")
        if head.returncode:
            return {}
        dirty = _git("diff", "--quiet", "HEAD").returncode == 1
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return {"commit": head.stdout.strip(), **({"dirty": "true"} if dirty else {})}


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], capture_output=True, text=True, timeout=_SECONDS, check=False)

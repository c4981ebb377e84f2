"""Two runs of tests beside one another are never given the same port."""

import subprocess
import sys

from tests.ports import free_port


def test_another_process_is_given_other_ports() -> None:
    program = "from tests.ports import free_port; print([free_port() for _ in range(20)])"
    ours = {free_port() for _ in range(20)}
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    theirs = {int(port) for port in other.stdout.strip("[]\n").split(",")}
    assert len(theirs) == 20
    assert not ours & theirs

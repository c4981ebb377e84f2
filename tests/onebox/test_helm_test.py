"""`helm test` on a real cluster: its pod reaches the operator by the Service, and says so."""

import subprocess
from pathlib import Path

from tests.onebox.flavours import Flavour
from tools.onebox import binaries


def test_helm_test_reaches_the_operator(cluster: Flavour, tmp_path: Path) -> None:
    command = [str(binaries.path("helm")), "test", "trainmaster", "--namespace", "trainmaster-system", "--logs"]
    environment = {"KUBECONFIG": str(cluster.kubeconfig), "HOME": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "refuses a heartbeat without a token" in done.stdout

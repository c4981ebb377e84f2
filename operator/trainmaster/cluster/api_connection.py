"""Find the API server and our credentials: from the pod's service account, or from a kubeconfig.

kopf reads the kubeconfig; where that names a program to log in with (exec), the official client runs it.
"""

import logging
import os
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import kopf
import yaml

log = logging.getLogger("trainmaster.connection")

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# The kubelet replaces the token file long before the token expires.
TOKEN_SECONDS = 60.0


def login() -> kopf.ConnectionInfo:
    """Return the address of the API server and our credentials, as kopf wants them.

    Raises:
        kopf.LoginError: neither in a pod, nor is there a usable kubeconfig.
    """
    if "KUBERNETES_SERVICE_HOST" in os.environ and (SERVICE_ACCOUNT / "token").exists():
        # The API server is reached by its IP address, so that no DNS is needed.
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        return kopf.ConnectionInfo(
            server=f"https://{bracketed(host)}:{port}",
            ca_path=str(SERVICE_ACCOUNT / "ca.crt"),
            token=(SERVICE_ACCOUNT / "token").read_text().strip(),
        )
    settings = kopf.OperatorSettings()
    try:
        info = kopf.login_with_kubeconfig(settings=settings)
    except (OSError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise kopf.LoginError(f"the kubeconfig cannot be used: {type(error).__name__}: {error}") from error
    if info is None:
        raise kopf.LoginError("not in a pod, and no kubeconfig: set KUBECONFIG")
    if info.token or info.username or info.certificate_data or info.certificate_path:
        return info
    return kopf.login_via_client(settings=settings, logger=log) or info


def bracketed(host: str) -> str:
    """Return a host as it stands in a URL: an IPv6 address gets brackets."""
    return f"[{host}]" if ":" in host else host


class ApiConnection:
    """Keep the credentials, and read them again when they are older than TOKEN_SECONDS."""

    def __init__(self, load: Callable[[], kopf.ConnectionInfo] = login) -> None:
        self._load = load
        self._info = load()
        self._read = time.monotonic()

    @property
    def server(self) -> str:
        """Return the URL of the API server, without a path."""
        return self._info.server.rstrip("/")

    def ssl_context(self) -> ssl.SSLContext | bool:
        """Return the SSL context for https; False for plain http (a proxy on this machine)."""
        return self._info.as_ssl_context() if self.server.startswith("https") else False

    def headers(self) -> dict[str, str]:
        """Return the current authorization headers."""
        if time.monotonic() - self._read > TOKEN_SECONDS:
            self.refresh()
        return self._info.as_http_headers()

    def refresh(self) -> None:
        """Read the credentials again; keep the old ones where that fails."""
        self._read = time.monotonic()
        try:
            self._info = self._load()
        except (kopf.LoginError, OSError) as error:
            log.warning("the credentials cannot be read again: %s", error)

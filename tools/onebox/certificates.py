"""Makes the certificates, keys and kubeconfig files of a cluster: one authority, everything else signed by it.

`controlplane.py` and `node.py` name the files that they need. Keys are made anew for every cluster and die with it.
"""

import base64
import json
from pathlib import Path

from tools.onebox.paths import (
    ALL_NODES,
    CERTIFICATES,
    CONFIGURATION,
    GATEWAY,
    KUBECONFIG,
    KUBERNETES_SERVICE,
    SERVER,
    node_address,
)
from tools.onebox.shell import run

AUTHORITY = CERTIFICATES / "authority.crt"
SERVICE_ACCOUNT_KEY = CERTIFICATES / "service-accounts.key"
SERVICE_ACCOUNT_PUBLIC = CERTIFICATES / "service-accounts.pub"

AUTHORITY_EXTENSIONS = (
    "basicConstraints=critical,CA:TRUE",
    "keyUsage=critical,keyCertSign,cRLSign",
    "subjectKeyIdentifier=hash",
)
HOLDER_EXTENSIONS = (
    "basicConstraints=critical,CA:FALSE",
    "extendedKeyUsage=serverAuth,clientAuth",
    "authorityKeyIdentifier=keyid",
)

# Who calls the API server: file name, common name (the user), organisation (the group).
CLIENTS = (
    ("admin", "onebox-admin", "system:masters"),
    ("kube-controller-manager", "system:kube-controller-manager", ""),
    ("kube-scheduler", "system:kube-scheduler", ""),
    ("kube-proxy", "system:kube-proxy", ""),
    *((f"kubelet-{node}", f"system:node:{node}", "system:nodes") for node in ALL_NODES),
)


def certificate(name: str) -> Path:
    """Name the certificate file of one holder."""
    return CERTIFICATES / f"{name}.crt"


def key(name: str) -> Path:
    """Name the private key file of one holder."""
    return CERTIFICATES / f"{name}.key"


def kubeconfig(name: str) -> Path:
    """Name the kubeconfig of one caller; the administrator's is the cluster's own."""
    return KUBECONFIG if name == "admin" else CONFIGURATION / f"{name}.kubeconfig"


def ensure() -> None:
    """Make everything once per cluster; a control plane that restarts finds its keys again."""
    if KUBECONFIG.exists():
        return
    for folder in (CERTIFICATES, CONFIGURATION):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _authority()
    _service_account_keys()
    _issue("kube-apiserver", "/CN=kube-apiserver", _api_server_names())
    _issue("apiserver-to-kubelet", "/O=system:masters/CN=kube-apiserver-kubelet-client")
    for node in ALL_NODES:
        _issue(f"serving-{node}", f"/O=system:nodes/CN=system:node:{node}", f"DNS:{node},IP:{node_address(node)}")
    for name, user, group in reversed(CLIENTS):  # the administrator's last: it says that all are there
        _issue(name, (f"/O={group}" if group else "") + f"/CN={user}")
        _write_kubeconfig(name)


def _authority() -> None:
    _request("authority", "/CN=onebox-authority", AUTHORITY_EXTENSIONS)


def _issue(name: str, subject: str, names: str = "") -> None:
    signed_by = ("-CA", str(AUTHORITY), "-CAkey", str(key("authority")))
    extensions = (*HOLDER_EXTENSIONS, f"subjectAltName={names}") if names else HOLDER_EXTENSIONS
    _request(name, subject, extensions, *signed_by)


def _request(name: str, subject: str, extensions: tuple[str, ...], *more: str) -> None:
    # A configuration of our own: the system's would add extensions beside those that are named here.
    plain = CERTIFICATES / "openssl.conf"
    plain.write_text("[req]\ndistinguished_name=subject\n[subject]\n")
    run(
        "openssl", "req", "-config", plain, "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
        "-nodes", "-days", "365", "-subj", subject, "-keyout", key(name), "-out", certificate(name), *more,
        *(word for line in extensions for word in ("-addext", line)),
    )  # fmt: skip


def _service_account_keys() -> None:
    run("openssl", "genrsa", "-out", SERVICE_ACCOUNT_KEY, "2048")
    run("openssl", "rsa", "-in", SERVICE_ACCOUNT_KEY, "-pubout", "-out", SERVICE_ACCOUNT_PUBLIC)


def _api_server_names() -> str:
    names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"]
    addresses = [GATEWAY, KUBERNETES_SERVICE, "127.0.0.1"]
    return ",".join([*(f"DNS:{name}" for name in names), *(f"IP:{address}" for address in addresses)])


def _write_kubeconfig(name: str) -> None:
    """Write JSON, which is YAML too; keys are embedded, so that the file can be copied."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "onebox", "cluster": {"server": SERVER, "certificate-authority-data": _encoded(AUTHORITY)}}
        ],
        "users": [
            {
                "name": name,
                "user": {
                    "client-certificate-data": _encoded(certificate(name)),
                    "client-key-data": _encoded(key(name)),
                },
            }
        ],
        "contexts": [{"name": "onebox", "context": {"cluster": "onebox", "user": name}}],
        "current-context": "onebox",
    }
    kubeconfig(name).touch(mode=0o600)
    kubeconfig(name).write_text(json.dumps(content, indent=1))


def _encoded(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()

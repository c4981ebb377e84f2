"""etcd, API server, controller manager, scheduler and kube-proxy: what each is started with, and why.

`cluster.py` starts them in this order. None listens anywhere but on loopback and on the cluster's own bridge.
"""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping

from tools.onebox import binaries, certificates, processes
from tools.onebox.paths import (
    API_PORT,
    AUDIT_LOG,
    CONFIGURATION,
    ETCD,
    ETCD_PEERS,
    GATEWAY,
    LOOPBACK,
    NETWORK,
    NODE_NAMES,
    SERVER,
    SERVICES,
    STATE,
)
from tools.onebox.processes import Daemon
from tools.onebox.shell import write_if_changed

GROUP = "control"
NAMES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy")

# Who asked for what, once per request: benchmarks count writes in it, tests of rights read the verbs that were used.
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}

PROXY = {
    "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
    "kind": "KubeProxyConfiguration",
    "mode": "nftables",  # all its rules in two tables of its own, gone with one command
    "clusterCIDR": NETWORK,
    "hostnameOverride": NODE_NAMES[0],  # one proxy: both nodes share the host's network
    "healthzBindAddress": f"{LOOPBACK}:10256",
    "metricsBindAddress": f"{LOOPBACK}:10249",
    "nodePortAddresses": [NETWORK],
    "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    "clientConnection": {"kubeconfig": str(certificates.kubeconfig("kube-proxy"))},
    "oomScoreAdj": 0,  # below zero takes a capability that containers and CI machines withhold
}


def daemons() -> tuple[Daemon, ...]:
    """List the control plane in the order in which it starts."""
    commands = (_etcd(), _api_server(), _controller_manager(), _scheduler(), _proxy())
    return tuple(Daemon(name, command, GROUP) for name, command in zip(NAMES, commands, strict=True))


def start() -> None:
    """Start everything; the API server first serves, then the others connect to it."""
    certificates.ensure()
    _write("audit-policy", AUDIT_POLICY)
    _write("kube-proxy", PROXY)
    etcd, api_server, *others = daemons()
    processes.start(etcd)
    processes.start(api_server)
    wait_until_ready()
    for daemon in others:
        processes.start(daemon)


def wait_until_ready(seconds: float = 60.0) -> None:
    """Wait until the API server answers that it is ready."""
    processes.wait(_serves, "the API server is ready", seconds)


def is_ready() -> bool:
    """Ask the API server for its own verdict."""
    trust = ssl.create_default_context(cafile=str(certificates.AUTHORITY))
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust))
    try:
        with direct.open(f"{SERVER}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _serves() -> bool:
    """Only an API server over our own etcd counts: one that lost its port to another leaves the first to answer."""
    processes.require("etcd", "kube-apiserver")
    return is_ready()


def _write(name: str, content: Mapping[str, object]) -> None:
    write_if_changed(CONFIGURATION / f"{name}.json", json.dumps(content, indent=1))


def _command(program: str, **flags: object) -> tuple[str, ...]:
    words = (f"--{name.replace('_', '-')}={value}" for name, value in flags.items())
    return (str(binaries.path(program)), *words)


def _etcd() -> tuple[str, ...]:
    return _command(
        "etcd",
        data_dir=STATE / "etcd",
        unsafe_no_fsync="true",  # a crash of the machine ends this cluster anyway
        listen_client_urls=ETCD,
        advertise_client_urls=ETCD,
        listen_peer_urls=ETCD_PEERS,
        initial_advertise_peer_urls=ETCD_PEERS,
        initial_cluster=f"default={ETCD_PEERS}",
    )


def _api_server() -> tuple[str, ...]:
    return _command(
        "kube-apiserver",
        etcd_servers=ETCD,
        bind_address=GATEWAY,
        advertise_address=GATEWAY,  # so the `kubernetes` service leads pods to the bridge
        secure_port=API_PORT,
        service_cluster_ip_range=SERVICES,
        authorization_mode="Node,RBAC",
        enable_admission_plugins="NodeRestriction,PodSecurity",
        client_ca_file=certificates.AUTHORITY,
        tls_cert_file=certificates.certificate("kube-apiserver"),
        tls_private_key_file=certificates.key("kube-apiserver"),
        kubelet_certificate_authority=certificates.AUTHORITY,
        kubelet_client_certificate=certificates.certificate("apiserver-to-kubelet"),
        kubelet_client_key=certificates.key("apiserver-to-kubelet"),
        kubelet_preferred_address_types="InternalIP",  # node names resolve nowhere, and need not
        service_account_issuer="https://kubernetes.default.svc",
        service_account_key_file=certificates.SERVICE_ACCOUNT_PUBLIC,
        service_account_signing_key_file=certificates.SERVICE_ACCOUNT_KEY,
        audit_policy_file=CONFIGURATION / "audit-policy.json",
        audit_log_path=AUDIT_LOG,
        audit_log_maxsize=4096,  # never rotated while a test counts
    )


def _controller_manager() -> tuple[str, ...]:
    return _command(
        "kube-controller-manager",
        kubeconfig=certificates.kubeconfig("kube-controller-manager"),
        bind_address=LOOPBACK,
        secure_port=0,
        leader_elect="false",
        use_service_account_credentials="true",
        service_account_private_key_file=certificates.SERVICE_ACCOUNT_KEY,
        root_ca_file=certificates.AUTHORITY,
        node_monitor_period="1s",
        node_monitor_grace_period="8s",  # 50 s by default: tests that lose a node would mostly wait
    )


def _scheduler() -> tuple[str, ...]:
    return _command(
        "kube-scheduler",
        kubeconfig=certificates.kubeconfig("kube-scheduler"),
        bind_address=LOOPBACK,
        secure_port=0,
        leader_elect="false",
    )


def _proxy() -> tuple[str, ...]:
    return _command("kube-proxy", config=CONFIGURATION / "kube-proxy.json")

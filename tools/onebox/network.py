"""The network of the cluster: one bridge, closed towards every other interface of the machine.

`cluster.py` raises it before anything listens on it and takes it away last. Nothing of the machine's own settings
is changed but those that daemons of Kubernetes write by themselves; these are kept and put back.
"""

import json
from pathlib import Path

from tools.onebox.paths import ALL_NODES, BRIDGE, CACHE, GATEWAY, NAME, NETWORK, node_address
from tools.onebox.shell import OneboxError, run, succeeds

KEPT = CACHE / "sysctls.json"  # not in the checkout, which may go before its cluster does
# kubelet sets the first five, the bridge plugin or kube-proxy the others.
TOUCHED = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "net/ipv4/ip_forward",
    "net/ipv4/conf/all/route_localnet",
    "net/netfilter/nf_conntrack_max",
)

# Nobody outside reaches the cluster, and its pods reach nothing outside: two accidents less.
# (Traffic between pods crosses the forward hook too, where the kernel passes bridged packets to the packet filter.)
FENCE = f"""
table inet {NAME} {{
  chain input {{
    type filter hook input priority -10; policy accept;
    ip daddr {NETWORK} iifname != {{ "lo", "{BRIDGE}" }} drop
    iifname "{BRIDGE}" ip daddr != {NETWORK} drop
  }}
  chain forward {{
    type filter hook forward priority -10; policy accept;
    iifname "{BRIDGE}" oifname != "{BRIDGE}" drop
    oifname "{BRIDGE}" iifname != "{BRIDGE}" drop
  }}
}}
"""
# kube-proxy keeps its rules in tables of this name, one per family.
TABLES = (("inet", NAME), ("ip", "kube-proxy"), ("ip6", "kube-proxy"))


def up() -> None:
    """Make the bridge with the addresses of API server and nodes, and the fence around it."""
    _keep_sysctls()
    _pass_bridged_packets()
    if not Path("/sys/class/net", BRIDGE).exists():
        run("ip", "link", "add", BRIDGE, "type", "bridge")
    _write_sysctl(f"net/ipv6/conf/{BRIDGE}/disable_ipv6", "1")
    for address in (GATEWAY, *(node_address(node) for node in ALL_NODES)):
        run("ip", "address", "replace", f"{address}/16", "dev", BRIDGE)
    run("ip", "link", "set", BRIDGE, "up")
    # Service addresses are routed by the host; forwarding is switched on for this one interface.
    _write_sysctl(f"net/ipv4/conf/{BRIDGE}/forwarding", "1")
    if ("inet", NAME) not in tables():
        run("nft", "--file", "-", stdin=FENCE)


def down() -> None:
    """Take everything away again; what is not there is no error."""
    for family, table in tables():
        run("nft", "delete", "table", family, table)
    for interface in interfaces():
        succeeds("ip", "link", "delete", interface)
    _restore_sysctls()


def tables() -> list[tuple[str, str]]:
    """List those of our packet filter tables that the kernel has."""
    return [table for table in TABLES if succeeds("nft", "list", "table", *table)]


def interfaces() -> list[str]:
    """List the bridge and the host's ends of the pods' cables: the cables first."""
    cables = Path("/sys/class/net", BRIDGE, "brif")
    found = sorted(port.name for port in cables.iterdir()) if cables.exists() else []
    return [*found, BRIDGE] if Path("/sys/class/net", BRIDGE).exists() else found


def _pass_bridged_packets() -> None:
    """Let service addresses work between pods on the same bridge: replies must meet connection tracking."""
    setting = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
    if not setting.exists() and not succeeds("modprobe", "br_netfilter"):
        raise OneboxError("this kernel has no br_netfilter, so service addresses cannot work on a bridge")
    if setting.read_text().strip() != "1":
        setting.write_text("1")


def _keep_sysctls() -> None:
    if KEPT.exists():
        return
    present = {name: Path("/proc/sys", name) for name in TOUCHED}
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    KEPT.write_text(json.dumps({name: file.read_text().strip() for name, file in present.items() if file.exists()}))


def _restore_sysctls() -> None:
    if not KEPT.exists():
        return
    for name, value in json.loads(KEPT.read_text()).items():
        if Path("/proc/sys", name).read_text().strip() != value:
            _write_sysctl(name, value)
    KEPT.unlink()


def _write_sysctl(name: str, value: str) -> None:
    Path("/proc/sys", name).write_text(value)

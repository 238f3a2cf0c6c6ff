"""The network and mount namespaces of the cluster, held by one sleeping process.

All that Kubernetes mounts, and every address, rule and set of its network, exist only in there: with the last process
they are gone. Where its programs insist on folders of the system, they find folders of the cluster's own. (All of
/var/lib, not /var/lib/kubelet: whoever removed that outside would silently take it away inside.)
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from .place import Place
from .processes import Process, wait_for

BOUND = {"lib": "/var/lib", "log": "/var/log", "run": "/run"}
HOLD = """
mount --make-rshared /
for bind in "$@"; do mount --bind "${bind%%:*}" "${bind#*:}"; done
exec sleep infinity
"""


def hold(place: Place, cgroup: Path) -> int:
    """Start the process that holds the namespaces, unless it runs; returns its id once they are ready."""
    holder = Process(place.run, "namespaces")
    binds = [f"{place.run / 'system' / own}:{theirs}" for own, theirs in BOUND.items()]
    for own in BOUND:
        (place.run / "system" / own).mkdir(parents=True, exist_ok=True)
    unshare = ["unshare", "--net", "--mount", "--propagation", "private"]
    pid = holder.start([*unshare, "sh", "-euc", HOLD, "sh", *binds], cgroup)

    def ready() -> bool:
        if holder.pid is None:
            raise RuntimeError(f"the namespaces could not be made, see {holder.log}")
        return Path(f"/proc/{pid}/comm").read_text() == "sleep\n"

    wait_for(ready, "the namespaces", 10, 0.01)
    return pid


def enter(holder: int, *, mounts: bool = True) -> list[str]:
    """What to put before a command that is to run inside. (Not `ip netns exec`: it hides cgroups from the kubelet.)"""
    return ["nsenter", f"--net=/proc/{holder}/ns/net", *([f"--mount=/proc/{holder}/ns/mnt"] if mounts else []), "--"]


def connect(place: Place, holder: int) -> None:
    """Link the namespace to this machine, and give it its addresses."""
    inside = enter(holder, mounts=False)
    link, node = place.name, "node0"

    def ip(*arguments: str, within: bool = True) -> None:
        command = [*(inside if within else []), "ip", *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")

    if subprocess.run([*inside, "ip", "link", "show", node], capture_output=True).returncode:
        ip("link", "add", link, "type", "veth", "peer", "name", node, "netns", str(holder), within=False)
    ip("addr", "replace", f"{place.host_address}/24", "dev", link, within=False)
    ip("link", "set", link, "up", within=False)
    for network in (place.services, place.pods):  # so that this machine reaches Argo's server
        ip("route", "replace", network, "via", place.address, "dev", link, within=False)
    ip("link", "set", "lo", "up")
    ip("addr", "replace", f"{place.address}/24", "dev", node)
    ip("link", "set", node, "up")
    # A default route, so that what no one answers is refused here, at once, and services are routed at all.
    ip("route", "replace", "default", "via", place.address, "dev", node)
    forward = "echo 1 > /proc/sys/net/ipv4/ip_forward"
    subprocess.run([*inside, "sh", "-c", forward], check=True)

"""What a machine looks like before the cluster starts, to be compared with after it has gone."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from pathlib import Path
from typing import TypedDict

from . import cgroups
from .place import NAME, Place
from .processes import BOOT

# What the kubelet and the proxy set for the whole machine.
SETTINGS = (
    "kernel/keys/root_maxbytes", "kernel/keys/root_maxkeys", "kernel/panic", "kernel/panic_on_oops",
    "vm/overcommit_memory", "vm/panic_on_oom", "net/netfilter/nf_conntrack_max",
)  # fmt: skip
OUTSIDE = ("/var/lib/kubelet", "/var/lib/cni", "/run/containerd", "/run/netns", "/var/log/pods", "/var/log/containers")


class Before(TypedDict):
    """The machine before the cluster: in which boot, what was there, and the kernel's settings."""

    boot: str
    survey: dict[str, list[str]]
    settings: dict[str, str]


def settings() -> dict[str, str]:
    """The values of those kernel settings that this machine has."""
    paths = {name: Path("/proc/sys", name) for name in SETTINGS}
    return {name: path.read_text().strip() for name, path in paths.items() if path.exists()}


def survey(place: Place) -> dict[str, list[str]]:
    """Everything on the machine that a cluster could leave behind, by kind."""
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    links = json.loads(subprocess.run(["ip", "-j", "link"], capture_output=True, text=True, check=True).stdout)
    routes = subprocess.run(["ip", "route"], capture_output=True, text=True, check=True).stdout.splitlines()
    other = re.compile(rf"\b(?!{place.name}\b){NAME}\d*\b")  # clusters that come and go beside this one
    return {
        "cgroups": [str(folder) for folder in cgroups.folders(place.name)]
        + [str(folder) for folder in cgroups.folders("kubepods")],
        "files": [path for path in OUTSIDE if Path(path).exists()],
        "ip6tables": _rules("ip6tables-save"),
        "iptables": _rules("iptables-save"),
        "kernel settings": [f"{name} = {value}" for name, value in settings().items()],
        "links": [link["ifname"] for link in links if not other.search(link["ifname"])],
        "mounts": [mount for mount in mounts if NAME in mount or "kube" in mount or "containerd" in mount],
        "namespaces": namespaces(place),
        "processes": [str(pid) for pid in cgroups.members(place.name)],
        "routes": [route.strip() for route in routes if not other.search(route)],
    }


def _rules(command: str) -> list[str]:
    """Without their counters."""
    lines = subprocess.run([command], capture_output=True, text=True).stdout.splitlines()
    return [line.partition(" [")[0] for line in lines if line[:1] in ("-", ":")]


def namespaces(place: Place) -> list[str]:
    """The cluster's network and mount namespaces that still hold a process, and which: a shell, what left its cgroup.

    They are told by what is in them, not by their numbers, which the kernel gives to others at once.
    """
    signs = {  # the mounts' folders as they are, and from the root of a file system of their own
        "net": ("net/fib_trie", [f"-- {place.address}\n"]),
        "mnt": ("mountinfo", [f"{place.run}/", f"/{place.run.name}/system/"]),
    }
    seen: dict[str, str] = {}
    for process in Path("/proc").glob("[0-9]*"):
        for kind, (file, marks) in signs.items():
            with contextlib.suppress(OSError):  # it has ended
                namespace = os.readlink(process / "ns" / kind)
                if namespace not in seen:
                    told = (process / file).read_text()
                    name = (process / "comm").read_text().strip()
                    seen[namespace] = f"{namespace} of {process.name} ({name})" if any(m in told for m in marks) else ""
    return sorted(filter(None, seen.values()))


def compare(before: dict[str, list[str]], after: dict[str, list[str]]) -> list[str]:
    """One line for each thing that is there after and was not before."""
    return [f"{kind}: {thing}" for kind in after for thing in after[kind] if thing not in before.get(kind, [])]


def look(place: Place) -> Before:
    """The machine as it is now."""
    return {"boot": BOOT.read_text(), "survey": survey(place), "settings": settings()}


def note(place: Place, before: Before) -> None:
    """Keep what the machine looked like in the cluster's folder, which is made."""
    place.run.mkdir(parents=True)
    (place.run / "before.json").write_text(json.dumps(before))


def noted(place: Place) -> Before | None:
    """What was kept, unless it was of an earlier boot."""
    try:
        before: Before = json.loads((place.run / "before.json").read_text())
    except (FileNotFoundError, ValueError):
        return None
    return before if before.get("boot") == BOOT.read_text() else None


def restore(place: Place, before: Before) -> list[str]:
    """Set the kernel's settings back; returns a line for whatever else differs from before."""
    for name, value in settings().items():
        if before["settings"].get(name, value) != value:
            Path("/proc/sys", name).write_text(before["settings"][name])
    return compare(before["survey"], survey(place))

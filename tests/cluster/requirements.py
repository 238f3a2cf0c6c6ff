"""What must be on the machine: root, Go, and Debian packages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

PACKAGES = {
    "buildah": "buildah",
    "conntrack": "conntrack",
    "containerd": "containerd",
    "debootstrap": "debootstrap",
    "docker-registry": "docker-registry",
    "ip": "iproute2",
    "ipset": "ipset",
    "iptables": "iptables",
    "mount": "mount",
    "openssl": "openssl",
    "runc": "runc",
    "setsid": "util-linux",
    "unshare": "util-linux",
    "/usr/lib/cni/ptp": "containernetworking-plugins",
}
POLICY = Path("/usr/sbin/policy-rc.d")  # with it, Debian's packages start no services
GO = (1, 26)
ADMIN_PATHS = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/go/bin"


def widen_path() -> None:
    """Administrators' programs are found also where a user's PATH lacks their folders."""
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}:{ADMIN_PATHS}"


def program(name: str, ours: Path) -> str | None:
    """Where the machine has it: not in `ours`, the folder of the cluster's tools, which `env` puts first."""
    folders = [folder for folder in os.environ["PATH"].split(os.pathsep) if folder and Path(folder) != ours]
    return shutil.which(name, path=os.pathsep.join(folders))


def packages() -> list[str]:
    """The Debian packages that are missing."""
    return sorted({package for program, package in PACKAGES.items() if shutil.which(program) is None})


def missing() -> list[str]:
    """One line for each thing that is missing, saying what to do."""
    lines = []
    if os.geteuid():
        lines.append("it must be run by root: it makes namespaces and mounts")
    if not Path("/sys/fs/cgroup").is_dir():
        lines.append("/sys/fs/cgroup is not mounted")
    version = go_version()
    if version is None or version < GO:
        found = "there is none" if version is None else f"this is {version[0]}.{version[1]}"
        lines.append(f"Go {GO[0]}.{GO[1]} or later is needed ({found}): https://go.dev/dl")
    if absent := packages():
        lines.append(f"Debian packages are missing: {' '.join(absent)} (`up --install` installs them)")
    return lines


def go_version() -> tuple[int, int] | None:
    """That of the Go on the PATH, if any."""
    if shutil.which("go") is None:
        return None
    said = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True).stdout
    numbers = re.match(r"go(\d+)\.(\d+)", said)
    return (int(numbers[1]), int(numbers[2])) if numbers else None


def install() -> None:
    """Install the missing Debian packages. Services that they would start are not started."""
    if absent := packages():
        ours = not POLICY.exists()
        if ours:
            POLICY.write_text("#!/bin/sh\nexit 101\n")
            POLICY.chmod(0o755)
        try:
            env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            subprocess.run(["apt-get", "update", "-q"], check=True, env=env)
            subprocess.run(["apt-get", "install", "-q", "-y", "--no-install-recommends", *absent], check=True, env=env)
        finally:
            if ours:
                POLICY.unlink()

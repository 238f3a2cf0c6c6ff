"""Where the cluster lies, what it is called and which addresses it has."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
BUILDS = Path(__file__).parent / "builds"
OBJECTS = Path(__file__).parent / "objects"

NAME = "ffdl-cluster"
NODE = "node0"
ADDRESSES = "198.18.0.0/15"  # of all clusters: the benchmarking range, which is routed nowhere
DEVICES = {"nvidia.com/gpu": 8, "example.com/gpu": 8}
NAMESPACE = "ffdl"


def cache_folder() -> Path:
    """FFDL_CLUSTER_CACHE, else `ffdl-cluster` in the user's cache."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / NAME
    return Path(os.environ.get("FFDL_CLUSTER_CACHE") or default).resolve()


@dataclass(frozen=True)
class Place:
    """One cluster of this machine. All that it writes while it runs is in `run`; builds outlive it in `cache`.

    `number` tells clusters apart that run at once (FFDL_CLUSTER_NUMBER): each has its own folder and addresses.
    """

    cache: Path
    number: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.number <= 7:
            raise ValueError(f"FFDL_CLUSTER_NUMBER is {self.number}; it can be 0 to 7")

    @classmethod
    def default(cls) -> Place:
        return cls(cache_folder(), int(os.environ.get("FFDL_CLUSTER_NUMBER") or 0))

    @property
    def name(self) -> str:
        """Of the cgroup and of the link on the host."""
        return f"{NAME}{self.number or ''}"

    @property
    def run(self) -> Path:
        return self.cache / f"run{self.number or ''}"

    @property
    def address(self) -> str:
        """The node's: API server, S3, registry."""
        return f"198.18.{64 + self.number}.1"

    @property
    def host_address(self) -> str:
        """This machine's, on the link to the node."""
        return f"198.18.{64 + self.number}.2"

    def service(self, index: int) -> str:
        """The address of a service: 1 is the API server's, 10 that of DNS."""
        return f"198.18.{128 + 16 * self.number}.{index}"

    @property
    def services(self) -> str:
        return f"{self.service(0)}/20"

    @property
    def pods(self) -> str:
        """Of the cluster; the node has the first 256 of them."""
        return f"198.19.{16 * self.number}.0/20"

    @property
    def url(self) -> str:
        """The API server's."""
        return f"https://{self.address}:6443"

    @property
    def s3(self) -> str:
        return f"http://{self.address}:7070"

    @property
    def registry(self) -> str:
        return f"{self.address}:5000"

    @property
    def containerd(self) -> Path:
        """Its socket."""
        return self.run / "containerd.sock"

    @property
    def kubeconfig(self) -> Path:
        """Of the administrator."""
        return self.run / "keys" / "admin.kubeconfig"

    @property
    def tools(self) -> Path:
        """kubectl, argo and ctr, as a user of this cluster calls them."""
        return self.run / "bin"

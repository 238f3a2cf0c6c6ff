"""What the cluster consists of: a command line and a sign of health for each of its processes, in order of start."""

from __future__ import annotations

import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .place import DEVICES, NODE, Place

ETCD = "http://127.0.0.1:2379"
S3_KEYS = ("ffdl-access", "ffdl-secret-of-the-test-cluster")
STORAGE_CLASS, PROVISIONER = "shared", "ffdl.org/shared-folders"


@dataclass(frozen=True)
class Component:
    """One program of the cluster.

    `healthy` is asked until it is true; None where running is all that can be said. `sockets` are removed before a
    start: what a killed process left of them.
    """

    name: str
    command: list[str]
    healthy: Callable[[], bool] | None = None
    sockets: tuple[Path, ...] = ()


def answers(url: str, *, refused: bool = False) -> Callable[[], bool]:
    """Whether a GET is answered with 200, or at all where a refusal is an answer too."""
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusting))

    def ask() -> bool:
        try:
            with opener.open(url, timeout=2):
                return True
        except urllib.error.HTTPError as error:
            error.close()
            return refused
        except (OSError, http.client.HTTPException):
            return False

    return ask


def components(place: Place, builds: Mapping[str, Path]) -> dict[str, Component]:
    """All components, by name, in the order in which they start.

    `builds` says where each build of `build.NAMES` lies.
    """
    onenode = str(builds["onenode"] / "onenode")
    return {each.name: each for each in (*kubernetes(place, onenode), *services(place, onenode, builds))}


def kubernetes(place: Place, onenode: str) -> list[Component]:
    keys, address = place.run / "keys", place.address
    config = f"--kubeconfig={place.kubeconfig}"
    etcd = [
        onenode, "etcd", f"--data-dir={place.run}/etcd", "--unsafe-no-fsync", "--log-level=warn",
        f"--listen-client-urls={ETCD}", f"--advertise-client-urls={ETCD}",
        "--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
        "--initial-cluster=default=http://127.0.0.1:2380",
    ]  # fmt: skip
    apiserver = [
        onenode, "kube-apiserver", f"--etcd-servers={ETCD}", f"--advertise-address={address}", "--secure-port=6443",
        f"--tls-cert-file={keys}/apiserver.crt", f"--tls-private-key-file={keys}/apiserver.key",
        f"--client-ca-file={keys}/ca.crt", f"--token-auth-file={keys}/tokens.csv",
        f"--service-account-key-file={keys}/service-accounts.pub",
        f"--service-account-signing-key-file={keys}/service-accounts.key",
        "--service-account-issuer=https://kubernetes.default.svc", f"--service-cluster-ip-range={place.services}",
        "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged",
        f"--kubelet-certificate-authority={keys}/ca.crt", "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-client-certificate={keys}/apiserver-to-kubelet.crt",
        f"--kubelet-client-key={keys}/apiserver-to-kubelet.key",
    ]  # fmt: skip
    controllers = [
        onenode, "kube-controller-manager", config, "--leader-elect=false", "--use-service-account-credentials",
        f"--service-account-private-key-file={keys}/service-accounts.key", f"--root-ca-file={keys}/ca.crt",
        "--allocate-node-cidrs", f"--cluster-cidr={place.pods}",
    ]  # fmt: skip
    containerd = ["containerd", "--config", f"{place.run}/containerd.toml"]
    kubelet = [
        onenode, "kubelet", f"--kubeconfig={keys}/kubelet.kubeconfig", f"--config={place.run}/kubelet.json",
        f"--hostname-override={NODE}", f"--node-ip={address}", "--v=2",
    ]  # fmt: skip
    proxy = [
        onenode, "kube-proxy", config, f"--hostname-override={NODE}", "--proxy-mode=iptables",
        f"--cluster-cidr={place.pods}",
        "--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0",
    ]  # fmt: skip
    return [
        Component("etcd", etcd),
        Component("apiserver", apiserver, answers(f"{place.url}/readyz")),
        Component("controller-manager", controllers, answers(f"https://{address}:10257/healthz")),
        Component(
            "scheduler",
            [onenode, "kube-scheduler", config, "--leader-elect=false"],
            answers(f"https://{address}:10259/healthz"),
        ),
        Component("containerd", containerd, place.containerd.is_socket, sockets=(place.containerd,)),
        Component("kubelet", kubelet, answers(f"http://{address}:10248/healthz")),
        Component("proxy", proxy, answers(f"http://{address}:10256/healthz")),
    ]


def services(place: Place, onenode: str, builds: Mapping[str, Path]) -> list[Component]:
    counts = [f"--resource={name}={count}" for name, count in DEVICES.items()]
    devices = [onenode, "devices", f"--health={place.address}:8090", *counts]
    volumes = [
        onenode, "volumes", f"--kubeconfig={place.kubeconfig}", f"--folder={place.run}/volumes",
        f"--class={STORAGE_CLASS}", f"--name={PROVISIONER}",
    ]  # fmt: skip
    s3 = [
        str(builds["argo"] / "versitygw"), "--port", place.s3.removeprefix("http://"), "--access", S3_KEYS[0],
        "--secret", S3_KEYS[1], "--keep-alive", "--quiet", "posix", f"{place.run}/s3",
    ]  # fmt: skip
    policies = [
        str(builds["policies"] / "kube-router"), f"--kubeconfig={place.kubeconfig}", f"--hostname-override={NODE}",
        "--run-firewall", "--run-router=false", "--run-service-proxy=false", "--enable-cni=false",
        f"--service-cluster-ip-range={place.services}", "--metrics-port=0", "--health-port=20244",
    ]  # fmt: skip
    return [
        Component("policies", policies, answers(f"http://{place.address}:20244/healthz")),
        Component("devices", devices, answers(f"http://{place.address}:8090")),
        Component("volumes", volumes),
        Component("s3", s3, answers(place.s3, refused=True)),
        Component(
            "registry",
            ["docker-registry", "serve", f"{place.run}/registry.yaml"],
            answers(f"http://{place.registry}/v2/"),
        ),
    ]

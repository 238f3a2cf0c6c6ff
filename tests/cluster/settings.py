"""The configuration files of the components."""

from __future__ import annotations

import json

from .place import Place

PAUSE = "localhost/pause:1"


def write(place: Place) -> None:
    """Write all of them into the cluster's folder."""
    files = {
        "containerd.toml": containerd(place),
        f"certs.d/{place.registry}/hosts.toml": f'[host."http://{place.registry}"]\n',
        "net.d/10-pods.conflist": json.dumps(pod_network(place)),
        "kubelet.json": json.dumps(kubelet(place), indent=1),
        "registry.yaml": json.dumps(registry(place), indent=1),
        "resolv.conf": f"nameserver {place.service(10)}\n",
    }
    for name, text in files.items():
        path = place.run / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def containerd(place: Place) -> str:
    return f"""\
version = 2
root = "{place.run}/containerd"
state = "/run/containerd"
[grpc]
  address = "{place.containerd}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{place.run}/net.d"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{place.run}/certs.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"""


def pod_network(place: Place) -> dict[str, object]:
    """A link of its own for each pod: all that they say to each other is routed, and so seen by network policies."""
    ranges = [[{"subnet": place.pods.replace("/20", "/24")}]]
    ipam = {
        "type": "host-local",
        "ranges": ranges,
        "dataDir": f"{place.run}/addresses",
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    plugins = [
        {"type": "ptp", "ipMasq": False, "ipam": ipam},
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ]
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": plugins}


def kubelet(place: Place) -> dict[str, object]:
    keys = place.run / "keys"
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": False}, "x509": {"clientCAFile": str(keys / "ca.crt")}},
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(keys / "kubelet.crt"),
        "tlsPrivateKeyFile": str(keys / "kubelet.key"),
        "healthzBindAddress": place.address,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{place.name}",
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "containerRuntimeEndpoint": f"unix://{place.containerd}",
        "clusterDNS": [place.service(10)],
        "clusterDomain": "cluster.local",
        "resolvConf": str(place.run / "resolv.conf"),
        "maxPods": 250,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageMinimumGCAge": "24h",
        "imageGCHighThresholdPercent": 100,
        "syncFrequency": "10s",
        # A killed controller of Argo is to be back at once, however often it was killed.
        "featureGates": {"KubeletCrashLoopBackOffMax": True},
        "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
    }


def registry(place: Place) -> dict[str, object]:
    """A registry that anyone may push to, without TLS."""
    return {
        "version": 0.1,
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": f"{place.run}/registry"}, "delete": {"enabled": True}},
        "http": {"addr": place.registry},
    }

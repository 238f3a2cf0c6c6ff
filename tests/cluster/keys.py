"""The cluster's keys, certificates and tokens, new with each cluster, and the kubeconfigs made of them."""

from __future__ import annotations

import base64
import json
import secrets
import subprocess
from pathlib import Path

from .place import NAMESPACE, NODE, Place

USERS = {"admin": ("admin", "system:masters"), "kubelet": (f"system:node:{NODE}", "system:nodes")}


def make(place: Place) -> Path:
    """Make what is missing in the folder of keys; returns the folder."""
    folder = place.run / "keys"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (folder / "ca.crt").exists():
        _openssl(
            folder, "req -x509 -newkey rsa:2048 -nodes -days 3650 -subj /CN=ffdl-cluster -keyout ca.key -out ca.crt"
        )
    dns = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
    names = [f"IP:{address}" for address in ("127.0.0.1", place.address, place.service(1))] + [
        f"DNS:{name}" for name in dns
    ]
    _certificate(folder, "apiserver", "/CN=kube-apiserver", names)
    _certificate(folder, "apiserver-to-kubelet", "/O=system:masters/CN=kube-apiserver", ["DNS:apiserver"])
    _certificate(folder, "kubelet", f"/O=system:nodes/CN=system:node:{NODE}", [f"IP:{place.address}", f"DNS:{NODE}"])
    if not (folder / "service-accounts.pub").exists():
        _openssl(folder, "genrsa -out service-accounts.key 2048")
        _openssl(folder, "rsa -in service-accounts.key -pubout -out service-accounts.pub")
    if not (folder / "tokens.csv").exists():
        tokens = {name: secrets.token_hex(24) for name in USERS}
        for name, token in tokens.items():
            (folder / f"{name}.kubeconfig").write_text(json.dumps(kubeconfig(place, token), indent=1))
        lines = [f"{tokens[name]},{user},{name},{group}\n" for name, (user, group) in USERS.items()]
        (folder / "tokens.csv").write_text("".join(lines))
    return folder


def kubeconfig(place: Place, token: str, namespace: str = NAMESPACE) -> dict[str, object]:
    """A kubeconfig for the holder of a token; it needs no other file."""
    authority = base64.b64encode((place.run / "keys" / "ca.crt").read_bytes()).decode()
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": place.name, "cluster": {"server": place.url, "certificate-authority-data": authority}}],
        "users": [{"name": "user", "user": {"token": token}}],
        "contexts": [{"name": place.name, "context": {"cluster": place.name, "user": "user", "namespace": namespace}}],
        "current-context": place.name,
    }


def _certificate(folder: Path, name: str, subject: str, names: list[str]) -> None:
    if (folder / f"{name}.crt").exists():
        return
    (folder / f"{name}.ext").write_text(f"subjectAltName={','.join(names)}\n")
    _openssl(folder, f"req -newkey rsa:2048 -nodes -subj {subject} -keyout {name}.key -out {name}.csr")
    sign = f"x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 3650 -extfile {name}.ext"
    _openssl(folder, f"{sign} -out {name}.crt")


def _openssl(folder: Path, arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments.split()], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"openssl {arguments}: {done.stderr.strip()}")

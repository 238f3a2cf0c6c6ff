"""What is applied to the API server once it answers: DNS, the storage class, Argo, and argo-config as it stands."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from . import keys
from .place import CHECKOUT, OBJECTS, Place

CONFIG = CHECKOUT / "argo-config"
APPLY = ("apply", "--server-side", "--force-conflicts", "--field-manager=ffdl")
Kubectl = Callable[..., str]


def basics(place: Place, kubectl: Kubectl) -> None:
    """DNS and the storage class."""
    text = "---\n".join(path.read_text() for path in sorted(OBJECTS.glob("*.yaml")))
    kubectl("apply", "--server-side", "-f", "-", stdin=text.replace("DNS_ADDRESS", place.service(10)))


def argo(place: Place, kubectl: Kubectl, build: Path, version: str) -> None:
    """Argo's own manifests with the full CRDs, its images replaced by ours. Costs nothing if that was done before."""
    folder, done = place.run / "argo", place.run / "argo" / "applied"
    overlay = argo_overlay(os.path.relpath(build / "manifests/cluster-install", folder), version)
    digest = hashlib.sha256(json.dumps(overlay).encode()).hexdigest()[:12]
    if done.exists() and done.read_text() == digest:
        return
    rendered = place.cache / "manifests" / f"argo-{version}-{digest}.yaml"
    if not rendered.exists():  # of 11 MB
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "argo"}}
        text = kubectl("kustomize", _write_overlay(folder, overlay, namespace))
        rendered.parent.mkdir(exist_ok=True)
        rendered.with_suffix(".new").write_text(text)
        rendered.with_suffix(".new").rename(rendered)
    kubectl("apply", "--server-side", "--force-conflicts", "-f", str(rendered))
    done.parent.mkdir(exist_ok=True)
    done.write_text(digest)


def argo_overlay(manifests: str, version: str) -> dict[str, object]:
    """The kustomization of Argo's manifests that the cluster uses."""
    arguments = ["--executor-image", f"localhost/argoexec:{version}"]
    executor = [{"op": "add", "path": "/spec/template/spec/containers/0/args", "value": arguments}]
    probe = "/spec/template/spec/containers/0/readinessProbe"
    soon = [{"op": "replace", "path": f"{probe}/{key}", "value": 1} for key in ("initialDelaySeconds", "periodSeconds")]
    # A controller ignores SIGTERM, and two at once would elect a leader first.
    quick = [
        {"op": "add", "path": "/spec/strategy", "value": {"type": "Recreate"}},
        {"op": "add", "path": "/spec/template/spec/terminationGracePeriodSeconds", "value": 1},
        {"op": "add", "path": "/spec/template/spec/tolerations", "value": [{"operator": "Exists"}]},
    ]
    return {
        "namespace": "argo",
        "resources": ["namespace.json", manifests],
        "images": [
            {"name": f"quay.io/argoproj/{name}", "newName": f"localhost/{name}", "newTag": version}
            for name in ("workflow-controller", "argocli")
        ],
        "patches": [
            {"target": {"kind": "Deployment", "name": "workflow-controller"}, "patch": json.dumps(executor)},
            {"target": {"kind": "Deployment", "name": "argo-server"}, "patch": json.dumps(soon)},
            {"target": {"kind": "Deployment"}, "patch": json.dumps(quick)},
        ],
    }


def tenant(place: Place, kubectl: Kubectl, namespace: str, *options: str) -> None:
    """argo-config's tenant once more, in another namespace, with options of argo-config."""
    folder = place.run / "tenants" / namespace
    overlay: dict[str, object] = {"namespace": namespace, "resources": [os.path.relpath(CONFIG / "tenant", folder)]}
    if options:
        overlay["components"] = [os.path.relpath(CONFIG / "options" / option, folder) for option in options]
    if "closed" in options:  # this API server's address is of no private range
        server = {"op": "add", "path": "/spec/egress/1/to/-", "value": {"ipBlock": {"cidr": f"{place.address}/32"}}}
        target = {"kind": "NetworkPolicy", "name": "ffdl-cluster"}
        overlay["patches"] = [{"target": target, "patch": json.dumps([server])}]
    kubectl(*APPLY, "-k", _write_overlay(folder, overlay))


def user(place: Place, kubectl: Kubectl, name: str, namespace: str) -> Path:
    """A kubeconfig for someone who may do in a tenant's namespace what its users may."""
    person = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}
    kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(person))
    account = f"--serviceaccount={namespace}:{name}"
    binding = ["create", "rolebinding", name, "-n", namespace, "--role=ffdl-user", account]
    kubectl("apply", "--server-side", "-f", "-", stdin=kubectl(*binding, "--dry-run=client", "-o", "json"))
    token = kubectl("create", "token", name, "-n", namespace, "--duration=24h").strip()
    path = place.run / "keys" / f"{namespace}-{name}.kubeconfig"
    path.write_text(json.dumps(keys.kubeconfig(place, token, namespace), indent=1))
    return path


def configuration(kubectl: Kubectl, controller: str) -> None:
    """The controller's configuration (a folder of argo-config) and the tenant, exactly as they stand there."""
    kubectl(*APPLY, "-k", str(CONFIG / controller))
    kubectl(*APPLY, "-k", str(CONFIG / "tenant"))


def _write_overlay(folder: Path, overlay: Mapping[str, object], namespace: object = None) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    if namespace is not None:
        (folder / "namespace.json").write_text(json.dumps(namespace))
    head = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    (folder / "kustomization.yaml").write_text(json.dumps({**head, **overlay}))
    return str(folder)

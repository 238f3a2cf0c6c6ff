"""What is applied to the API server once it answers: DNS, the storage class, Argo, and argo-config as it stands."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from . import keys
from .place import CHECKOUT, OBJECTS, Place

CONFIG = CHECKOUT / "argo-config"
CONTAINER = "/spec/template/spec/containers/0"
Kubectl = Callable[..., str]


def basics(place: Place, kubectl: Kubectl) -> None:
    """DNS and the storage class."""
    text = "---\n".join(path.read_text() for path in sorted(OBJECTS.glob("*.yaml")))
    kubectl("apply", "--server-side", "-f", "-", stdin=text.replace("DNS_ADDRESS", place.service(10)))


def argo(place: Place, kubectl: Kubectl, build: Path, version: str) -> None:
    """Argo's own manifests with the full CRDs, its images replaced by ours."""
    executor = {
        "op": "add",
        "path": f"{CONTAINER}/args",
        "value": ["--executor-image", f"localhost/argoexec:{version}"],
    }
    # A controller ignores SIGTERM, and two at once would elect a leader first.
    quick = [
        {"op": "add", "path": "/spec/strategy", "value": {"type": "Recreate"}},
        {"op": "add", "path": "/spec/template/spec/terminationGracePeriodSeconds", "value": 1},
        {"op": "add", "path": "/spec/template/spec/tolerations", "value": [{"operator": "Exists"}]},
    ]
    overlay = {
        "namespace": "argo",
        "resources": ["namespace.json", os.path.relpath(build / "manifests/cluster-install", place.run / "argo")],
        "images": [
            {"name": f"quay.io/argoproj/{name}", "newName": f"localhost/{name}", "newTag": version}
            for name in ("workflow-controller", "argocli")
        ],
        "patches": [
            {"target": {"kind": "Deployment", "name": "workflow-controller"}, "patch": json.dumps([executor])},
            {"target": {"kind": "Deployment"}, "patch": json.dumps(quick)},
        ],
    }
    folder = place.run / "argo"
    done = folder / "applied"
    if not done.exists() or done.read_text() != json.dumps(overlay):  # the CRDs alone are 11 MB
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "argo"}}
        _apply_overlay(kubectl, folder, overlay, namespace)
        done.write_text(json.dumps(overlay))


def tenant(place: Place, kubectl: Kubectl, namespace: str) -> None:
    """argo-config's tenant once more, in another namespace."""
    folder = place.run / "tenants" / namespace
    _apply_overlay(kubectl, folder, {"namespace": namespace, "resources": [os.path.relpath(CONFIG / "tenant", folder)]})


def user(place: Place, kubectl: Kubectl, name: str, namespace: str) -> Path:
    """A kubeconfig for someone who may do in a tenant's namespace what its users may."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}
    kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(account))
    binding = [
        "create",
        "rolebinding",
        name,
        "-n",
        namespace,
        "--role=ffdl-user",
        f"--serviceaccount={namespace}:{name}",
    ]
    kubectl("apply", "--server-side", "-f", "-", stdin=kubectl(*binding, "--dry-run=client", "-o", "json"))
    token = kubectl("create", "token", name, "-n", namespace, "--duration=24h").strip()
    path = place.run / "keys" / f"{namespace}-{name}.kubeconfig"
    path.write_text(json.dumps(keys.kubeconfig(place, token, namespace), indent=1))
    return path


def configuration(kubectl: Kubectl, *, finalizer: bool) -> None:
    """The controller's configuration and the tenant, exactly as argo-config has them."""
    controller = CONFIG / ("controller-capturing" if finalizer else "controller")
    kubectl("apply", "--server-side", "--field-manager=ffdl", "-k", str(controller))
    kubectl("apply", "--server-side", "--field-manager=ffdl", "-k", str(CONFIG / "tenant"))


def _apply_overlay(kubectl: Kubectl, folder: Path, overlay: Mapping[str, object], namespace: object = None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if namespace is not None:
        (folder / "namespace.json").write_text(json.dumps(namespace))
    head = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    (folder / "kustomization.yaml").write_text(json.dumps({**head, **overlay}))
    kubectl("apply", "--server-side", "-k", str(folder))

"""Which cluster, as whom, in which namespace: found as kubectl finds them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..base import EngineError

IN_CLUSTER = "/var/run/secrets/kubernetes.io/serviceaccount"
DEFAULT_FILE = os.path.join("~", ".kube", "config")


@dataclass(frozen=True)
class Connection:
    """`configuration` is the Kubernetes client's; `place` says in words which cluster it is."""

    configuration: Any
    namespace: str
    place: str


def connect(namespace: str | None = None, context: str | None = None, kubeconfig: str | None = None) -> Connection:
    """From the kubeconfig file (default: those of KUBECONFIG, else ~/.kube/config), or, without one, a pod's own
    account. Speaks to no cluster yet. Raises EngineError.
    """
    if kubeconfig and not os.path.exists(os.path.expanduser(kubeconfig)):
        raise EngineError(f"there is no kubeconfig file {kubeconfig}")
    files = kubeconfig or os.environ.get("KUBECONFIG") or DEFAULT_FILE
    present = [file for file in map(os.path.expanduser, files.split(os.pathsep)) if file and os.path.exists(file)]
    if present:
        return _from_files(os.pathsep.join(present), namespace, context)
    if context:
        raise EngineError(f"no context is called {context!r}: there is no kubeconfig file (looked for {files})")
    if os.environ.get("KUBERNETES_SERVICE_HOST") and os.path.exists(f"{IN_CLUSTER}/token"):
        return _in_cluster(namespace)
    raise EngineError(
        f"no cluster is configured: there is no kubeconfig file (looked for {files}); name one with --kubeconfig"
    )


def _from_files(files: str, namespace: str | None, context: str | None) -> Connection:
    from kubernetes.client.configuration import Configuration
    from kubernetes.config.config_exception import ConfigException
    from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger

    configuration = Configuration()
    try:
        with _complaints() as said:
            merger = KubeConfigMerger(files)
            if merger.config is None:
                raise EngineError(f"{files}: no kubeconfig")
            names = [entry["name"] for entry in merger.config.value.get("contexts") or ()]
            if context and context not in names:
                raise EngineError(f"{files}: no context is called {context!r}; there are {', '.join(map(str, names))}")
            loader = KubeConfigLoader(
                merger.config, active_context=context, config_base_path=None, config_persister=merger.save_changes
            )
            loader.load_and_set(configuration)
    except (ConfigException, OSError, ValueError, AttributeError, KeyError, TypeError) as error:
        raise EngineError(f"{files}: {' '.join(str(error).split()) or type(error).__name__}") from None
    except Exception as error:
        if type(error).__module__.startswith("yaml"):
            raise EngineError(f"{files}: not YAML: {' '.join(str(error).split())}") from None
        raise
    if said and not configuration.api_key and not configuration.cert_file:
        raise EngineError(f"{files}: no credentials: {' '.join(said[-1].split())}")
    chosen = loader.current_context
    found = namespace or chosen["context"].get("namespace") or "default"
    return Connection(configuration, found, f"{configuration.host} (context {chosen['name']})")


def _in_cluster(namespace: str | None) -> Connection:
    from kubernetes.client.configuration import Configuration
    from kubernetes.config.config_exception import ConfigException
    from kubernetes.config.incluster_config import load_incluster_config

    configuration = Configuration()
    try:
        load_incluster_config(configuration)
        if not namespace:
            namespace = os.environ.get("POD_NAMESPACE")
        if not namespace:
            with open(f"{IN_CLUSTER}/namespace", encoding="utf-8") as stream:
                namespace = stream.read().strip()
    except (ConfigException, OSError) as error:
        raise EngineError(f"this pod's account can't be used: {error}") from None
    return Connection(configuration, namespace or "default", configuration.host)


@contextmanager
def _complaints() -> Iterator[list[str]]:
    """What the client only logs, such as why a credential plugin failed."""
    said: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    handler, root = Keep(), logging.getLogger()
    root.addHandler(handler)
    try:
        yield said
    finally:
        root.removeHandler(handler)

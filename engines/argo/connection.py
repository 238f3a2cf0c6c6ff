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
    import yaml
    from kubernetes.client.configuration import Configuration
    from kubernetes.config.config_exception import ConfigException

    configuration = Configuration()
    try:
        with _complaints() as said:
            chosen = _load(configuration, files, context)
    except yaml.YAMLError as error:
        raise EngineError(f"{files}: not YAML: {_one_line(error)}") from None
    except (ConfigException, OSError, ValueError, AttributeError, KeyError, TypeError) as error:
        raise EngineError(f"{files}: {_one_line(error) or type(error).__name__}") from None
    if said and not configuration.api_key and not configuration.cert_file:
        raise EngineError(f"{files}: no credentials: {_one_line(said[-1])}")
    found = namespace or chosen["context"].get("namespace") or "default"
    return Connection(configuration, found, f"{configuration.host} (context {chosen['name']})")


def _load(configuration: Any, files: str, context: str | None) -> dict[str, Any]:
    """Fills the configuration; returns the context that was chosen."""
    from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger

    merger = KubeConfigMerger(files)  # type: ignore[no-untyped-call]
    if merger.config is None:
        raise EngineError(f"{files}: no kubeconfig")
    names = [entry["name"] for entry in merger.config.value.get("contexts") or ()]
    known = f"there are {', '.join(map(str, names))}" if names else "there is none"
    if not context:  # of several files the first that names one decides, as for kubectl
        context = next(filter(None, (file.get("current-context") for file in merger.config_files.values())), None)
        if context is None:
            raise EngineError(f"{files}: no current context; choose one with --context: {known}")
    if context not in names:
        raise EngineError(f"{files}: no context is called {context!r}; {known}")
    loader = KubeConfigLoader(  # type: ignore[no-untyped-call]
        merger.config, active_context=context, config_base_path=None, config_persister=merger.save_changes
    )
    loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
    current: dict[str, Any] = loader.current_context
    return current


def _in_cluster(namespace: str | None) -> Connection:
    from kubernetes.client.configuration import Configuration
    from kubernetes.config.config_exception import ConfigException
    from kubernetes.config.incluster_config import load_incluster_config

    configuration = Configuration()
    try:
        load_incluster_config(configuration)  # type: ignore[no-untyped-call]
        if not namespace:
            namespace = os.environ.get("POD_NAMESPACE")
        if not namespace:
            with open(f"{IN_CLUSTER}/namespace", encoding="utf-8") as stream:
                namespace = stream.read().strip()
    except (ConfigException, OSError) as error:
        raise EngineError(f"this pod's account can't be used: {error}") from None
    return Connection(configuration, namespace or "default", configuration.host)


def _one_line(text: object) -> str:
    return " ".join(str(text).split())


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

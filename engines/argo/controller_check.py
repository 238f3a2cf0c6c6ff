"""Is Argo there, does its controller run, and is it set as the folder of argo-config for its version sets it?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from ..finding import NOTE, OK, PROBLEM, UNSEEN, Finding
from . import packaged
from .access import Api, Object
from .looking import Unseen, look, path_of

NEEDED = ("workflows", "workflowtaskresults", "workflowtemplates", "cronworkflows")
TRIED = "4.0"  # the version of Argo that these Workflows run on in the tests
SAID_OF_TRIED = f"ffdl is tried on {TRIED}, and on 3.7 for one job and its halt"
INSTALL = "install Argo Workflows: https://argo-workflows.readthedocs.io/en/latest/installation/"
ASSUMED = f"it is taken for Argo {TRIED}"
CAPTURE = "ARGO_POD_STATUS_CAPTURE_FINALIZER"
TOPIC = "controller"


def check(api: Api, namespace: str) -> Iterator[Finding]:
    """`namespace` is the controller's. Raises EngineError if the cluster stops to answer."""
    served = look(api, "/apis/argoproj.io/v1alpha1")
    if served is None:
        yield Finding("argo", PROBLEM, "Argo Workflows is not installed: nothing serves argoproj.io/v1alpha1", INSTALL)
        return
    names = {resource["name"] for resource in served.get("resources") or ()}
    if lacking := [name for name in NEEDED if name not in names]:
        yield Finding("argo", PROBLEM, f"Argo's custom resources lack {', '.join(lacking)}", INSTALL)
    else:
        yield Finding("argo", OK, "Argo's custom resources are there")
    folder = _fitting(api, namespace)
    config, deployment = packaged.objects(folder, namespace)
    yield from _settings(api, config, folder)
    yield from _deployment(api, deployment, folder)


def _fitting(api: Api, namespace: str) -> str:
    """The folder of argo-config for the controller that is there; where its version can't be seen, for TRIED."""
    _, wanted = packaged.objects(packaged.CONTROLLER, namespace)
    try:
        found = look(api, path_of(wanted))
    except Unseen:
        found = None
    version = _version_of(_container(found, wanted["metadata"]["name"])) if found else None
    return packaged.CONTROLLER_3_7 if version and version[1].startswith("3.") else packaged.CONTROLLER


def _settings(api: Api, wanted: Object, folder: str) -> Iterator[Finding]:
    name = f"ConfigMap {wanted['metadata']['name']} in namespace {wanted['metadata']['namespace']}"
    try:
        found = look(api, path_of(wanted))
    except Unseen:
        yield Finding(TOPIC, UNSEEN, f"you may not read the controller's settings ({name})")
        return
    if found is None:
        yield Finding(TOPIC, PROBLEM, f"there is no {name}; is the controller's namespace another one (--controller)?")
        return
    data = found.get("data") or {}
    try:
        has = settings(data)
    except yaml.YAMLError as error:
        yield Finding(TOPIC, PROBLEM, f"{name} is not YAML: {' '.join(str(error).split())}")
        return
    wants = settings(wanted["data"])
    if differing := list(packaged.differences(wants, has)):
        yield Finding(TOPIC, PROBLEM, f"{name}: {'; '.join(differing)}", remedy(data, has, wants, folder))
    else:
        yield Finding(TOPIC, OK, f"the controller's settings are as argo-config/{folder} has them")
    for key in _unknown(wants, has):
        yield Finding(TOPIC, PROBLEM, f"Argo before 4.0 does not start with {key}", f"remove {key} from {name}")
    if has.get("instanceID"):
        words = f"the controller takes only Workflows labelled with its instanceID, {has['instanceID']}; ffdl's are not"
        yield Finding(TOPIC, PROBLEM, words, f"remove instanceID from {name}")
    yield from _version(found, packaged.apply_command(folder))


def _unknown(wants: Mapping[str, Any], has: Mapping[str, Any]) -> list[str]:
    """Settings that argo-config has for other versions of Argo alone."""
    config, _ = packaged.objects(packaged.CONTROLLER)
    return [key for key in settings(config["data"]) if key in has and key not in wants]


def settings(data: Mapping[str, str]) -> dict[str, Any]:
    """The controller's settings from a ConfigMap in either of its two forms: a key each, or all in `config`."""
    if "config" in data:
        whole = yaml.safe_load(data["config"]) or {}
        return whole if isinstance(whole, dict) else {}
    return {key: yaml.safe_load(value) for key, value in data.items()}


def remedy(
    data: Mapping[str, str], has: dict[str, Any], wants: dict[str, Any], folder: str = packaged.CONTROLLER
) -> str:
    """For a ConfigMap of settings with a key each, the command; for one with a single key, what it should say."""
    if "config" not in data and not any(key in has for key in wants):
        return packaged.apply_command(folder)
    merged = merge(has, wants)
    if "config" in data:
        return "set its key `config` to:\n" + _indented(merged)
    return "set these keys of it, each as text:\n" + _indented({key: merged[key] for key in wants})


def merge(has: Any, wants: Any) -> Any:
    """`has` with what `wants` says; lists of named things by name."""
    if isinstance(has, dict) and isinstance(wants, dict):
        return {**has, **{key: merge(has.get(key), value) for key, value in wants.items()}}
    if isinstance(has, list) and isinstance(wants, list) and all(isinstance(i, dict) and "name" in i for i in wants):
        named = {item["name"]: item for item in has if isinstance(item, dict) and "name" in item}
        return list({**named, **{item["name"]: merge(named.get(item["name"]), item) for item in wants}}.values())
    return wants


def _indented(value: Any) -> str:
    text = yaml.safe_dump(value, sort_keys=False, width=100)
    return "".join(f"  {line}\n" for line in text.splitlines()).rstrip("\n")


def _deployment(api: Api, wanted: Object, folder: str) -> Iterator[Finding]:
    metadata = wanted["metadata"]
    name = f"Deployment {metadata['name']} in namespace {metadata['namespace']}"
    try:
        found = look(api, path_of(wanted))
    except Unseen:
        yield Finding(TOPIC, UNSEEN, f"you may not look at the controller itself ({name}); {ASSUMED}")
        return
    if found is None:
        words = f"there is no {name}; whether a controller runs is seen by the trial alone"
        yield Finding(TOPIC, UNSEEN, words)
        return
    container = _container(found, metadata["name"])
    yield from _alive(found, container)
    pattern = _container(wanted, metadata["name"])
    environment = [e for e in container.get("env") or () if isinstance(e, dict)]
    if differing := list(packaged.differences(pattern["env"], environment, "env")):
        yield Finding(TOPIC, PROBLEM, f"{name}: {'; '.join(differing)}", packaged.apply_command(folder))
    else:
        captures = any(e.get("name") == CAPTURE and e.get("value") == "true" for e in environment)
        more = ", and captures the status of pods that go" if captures else ""
        yield Finding(TOPIC, OK, f"the controller's environment is as argo-config/{folder} has it{more}")
    arguments = " ".join(map(str, [*(container.get("command") or ()), *(container.get("args") or ())]))
    if "--namespaced" in arguments and api.namespace not in arguments and metadata["namespace"] != api.namespace:
        words = f"the controller looks after one namespace only ({arguments}), not {api.namespace}"
        yield Finding(TOPIC, PROBLEM, words, "use Argo's cluster-wide installation")


def _container(deployment: Object, name: str) -> dict[str, Any]:
    containers = deployment["spec"]["template"]["spec"]["containers"]
    return next((c for c in containers if c["name"] == name), containers[0])


def _alive(deployment: Object, container: Mapping[str, Any]) -> Iterator[Finding]:
    image, version = container.get("image", ""), _version_of(container)
    if not (deployment.get("status") or {}).get("availableReplicas"):
        namespace = deployment["metadata"]["namespace"]
        words = "the controller does not run: its Deployment has no available pod"
        yield Finding(TOPIC, PROBLEM, words, f"kubectl -n {namespace} describe pods -l app=workflow-controller")
    elif version is None:
        yield Finding(TOPIC, NOTE, f"the controller runs ({image}), whose tag names no version; {ASSUMED}")
    elif version[1] != TRIED:
        yield Finding(TOPIC, NOTE, f"the controller is Argo {version[1]}{version[2] or ''}; {SAID_OF_TRIED}")
    else:
        yield Finding(TOPIC, OK, f"the controller runs ({image})")


def _version_of(container: Mapping[str, Any]) -> re.Match[str] | None:
    """Its image's tag: `3.7` and `.6`. None if that is no version."""
    return re.search(r":v?(\d+\.\d+)(\.[^@\s]+)?(@\S+)?$", str(container.get("image", "")))


def _version(found: Object, command: str) -> Iterator[Finding]:
    from ...workflows.site import CONFIG_VERSION

    version = (found["metadata"].get("annotations") or {}).get(packaged.VERSION_ANNOTATION)
    if version is not None and version != str(CONFIG_VERSION):
        yield Finding(TOPIC, NOTE, f"set by argo-config of version {version}, this ffdl has {CONFIG_VERSION}", command)

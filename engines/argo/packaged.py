"""The files of argo-config/ that came with this ffdl, and how objects of a cluster differ from them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

VERSION_ANNOTATION = "ffdl.org/config-version"
TENANT, CONTROLLER, CONTROLLER_3_7 = "tenant", "controller", "controller-3.7"
Object = dict[str, Any]


def folder(name: str) -> Path:
    """Where the files are."""
    return Path(str(files("ffdl.argo_config").joinpath(name)))


def objects(name: str, namespace: str | None = None) -> list[Object]:
    """The objects of a folder, as kustomize prints them for `namespace`."""
    home = folder(name)
    kustomization = yaml.safe_load((home / "kustomization.yaml").read_text(encoding="utf-8"))
    found = [value for resource in kustomization["resources"] for value in _resource(home, resource)]
    for value in found:
        metadata = value["metadata"]
        for pairs in kustomization.get("labels", ()):
            metadata["labels"] = {**metadata.get("labels", {}), **pairs["pairs"]}
        metadata["annotations"] = {**metadata.get("annotations", {}), **kustomization.get("commonAnnotations", {})}
        if namespace is not None:
            _move(value, namespace)
    for patch in kustomization.get("patches", ()):
        _remove(found, patch)
    return found


def _resource(home: Path, name: str) -> list[Object]:
    """What a line of `resources` names: the objects of a file, or of another folder of argo-config."""
    path = home / name
    if path.is_dir():
        return objects(path.resolve().name)
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def _remove(found: list[Object], patch: Object) -> None:
    """Of kustomize's patches only the kind that controller-3.7 has: fields that go."""
    kind, name = patch["target"]["kind"], patch["target"]["name"]
    target = next(value for value in found if value["kind"] == kind and value["metadata"]["name"] == name)
    for step in yaml.safe_load(patch["patch"]):
        *parents, last = step["path"].strip("/").split("/")
        holder = target
        for part in parents:
            holder = holder[part]
        del holder[last]


def _move(value: Object, namespace: str) -> None:
    if value["kind"] == "Namespace":
        value["metadata"]["name"] = namespace
        return
    value["metadata"]["namespace"] = namespace
    for subject in value.get("subjects", ()):
        subject["namespace"] = namespace


def to_yaml(name: str, namespace: str | None = None) -> str:
    return yaml.safe_dump_all(objects(name, namespace), sort_keys=False, width=120)


def apply_command(name: str, namespace: str | None = None) -> str:
    """What an administrator does to apply a folder; it leaves all other fields of what is there to whoever set them."""
    where = f" -n {namespace}" if namespace else ""
    return f"ffdl{where} doctor --print {name} | kubectl apply --server-side --field-manager=ffdl -f -"


def differences(wanted: Any, found: Any, where: str = "") -> Iterator[str]:
    """Where `found` lacks or contradicts what `wanted` says; what only `found` has is its own affair."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key, value in wanted.items():
            yield from differences(value, found.get(key), f"{where}.{key}" if where else key)
    elif isinstance(wanted, list) and isinstance(found, list):
        yield from _lists(wanted, found, where)
    elif str(wanted) != str(found):
        yield f"{where} is {_shown(found)}, wanted {_shown(wanted)}"


def _lists(wanted: list[Any], found: list[Any], where: str) -> Iterator[str]:
    """Those of objects are matched by name, where they have one, else by position; those of words are sets."""
    if all(isinstance(item, dict) and "name" in item for item in wanted):
        named = {item.get("name"): item for item in found if isinstance(item, dict)}
        for item in wanted:
            yield from differences(item, named.get(item["name"]), f"{where}[{item['name']}]")
    elif any(isinstance(item, dict) for item in wanted):
        if len(wanted) != len(found):
            yield f"{where} has {len(found)} entries, wanted {len(wanted)}"
        for number, (item, other) in enumerate(zip(wanted, found, strict=False)):
            yield from differences(item, other, f"{where}[{number}]")
    elif lacking := [str(item) for item in wanted if item not in found]:
        yield f"{where} lacks {', '.join(lacking)}"


def _shown(value: Any) -> str:
    if value is None:
        return "missing"
    text = " ".join(str(value).split())
    return text if len(text) <= 60 else text[:59] + "…"

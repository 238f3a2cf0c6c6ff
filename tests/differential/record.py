"""What a real Argo did with a Workflow: when its pods ended and how, what was done to it, and the tree it left.

Kept in `recorded/<group>.json.gz`, a JSON object a Workflow; and, whole, in the cache of the machine it was made on.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from . import trees

RECORDED = Path(__file__).parent / "recorded"
_CONTAINER = re.compile(r"[^:]+: (\w+) \(exit code (\d+)\): (.*)", re.DOTALL)
_ENDED = ("Succeeded", "Failed", "Error")
# Argo ends these nodes itself; their pods, if they had any, had no say in it.
_BY_THE_CONTROLLER = ("workflow shutdown with strategy", "Step exceeded", "retry exceeded", "template has failed")


@dataclass
class Record:
    """`workflow` is the object as the cluster had it, without its status; `status` is the last one.

    `objects` were there before it. One that the API server does not even take has only `refused`, its reason.

    `events` are in the order in which Argo's controller took note of them, `at` seconds after its start:
    `{"at": 4.2, "pods": {node id: {"phase", "code", "message", ..., "at"}}}` and `{"at": 5.0, "patch": {...}}`.
    """

    digest: str
    workflow: dict[str, Any]
    objects: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    status: dict[str, Any] = field(default_factory=dict)
    ended: bool = True
    refused: str = ""

    @property
    def name(self) -> str:
        return str(self.workflow["metadata"]["name"])

    @property
    def cut_short(self) -> bool:
        """Whether its time was up while it still had pods: what it comes to is not known. What never ends has none."""
        nodes = (self.status.get("nodes") or {}).values()
        return not self.ended and any(node["type"] == "Pod" and node["phase"] not in _ENDED for node in nodes)

    @property
    def tree(self) -> trees.Tree:
        return trees.tree({**self.workflow, "status": self.status})


def news_of_pods(before: Mapping[str, Any], after: Mapping[str, Any], start: float) -> dict[str, Any]:
    """The pods of which `after`, a status, tells something that `before` did not, by their nodes' ids.

    That is how they ended; and of daemons, that they are up.
    """
    old, nodes = before.get("nodes") or {}, after.get("nodes") or {}
    found = {}
    for key, node in nodes.items():
        known = old.get(key) or {}
        if node["type"] != "Pod" or known.get("phase") in _ENDED:
            continue
        if known.get("daemoned") and node["phase"] == "Succeeded":  # Argo ended it; its pod's own success is a failure
            continue
        if node["phase"] in _ENDED and not str(node.get("message", "")).startswith(_BY_THE_CONTROLLER):
            found[key] = ended(key, nodes, start)
        elif node.get("daemoned") and not known.get("daemoned"):
            found[key] = {"phase": node["phase"], "ip": node.get("podIP", "")}
    return found


def complete(events: list[dict[str, Any]], status: Mapping[str, Any], start: float) -> None:
    """Gives the pods in `events` what Argo learned of them only after it took note of their end."""
    nodes = status.get("nodes") or {}
    for event in events:
        for key, seen in event.get("pods", {}).items():
            if key in nodes and nodes[key]["phase"] == seen["phase"] in _ENDED:
                seen.update({"at": event["at"]} | ended(key, nodes, start))


def ended(key: str, nodes: Mapping[str, Any], start: float) -> dict[str, Any]:
    """How the pod of the node `key` ended."""
    node = nodes[key]
    outputs = node.get("outputs") or {}
    code = outputs.get("exitCode")
    seen = {
        "phase": node["phase"],
        "code": None if code is None else int(code),
        "message": node.get("message", ""),
        "outputs": {p["name"]: p["value"] for p in outputs.get("parameters") or [] if "value" in p},
        "artifacts": [artifact["name"] for artifact in outputs.get("artifacts") or []],
        "result": outputs.get("result"),
        "containers": dict(_containers(key, nodes)),
    }
    if node.get("progress") not in ("0/1", "1/1"):  # it has told of its own
        seen["progress"] = node.get("progress")
    if node.get("finishedAt"):  # not of every one that a deadline has ended
        seen["at"] = trees.seconds(node["finishedAt"]) - start
    return {name: value for name, value in seen.items() if value not in (None, [], {})}


def _containers(key: str, nodes: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The containers of a set that ended by themselves: by name, how."""
    for node in nodes.values():
        if node["type"] == "Container" and node.get("boundaryID") == key:
            name = node["name"].removeprefix(nodes[key]["name"] + ".")
            said = _CONTAINER.fullmatch(str(node.get("message", "")))
            if node["phase"] == "Succeeded":
                yield name, {"exit_code": 0, "reason": "Completed"}
            elif said is not None:
                yield name, {"exit_code": int(said[2]), "reason": said[1], "detail": said[3]}


def compact(workflow: Mapping[str, Any], status: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both without what no comparison looks at."""
    metadata = {
        key: value
        for key, value in workflow["metadata"].items()
        if key in ("name", "namespace", "uid", "creationTimestamp", "labels", "annotations")
    }
    metadata["labels"] = {
        key: value for key, value in (metadata.get("labels") or {}).items() if not key.startswith("workflows.argoproj")
    }
    nodes = {
        key: {field: value for field, value in node.items() if field not in trees.VOLATILE}
        for key, node in (status.get("nodes") or {}).items()
    }
    kept = {key: status[key] for key in (*trees.WORKFLOW_FIELDS, "startedAt") if key in status}
    return {**{k: v for k, v in workflow.items() if k != "status"}, "metadata": metadata}, {**kept, "nodes": nodes}


def read(path: Path) -> dict[str, Record]:
    """The records of one file, by name."""
    found = json.loads(gzip.decompress(path.read_bytes()))
    return {name: Record(**values) for name, values in found.items()}


def write(path: Path, records: Mapping[str, Record]) -> None:
    """The same records make the same bytes."""
    text = json.dumps({name: asdict(one) for name, one in records.items()}, sort_keys=True, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def all_recorded(folder: Path = RECORDED) -> dict[str, Record]:
    """Everything that the repository has, by name."""
    return {name: one for path in sorted(folder.glob("*.json.gz")) for name, one in read(path).items()}


def cached(digest: str) -> Record | None:
    """What an earlier run on this machine has seen to its end."""
    path = cache() / f"{digest}.json"
    one = Record(**json.loads(path.read_text())) if path.exists() else None
    return None if one is None or one.cut_short else one


def cache() -> Path:
    """Where whole runs are kept: $XDG_CACHE_HOME/ffdl-differential."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ffdl-differential"

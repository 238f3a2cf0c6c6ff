"""What happened to a job: what its nodes went through, and what the cluster says of its Workflow and pods."""

from __future__ import annotations

from typing import Any

from ..base import NORMAL, WARNING, Event
from ..nodes import raw_nodes, unix_time
from .access import EVENTS, Api, Object
from .pods import attempts

MOST_ASKED = 40  # objects whose events are asked for one by one: a namespace may have many more


def events(api: Api, workflow: Object) -> list[Event]:
    """Oldest first. Kubernetes forgets its own after an hour; the nodes' stay."""
    name = workflow["metadata"]["name"]
    sources = {attempt.pod: attempt.source for attempt in attempts(workflow)}
    found = of_nodes(workflow)
    names = [name, *sources]
    asked = [f"involvedObject.name={one}" for one in names] if len(names) <= MOST_ASKED else [""]
    for entry in (entry for fields in asked for entry in api.list(EVENTS, fields=fields)):
        about = entry.get("involvedObject") or {}
        if about.get("name") == name or about.get("name") in sources:
            found.append(_event(entry, sources.get(about.get("name", ""), about.get("kind", "").lower())))
    return sorted(found, key=lambda event: event.time)


def of_nodes(workflow: Object) -> list[Event]:
    """Read off the nodes' times and messages."""
    found = []
    for node in raw_nodes(workflow.get("status") or {}).values():
        if node.get("type") not in ("Pod", "Retry", "DAG", "Steps"):
            continue
        source = node.get("displayName") or node["name"]
        if (started := unix_time(node.get("startedAt"))) is not None:
            found.append(Event(started, source, NORMAL, f"{node['type']}Started", node.get("templateName", "")))
        if (finished := unix_time(node.get("finishedAt"))) is not None:
            kind = WARNING if node.get("phase") in ("Failed", "Error") else NORMAL
            found.append(Event(finished, source, kind, f"{node['type']}{node['phase']}", node.get("message") or ""))
    return found


def _event(entry: dict[str, Any], source: str) -> Event:
    moment = entry.get("lastTimestamp") or entry.get("eventTime") or entry["metadata"].get("creationTimestamp")
    kind = WARNING if entry.get("type") == WARNING else NORMAL
    message = " ".join(str(entry.get("message") or "").split())
    count = int(entry.get("count") or 1)
    return Event(unix_time(moment) or 0.0, source, kind, entry.get("reason") or "", message + _times(count))


def _times(count: int) -> str:
    return f" ({count} times)" if count > 1 else ""

"""Which pods a Workflow's nodes are. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from ...learner import contract
from ..nodes import ENDED, raw_nodes

CARRIER_ROLE = "carrier"
MAIN = "main"  # Argo's name for the container that runs what the template says
_ATTEMPT = re.compile(r"\((\d+)\)$")


@dataclass(frozen=True)
class Attempt:
    """One attempt of a step or learner: `source` is its display name, `number` counts from 1."""

    source: str
    number: int
    pod: str
    phase: str
    started: str = ""

    @property
    def ended(self) -> bool:
        return self.phase in ENDED

    @property
    def begun(self) -> bool:
        """Whether its pod may have run. Deleted before that in a suspended Workflow, it stays Pending."""
        return self.phase not in ("", "Pending")

    @property
    def learner(self) -> int | None:
        """The learner's LEARNER_ID (from 1); None: it is a step's, or a parameter server's."""
        return int(self.source[8:]) if self.source.startswith("learner-") else None

    @property
    def kept(self) -> bool:
        """What it writes is kept on the job's volume, too."""
        return contract.is_member_name(self.source)


def attempts(workflow: dict[str, Any]) -> list[Attempt]:
    """All that the Workflow knows of, in the order in which they were started."""
    name = workflow["metadata"]["name"]
    found = []
    for node in raw_nodes(workflow.get("status") or {}).values():
        if node.get("type") != "Pod":
            continue
        match = _ATTEMPT.search(node.get("name", ""))
        number = int(match[1]) + 1 if match else 1
        found.append(
            Attempt(
                _source(node),
                number,
                contract.pod_name(name, node),
                node.get("phase", ""),
                node.get("startedAt") or "",
            )
        )
    return sorted(found, key=lambda attempt: (attempt.started, attempt.source, attempt.number))


def wants(workflow: dict[str, Any] | None, uid: str, node: str) -> bool:
    """Whether what the node called `node` does is still wanted: its Workflow, known by `uid`, is there and goes on, and
    the node's time is not over. A node whose pod was deleted is in Error.
    """
    if workflow is None or workflow["metadata"].get("uid") != uid or workflow["spec"].get("shutdown"):
        return False
    nodes = raw_nodes(workflow.get("status") or {}).values()
    return not any(one.get("name") == node and one.get("phase") == "Failed" for one in nodes)


def live(workflow: dict[str, Any], template: str, phases: Collection[str] = ("Pending", "Running")) -> list[str]:
    """Pod names of a template's nodes that are in one of `phases`."""
    name = workflow["metadata"]["name"]
    return [
        contract.pod_name(name, node)
        for node in raw_nodes(workflow.get("status") or {}).values()
        if node.get("type") == "Pod" and node.get("templateName") == template and node.get("phase") in phases
    ]


def _source(node: dict[str, Any]) -> str:
    template = str(node.get("templateName", ""))
    if template in contract.MEMBERS:
        for parameter in (node.get("inputs") or {}).get("parameters", ()):
            if parameter.get("name") == "index":
                return contract.member_name(template, int(parameter["value"]))
    return "store-results" if template.startswith("store-") else template

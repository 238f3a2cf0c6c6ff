"""One Workflow to be run on both engines, and where the Workflows come from."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from ffdl.workflows.compile import Compiled

CORPUS = Path(__file__).parent / "corpus"
LEAVES = CORPUS / "leaves.yaml"
NAMESPACE = "differential"  # of what no cluster has given one
ARGO = "4.0.2"

Object = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """`acts` is what a person does while it runs: `{"node": NAME, "phase": PHASE, ...}`, once that is so: `patch` the
    Workflow, `delete` the pod, or `resume` the suspended node with `outputs`, `phase` and `message` (`all`: all nodes).

    After `seconds` a Workflow that has not ended counts as one that never does. `group` is the feature it is about.
    `objects` are there before it, WorkflowTemplates; `compiled` is what a training job has beside its Workflow.
    """

    group: str
    workflow: Object
    acts: list[Object] = field(default_factory=list)
    seconds: float = 240.0
    objects: list[Object] = field(default_factory=list)
    compiled: Compiled | None = None

    @property
    def name(self) -> str:
        """The Workflow's: both engines give it the same, so that ids and pod names are the same too."""
        return str(self.workflow["metadata"]["name"])

    @property
    def digest(self) -> str:
        """Of all that a run depends on."""
        known = json.dumps([ARGO, self.workflow, self.acts, self.objects], sort_keys=True)
        return hashlib.sha256(known.encode()).hexdigest()[:20]


def written(folder: Path = CORPUS) -> Iterator[Case]:
    """The Workflows written by hand, in the order of their files."""
    for path in sorted(folder.glob("*.yaml")):
        if path != LEAVES:
            for document in yaml.safe_load_all(path.read_text()):
                yield from_document(path.stem, document)


def from_document(group: str, document: Object) -> Case:
    """A Workflow of the corpus: `name`, `spec`, what is done to it (`acts`) and what is there before it (`with`).

    Leaves that it names are added.
    """
    metadata = {"name": document["name"], **document.get("metadata", {})}
    workflow = complete({"metadata": metadata, "spec": document["spec"]})
    seconds = float(document.get("seconds", Case.seconds))
    return Case(group, workflow, document.get("acts", []), seconds, document.get("with", []))


def complete(workflow: Object) -> Object:
    """A whole Workflow, with the leaves that it names: those of `corpus/leaves.yaml`."""
    workflow = copy.deepcopy({"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", **workflow})
    spec = workflow["spec"]
    own = spec.setdefault("templates", [])
    named = {template.get("name") for template in own}
    used = set(_strings(spec))
    own += [leaf for leaf in leaves() if leaf["name"] in used and leaf["name"] not in named]
    return workflow


def leaves() -> list[Object]:
    """Templates of one short command each that any Workflow may use by name."""
    found: list[Object] = yaml.safe_load(LEAVES.read_text())
    return found


def _strings(value: Any) -> Iterator[str]:
    """The values of all `template` and `onExit` keys."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("template", "onExit", "entrypoint") and isinstance(inner, str):
                yield inner
            else:
                yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)

"""The whole embedded engine: Workflows as processes of this machine, in a home of their own."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ffdl.engines.local.engine import LocalEngine, _request
from ffdl.engines.local.operator.names import pod_name
from ffdl.engines.local.state import Home
from ffdl.learner import contract

from .case import Case
from .replay import merge, resumption

_TERMINAL = ("Succeeded", "Failed", "Error")
_LOOK = 0.05  # seconds


def run(cases: Iterable[Case], home: Path, timeout: float = 60.0) -> Iterator[tuple[Case, dict[str, Any]]]:
    """Each case and the Workflow as the engine left it; one that does not end within `timeout` is stopped."""
    engine = LocalEngine(home)
    for case in cases:
        if case.compiled is None:
            engine.submit_workflow(case.workflow, templates=case.objects)
        else:
            engine.submit(case.compiled, case.name)
        workflow = _follow(engine, home, case, time.monotonic() + min(timeout, case.seconds))
        if workflow["status"].get("phase") not in _TERMINAL:
            engine.stop(case.name)
        yield case, workflow


def _follow(engine: LocalEngine, home: Path, case: Case, until: float) -> dict[str, Any]:
    acts = list(case.acts)
    while True:
        workflow = engine.workflow(case.name)
        if workflow["status"].get("phase") in _TERMINAL or time.monotonic() > until:
            return workflow
        nodes = (workflow["status"].get("nodes") or {}).values()
        if acts and any(n["displayName"] == acts[0]["node"] and n["phase"] == acts[0]["phase"] for n in nodes):
            _act(engine, home, case, acts.pop(0))
        time.sleep(_LOOK)


def _act(engine: LocalEngine, home: Path, case: Case, act: dict[str, Any]) -> None:
    job = Home(home).job(case.name)
    if "resume" in act:
        engine._let_go(job, engine.workflow(case.name), resumption(act["node"], act["resume"]))
        return
    if "delete" in act:
        (node,) = [
            n for n in engine.workflow(case.name)["status"]["nodes"].values() if n["displayName"] == act["delete"]
        ]
        name = pod_name(case.name, node)
        _request(job, {"kind": contract.REQUEST_DELETE_POD, "pod": name})
        return
    spec = act["patch"]["spec"]
    with job.edit() as workflow:
        workflow["spec"] = merge(workflow["spec"], spec)
    if "suspend" in spec and spec["suspend"] is None:
        engine.resume(case.name)

"""`kill -9` all over a Workflow of more than a hundred nodes: it ends as if nobody had touched it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.behaviours.local_user import LocalUser

KILLS = 20
AT_ONCE = 8
LOST = "pod deleted"
KILLED = 137  # exit code of a pod whose first process was
VICTIMS = ("runner", "supervisor", "init")
PLACE = "/said"
SAY = f'say() {{ echo "$ARGO_NODE_ID $*" >> {PLACE}/"$FLOW"; }}; sleep 0.05; say begin; '
LONG = "sleep 0.1; say end; "


def sh(name: str, command: str, *inputs: str, word: str = "", again: str = f"{KILLED}") -> dict[str, Any]:
    """A template that is tried again when its pod was lost, and at the exit codes `again`; `word`: its output."""
    output = {"name": "word", "valueFrom": {"path": "/tmp/word"}}
    return {
        "name": name,
        "inputs": {"parameters": [{"name": each} for each in inputs]},
        "outputs": {"parameters": [output] if word else []},
        "retryStrategy": {
            "limit": "100",
            "retryPolicy": "Always",
            "expression": f"lastRetry.status == 'Error' || asInt(lastRetry.exitCode) in [{again}]",
        },
        "container": {
            "image": "debian",
            "command": ["sh", "-c", SAY + command + (f"printf %s '{word}' > /tmp/word; " if word else "") + LONG],
            "env": [{"name": "FLOW", "value": "{{workflow.name}}"}],
            "volumeMounts": [{"name": "place", "mountPath": PLACE}],
        },
    }


def given(**values: str) -> dict[str, Any]:
    return {"parameters": [{"name": name, "value": value} for name, value in values.items()]}


def flow(place: Path) -> dict[str, Any]:
    """Retries, failures that are caught, loops over given and found items, outputs passed on, an exit handler.

    The last of all waits for the file `go-NAME` beside the one that its commands write to.
    """
    # fails twice by what was said, not by {{retries}}: an attempt that was killed has not failed
    twice = f'[ "$(grep -c "flaw {{{{inputs.parameters.item}}}}$" {PLACE}/"$FLOW")" -ge 2 ] || '
    twice += "{ say flaw {{inputs.parameters.item}}; say end; exit 75; }; "
    tasks = [
        {"name": "list", "template": "list"},
        {
            "name": "each",
            "depends": "list",
            "template": "word",
            "withParam": "{{tasks.list.outputs.parameters.word}}",
            "arguments": given(item="{{item}}"),
        },
        {
            "name": "flaky",
            "depends": "list",
            "template": "flaky",
            "withSequence": {"count": "8"},
            "arguments": given(item="{{item}}"),
        },
        {"name": "wrong", "depends": "list", "template": "wrong"},
        {"name": "caught", "depends": "wrong.Failed", "template": "rows"},
        {"name": "never", "depends": "wrong.Succeeded", "template": "rows"},
        {
            "name": "gather",
            "depends": "each && flaky && caught",
            "template": "word",
            "arguments": given(item="{{=len(fromJSON(tasks.each.outputs.parameters.word))}}"),
        },
        {
            "name": "last",
            "depends": "gather",
            "template": "rows",
            "when": "'{{tasks.gather.outputs.parameters.word}}' == 'word-24'",
        },
    ]
    rows = [
        [{"name": "row", "template": "word", "withItems": [1, 2, 3, 4], "arguments": given(item="{{item}}")}],
        [{"name": "end", "template": "word", "arguments": given(item="end")}],
    ]
    handler = [[{"name": "bye", "template": "bye", "arguments": given(item="{{workflow.status}}")}]]
    templates = [
        {"name": "main", "dag": {"failFast": False, "tasks": tasks}},
        {"name": "rows", "steps": rows},
        {"name": "handler", "steps": handler},
        sh("list", "", word=json.dumps(list(range(24)))),
        sh("word", "", "item", word="word-{{inputs.parameters.item}}"),
        sh("flaky", twice, "item", again=f"{KILLED}, 75"),
        sh("wrong", "say end; exit 3; "),
        sh("bye", f'until [ -e {PLACE}/go-"$FLOW" ]; do sleep 0.05; done; ', "item"),
    ]
    spec = {
        "entrypoint": "main",
        "onExit": "handler",
        "parallelism": AT_ONCE,
        "templates": templates,
        "volumes": [{"name": "place", "hostPath": {"path": str(place)}}],
    }
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": "flow"}, "spec": spec}


def start(user: LocalUser, name: str) -> Path:
    """Runs the Workflow as `name`. Returns the file that its commands write to."""
    place = user.folder / "place"
    place.mkdir(exist_ok=True)
    (user.folder / "flow.yaml").write_text(yaml.safe_dump(flow(place)))
    user.ffdl("run", "flow.yaml", "--name", name, "--detach")
    return place / name


def over(user: LocalUser, name: str) -> dict[str, Any]:
    """Lets it end. Its nodes, once it has and nothing of it is left."""
    (user.folder / "place" / f"go-{name}").touch()
    user.until_over(name, 400)
    user.wait_for(lambda: not user.processes(), f"the end of {user.processes()}")
    assert user.held() == []
    assert str(user.folder) not in Path("/proc/self/mounts").read_text()
    nodes: dict[str, Any] = user.engine.workflow(name)["status"]["nodes"]
    return nodes


def attempts(nodes: dict[str, Any]) -> dict[str, Any]:
    """The pods."""
    return {key: node for key, node in nodes.items() if node["type"] == "Pod"}


def tree(nodes: dict[str, Any]) -> dict[str, Any]:
    """What must be the same however often pods were lost: all but the single attempts."""
    root = min((node["name"] for node in nodes.values()), key=len)
    kept = [node for node in nodes.values() if node["type"] != "Pod"]
    return {
        node["name"].removeprefix(root): (
            node["displayName"].removeprefix(root),
            node["type"],
            node["phase"],
            node.get("outputs"),
            re.sub(r"\(\d+\)$", "(n)", nodes.get(node.get("boundaryID"), {}).get("name", root).removeprefix(root)),
        )
        for node in kept
    }


def check_attempts(nodes: dict[str, Any], said: Path) -> None:
    """Each attempt's command ran to its end, once; that of one that was killed at most so."""
    words = Counter(tuple(line.split(maxsplit=1)) for line in said.read_text().splitlines())
    pods = attempts(nodes)
    assert {key for key, _ in words} <= set(pods), "a command ran of which the tree knows nothing"
    assert max(words.values()) == 1, words.most_common(3)
    for key, node in pods.items():
        whole = {(key, "begin"), (key, "end")} <= set(words)
        lost = node.get("message") == LOST or (node.get("outputs") or {}).get("exitCode") == str(KILLED)
        assert whole or lost, node
    flaws = Counter(what for _, what in words if what.startswith("flaw"))
    assert len(flaws) == 8
    assert set(flaws.values()) == {2}


def kill_now_and_then(user: LocalUser, said: Path, name: str, whole: int, dice: random.Random) -> list[str]:
    """Kills KILLS processes of the Workflow at random moments of its life. Returns what each was."""
    killed: list[str] = []

    def lines() -> int:
        return said.read_text().count("\n") if said.exists() else 0

    while len(killed) < KILLS:
        wanted = (now := lines()) + dice.randrange(max(1, (whole - now) // (KILLS - len(killed))))
        user.wait_for(lambda: lines() >= wanted or user.engine.status(name).terminal, f"{wanted} lines")  # noqa: B023
        if user.engine.status(name).terminal:
            break
        role = dice.choice(VICTIMS)
        for pid in dice.sample(found := sorted(user.pids(role)), min(1, len(found))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed.append(role)
    return killed


@pytest.mark.timeout(900)  # hundreds of pods
def test_a_workflow_does_not_mind_kills(user: LocalUser, dice: random.Random) -> None:
    """Its runner, its pods' supervisors and their first processes die twenty times: no command runs twice for it."""
    calm, disturbed = (f"flow-{uuid.uuid4().hex}" for _ in range(2))  # processes are found by it: like no other word
    said = start(user, calm)
    reference = over(user, calm)
    assert len(reference) >= 100
    assert not [node for node in attempts(reference).values() if node["phase"] == "Error"]
    check_attempts(reference, said)
    said = start(user, disturbed)
    killed = kill_now_and_then(user, said, disturbed, 2 * len(attempts(reference)), dice)
    print("killed", killed)
    nodes = over(user, disturbed)
    assert len(killed) == KILLS
    assert tree(nodes) == tree(reference)
    check_attempts(nodes, said)

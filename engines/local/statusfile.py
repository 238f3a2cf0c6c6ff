"""Writing a Workflow's status: what of its nodes is as it was is not put into words again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...learner import contract


class StatusFile:
    """`path`, replaced with each `write`. Nodes that are the very objects of the last time cost next to nothing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._nodes: dict[str, tuple[Any, str]] = {}  # by id: the node, and its text

    def write(self, status: Mapping[str, Any]) -> None:
        rest = _text({key: value for key, value in status.items() if key != "nodes"})
        nodes = status.get("nodes")
        if nodes is None:
            whole = rest
        else:
            self._nodes = {key: self._encoded(key, node) for key, node in nodes.items()}
            within = ",".join(text for _, text in self._nodes.values())
            whole = f'{rest[:-1]}{"," if len(rest) > 2 else ""}"nodes":{{{within}}}}}'
        contract.atomic_write(str(self._path), whole.encode(), 0o600)

    def _encoded(self, key: str, node: Any) -> tuple[Any, str]:
        known = self._nodes.get(key)
        return known if known is not None and known[0] is node else (node, f"{_text(key)}:{_text(node)}")


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

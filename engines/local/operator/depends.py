"""What the tasks of a DAG wait for: `depends` and `dependencies`, read and evaluated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .expressions import Fields, evaluate_condition

RESULTS = ("Succeeded", "Failed", "Errored", "Skipped", "Omitted", "Daemoned", "AnySucceeded", "AllFailed")
OF_ITEMS = ("AnySucceeded", "AllFailed")

_TASK = re.compile(r"([a-zA-Z0-9][-a-zA-Z0-9_]*)(\.[A-Z][a-zA-Z]+)?")

Task = Mapping[str, Any]


class CycleError(ValueError):
    """Tasks that wait for each other: `cycle` has their names, each waiting for the next and the last for the first."""

    def __init__(self, cycle: list[str]) -> None:
        super().__init__(f"task '{cycle[0]}' waits for itself")
        self.cycle = cycle


class Graph:
    """The tasks of one DAG and what each waits for."""

    def __init__(self, tasks: list[Task]) -> None:
        self.tasks = {task["name"]: task for task in tasks}
        self.logic: dict[str, str] = {}
        self.waits_for: dict[str, list[str]] = {}
        for name, task in self.tasks.items():
            self.waits_for[name], self.logic[name] = self._read(task)

    def leaves(self) -> list[str]:
        """The tasks that no other waits for: the DAG's outcome is theirs."""
        inner = {name for waits_for in self.waits_for.values() for name in waits_for}
        return sorted(name for name in self.tasks if name not in inner)

    def ancestors(self, task: str) -> list[str]:
        """All that `task` waits for, directly or not, first things first. Raises CycleError."""
        return self.order([task])[:-1]

    def order(self, targets: list[str]) -> list[str]:
        """`targets` and their ancestors, each after what it waits for. Raises CycleError."""
        order: dict[str, None] = {}
        open_: dict[str, None] = {}  # the way to where the walk is
        stack = [(target, False) for target in reversed(targets)]
        while stack:
            name, walked = stack.pop()
            if walked:
                del open_[name]
                order[name] = None
            elif name not in order:
                if name in open_:
                    way = list(open_)
                    raise CycleError(way[way.index(name) :])
                open_[name] = None
                stack.append((name, True))
                stack.extend((other, False) for other in reversed(self.waits_for.get(name, [])) if other not in order)
        return list(order)

    def may_run(self, task: str, results: Mapping[str, Mapping[str, bool]]) -> bool:
        """Whether `task`, given how each of the tasks it waits for ended. Raises ExpressionError."""
        scope = {name.replace("-", "_"): Fields(result) for name, result in results.items()}
        return evaluate_condition(self.logic[task].replace("-", "_"), scope)

    def _read(self, task: Task) -> tuple[list[str], str]:
        if not task.get("depends"):
            names = list(task.get("dependencies") or [])
            return names, " && ".join(self._went_well(name) for name in names)
        names = []

        def spell_out(match: re.Match[str]) -> str:
            if match[1] not in names:
                names.append(match[1])
            return match[0] if match[2] else self._went_well(match[1])

        return names, _TASK.sub(spell_out, task["depends"])

    def _went_well(self, name: str) -> str:
        results = ["Succeeded", "Skipped", "Daemoned"]
        goes_on = self.tasks.get(name, {}).get("continueOn") or {}
        results += ["Errored"] if goes_on.get("error") else []
        results += ["Failed"] if goes_on.get("failed") else []
        return "(" + " || ".join(f"{name}.{result}" for result in results) + ")"


def items_results(depends: str) -> list[tuple[str, str]]:
    """The `task.Result` pairs of a `depends`, for checks."""
    return [(match[1], match[2][1:]) for match in _TASK.finditer(depends) if match[2]]


def task_results(node: Mapping[str, Any], runs: list[dict[str, Any]] | None) -> dict[str, bool]:
    """How a task ended, as `depends` asks for it; `runs` are those of a loop, hooks among them as in Argo."""
    phase = node["phase"]
    return {
        "Succeeded": phase == "Succeeded",
        "Failed": phase == "Failed",
        "Errored": phase == "Error",
        "Skipped": phase == "Skipped",
        "Omitted": phase == "Omitted",
        "Daemoned": bool(node.get("daemoned")) and phase != "Pending",
        "AnySucceeded": any(run["phase"] == "Succeeded" for run in runs or []),
        "AllFailed": bool(runs) and all(run["phase"] == "Failed" for run in runs or []),
    }

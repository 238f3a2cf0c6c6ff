"""Workflows at random, from a seed: DAGs and steps within each other, conditions, loops, retries, failures. Pure.

Everything it makes is valid and ends. No outcome hangs on which of two pods is quicker: nothing of a pod's timing can
be asked for, and a reference is only made to an output that is there once its reader may start.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

from .case import Case, complete

IMAGE = "localhost/debian:bookworm"
PODS = 9  # that a Workflow may have, about
DEPTH = 3
WORDS = ("red", "green", "blue", "7", "0", "a b", "x-1")
RESULTS = ("Succeeded", "Failed", "Errored", "Skipped", "Omitted")

Object = dict[str, Any]


def generate(seed: int) -> Case:
    """The Workflow `random-<seed>`."""
    return _Maker(seed).case()


@dataclass
class _Scope:
    """What a template's tasks may refer to: expressions for its inputs, and those of the Workflow."""

    values: list[str]
    depth: int
    times: int  # that the template is run, loops around it multiplied


@dataclass
class _Task:
    body: Object
    loops: bool = False
    conditional: bool = False  # it may be skipped
    outputs: list[str] = field(default_factory=list)  # below `outputs`, there once it has succeeded
    fails: bool = False
    runs: int = 1  # of a loop
    after: set[str] = field(default_factory=set)  # tasks that have surely succeeded when it starts


class _Maker:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.dice = random.Random(f"differential {seed}")
        self.left = PODS
        self.templates: list[Object] = []
        self.parameters = {f"w{i}": self.dice.choice(WORDS) for i in range(self.dice.randrange(3))}
        self.base = [f"workflow.parameters.{name}" for name in self.parameters]

    def case(self) -> Case:
        spec: Object = {"entrypoint": self.composite(_Scope(self.base, 0, 1))[0]}
        if self.parameters:
            spec["arguments"] = {"parameters": [{"name": k, "value": v} for k, v in self.parameters.items()]}
        if self.chance(0.25):
            spec["onExit"] = self.exit_handler()
        if self.chance(0.15):
            spec["parallelism"] = self.dice.randrange(1, 4)
        if self.chance(0.05):
            spec["retryStrategy"] = self.strategy()
        spec["templates"] = self.templates
        workflow = complete({"metadata": {"name": f"random-{self.seed}"}, "spec": spec})
        return Case("random", workflow)

    # Chances

    def chance(self, probability: float) -> bool:
        return self.dice.random() < probability

    def name(self, prefix: str) -> str:
        return f"{prefix}{len(self.templates)}"

    # Templates

    def composite(self, scope: _Scope) -> tuple[str, list[str], list[str], bool]:
        """A new DAG or steps template: its name, its inputs, its outputs, and whether it may fail."""
        name = self.name("t")
        template: Object = {"name": name}
        self.templates.append(template)
        inputs = [f"p{i}" for i in range(self.dice.randrange(3))]
        if inputs:
            template["inputs"] = {"parameters": [self.input(i, scope.depth == 0) for i in inputs]}
        inside = _Scope([*self.base, *(f"inputs.parameters.{i}" for i in inputs)], scope.depth, scope.times)
        tasks = self.dag(template, inside) if self.chance(0.6) else self.steps(template, inside)
        outputs = self.outputs(template, tasks)
        if scope.depth and self.chance(0.1):
            template["retryStrategy"] = {"limit": "1"}
        if self.chance(0.06):
            template["parallelism"] = self.dice.randrange(1, 3)
        return name, inputs, outputs, any(task.fails for task in tasks)

    def input(self, name: str, needs_value: bool) -> Object:
        if needs_value or self.chance(0.3):
            return {"name": name, self.dice.choice(("value", "default")): self.dice.choice(WORDS)}
        return {"name": name}

    def outputs(self, template: Object, tasks: list[_Task]) -> list[str]:
        """Hands up the output of one task that has surely run if the template has succeeded, now and then."""
        kind = "tasks" if "dag" in template else "steps"
        sure = [t for t in tasks if t.outputs and not (t.loops or t.conditional or t.fails or "depends" in t.body)]
        if not sure or "target" in template.get("dag", {}) or not self.chance(0.6):
            return []
        source = self.dice.choice(sure)
        reference = f"{kind}.{source.body['name']}.outputs.{source.outputs[0]}"
        value = {"parameter": "{{" + reference + "}}"}
        if self.chance(0.3):
            value = {"expression": f"{reference} + '!'"}
        template["outputs"] = {"parameters": [{"name": "out", "valueFrom": value}]}
        return ["parameters.out"]

    def dag(self, template: Object, scope: _Scope) -> list[_Task]:
        old_style = self.chance(0.3)  # `dependencies` and `continueOn` instead of `depends`
        tasks: list[_Task] = []
        for index in range(self.dice.randrange(1, 6)):
            task = _Task({"name": f"{'abcdef'[index]}{'-x' if self.chance(0.1) else ''}"})
            before = self.dice.sample(tasks, min(len(tasks), self.dice.choice((0, 1, 1, 2, 3))))
            if before and old_style:
                task.body["dependencies"] = [other.body["name"] for other in before]
                task.after = {other.body["name"] for other in before if self.needed(other)}
            elif before:
                self.depend(task, before)
            self.call(task, "tasks", before, scope)
            if old_style and self.chance(0.25):
                task.body["continueOn"] = {self.dice.choice(("failed", "failed", "error")): True}
            tasks.append(task)
        template["dag"] = {"tasks": [task.body for task in tasks]}
        if self.chance(0.3):
            template["dag"]["failFast"] = False
        if self.chance(0.1):
            chosen = self.dice.sample(tasks, self.dice.randrange(1, len(tasks) + 1))
            template["dag"]["target"] = " ".join(task.body["name"] for task in chosen)
        return tasks

    def steps(self, template: Object, scope: _Scope) -> list[_Task]:
        groups: list[list[_Task]] = []
        for index in range(self.dice.randrange(1, 4)):
            before = [task for group in groups for task in group]
            group = []
            for position in range(self.dice.choice((1, 1, 2, 3))):
                task = _Task({"name": f"s{index}{'abc'[position]}"})
                task.after = {other.body["name"] for other in before if self.needed(other)}
                self.call(task, "steps", before, scope)
                if self.chance(0.2):
                    task.body["continueOn"] = {self.dice.choice(("failed", "failed", "error")): True}
                group.append(task)
            groups.append(group)
        template["steps"] = [[task.body for task in group] for group in groups]
        return [task for group in groups for task in group]

    # Tasks and steps

    @staticmethod
    def needed(other: _Task) -> bool:
        """Whether what comes after `other` in good order knows that it has succeeded."""
        return not (other.conditional or "continueOn" in other.body)

    def call(self, task: _Task, kind: str, before: list[_Task], scope: _Scope) -> None:
        """Gives `task` what it runs. `before` has ended by then."""
        values = [*scope.values]
        for other in before:
            name = other.body["name"]
            if not other.loops:
                values.append(f"{kind}.{name}.status")
            if name in task.after and other.runs:
                values += [f"{kind}.{name}.outputs.{output}" for output in other.outputs]
        times = scope.times
        if self.chance(0.2):
            times *= self.loop(task, scope)
            maps = any(isinstance(item, dict) for item in task.body.get("withItems", []))
            values += ["item.k" if maps else "item"] * 2
        if self.chance(0.25):
            task.body["when"] = self.when(values)
            task.conditional = True
        if self.left < times:
            self.idle(task)
        elif scope.depth + 1 < DEPTH and self.left > 2 * times and self.chance(0.3):
            name, inputs, task.outputs, task.fails = self.composite(_Scope([], scope.depth + 1, times))
            self.run(task, name, {i: self.value(values) for i in inputs})
        else:
            self.leaf(task, kind, values, times)

    def run(self, task: _Task, template: str, arguments: Object | None = None) -> None:
        task.body["template"] = template
        if arguments:
            task.body["arguments"] = {"parameters": [{"name": k, "value": v} for k, v in arguments.items()]}

    def idle(self, task: _Task) -> None:
        """No pod is left: one that is skipped."""
        task.body["when"] = self.dice.choice(("false", "1 == 2", "'a' == 'b'"))
        task.conditional = True
        self.run(task, "ok")

    def hook(self, task: _Task, kind: str) -> None:
        """A template to be run when the task has ended."""
        told = _Task({})
        if self.chance(0.6):
            status = f"{kind}.{task.body['name']}.status"
            self.run(told, "show", {"text": "{{" + status + "}}"})
        else:
            self.run(told, self.dice.choice(("ok", "ok", "fail")))
            task.fails = task.fails or told.body["template"] == "fail"
        task.body["hooks"] = {"exit": told.body}

    def leaf(self, task: _Task, kind: str, values: list[str], times: int) -> None:
        self.left -= times
        if self.left >= times and self.chance(0.07):
            self.left -= times
            self.hook(task, kind)
        match self.dice.choices(
            ("ok", "fail", "exit", "emit", "both", "show", "pause", "say", "try"),
            (18, 8, 14, 20, 8, 10, 6, 8, 16 if self.left > times else 0),
        )[0]:
            case "exit":
                code = self.dice.choice((0, 0, 1, 3))
                task.fails = bool(code)
                self.run(task, "exit", {"code": str(code)})
            case "emit":
                task.outputs = ["parameters.value"]
                self.run(task, "emit", {"value": self.value(values)})
            case "both":
                code = self.dice.choice((0, 2))
                task.outputs, task.fails = ["parameters.value"], bool(code)
                self.run(task, "emit-and-exit", {"value": self.value(values), "code": str(code)})
            case "show":
                self.run(task, "show", {"text": self.value(values)})
            case "say":
                task.outputs = [] if task.loops else ["result"]  # a loop's results are taken for JSON
                self.run(task, "say", {"text": self.value(values)})
            case "try":
                self.left -= times
                self.retried(task)
            case name:
                task.fails = name == "fail"
                self.run(task, name)

    def retried(self, task: _Task) -> None:
        name = self.name("r")
        until = self.dice.choice((0, 1, 1, 2))
        command = f"test {{{{retries}}}} -ge {until} || exit {self.dice.choice((1, 3))}"
        template = {"name": name, "container": {"image": IMAGE, "command": ["sh", "-c", command]}}
        template["retryStrategy"] = self.strategy()
        self.templates.append(template)
        task.fails = True
        self.run(task, name)

    def strategy(self) -> Object:
        strategy: Object = {"limit": self.dice.choice(("0", "1", "1", "2", 1))}
        if self.chance(0.4):
            strategy["retryPolicy"] = self.dice.choice(("Always", "OnFailure", "OnError"))
        if self.chance(0.3):
            strategy["expression"] = self.dice.choice(
                (
                    "asInt(lastRetry.exitCode) == 3",
                    "lastRetry.status == 'Failed'",
                    "asInt(retries) < 1",
                    "lastRetry.message contains 'exit code 1'",
                )
            )
        if self.chance(0.2):
            strategy["backoff"] = {
                "duration": self.dice.choice(("1", "1s", "2s")),
                "factor": self.dice.choice((1, "2")),
            }
        return strategy

    def loop(self, task: _Task, scope: _Scope) -> int:
        """Makes `task` a loop; returns how often it runs."""
        task.loops = True
        most = 3 if self.left >= 3 * scope.times else 1
        number = self.dice.choice((0, 1, 2, 2, 3))
        task.runs = number = min(number, most)
        kind = self.dice.choice(("items", "items", "maps", "param", "sequence"))
        if number == 0 and kind in ("items", "maps"):
            kind = "param"
        if kind == "items":
            task.body["withItems"] = [self.dice.choice((1, 2, "x", "y z", True)) for _ in range(number)]
        elif kind == "maps":
            task.body["withItems"] = [{"k": self.dice.choice(WORDS), "n": i} for i in range(number)]
        elif kind == "param":
            items = [self.dice.choice(("p", "q", 5)) for _ in range(number)]
            task.body["withParam"] = json.dumps(items)
        else:
            start = self.dice.randrange(3)
            task.body["withSequence"] = self.dice.choice(
                ({"count": str(number)}, {"start": str(start), "count": str(number), "format": "n%02d"})
            )
        return max(number, 1)

    # Values and conditions

    def value(self, values: list[str]) -> str:
        pick = self.dice.random()
        if not values or pick < 0.25:
            return self.dice.choice(WORDS)
        first = self.dice.choice(values)
        if pick < 0.7:
            return "{{" + first + "}}"
        if pick < 0.85:
            return "{{" + first + "}}/{{" + self.dice.choice(values) + "}}"
        return "{{=" + self.indexed(first) + " + '" + self.dice.choice(("!", "?")) + "'}}"

    def when(self, values: list[str]) -> str:
        pick = self.dice.random()
        if not values or pick < 0.2:
            return self.dice.choice(("true", "1 == 1", "2 > 3", "'x' == 'x'", "a != b", "false"))
        name = self.dice.choice(values)
        good = ["Succeeded"] if name.endswith(".status") else list(WORDS)
        word = self.dice.choice(good)
        if pick < 0.7:
            return f"'{{{{{name}}}}}' {self.dice.choice(('==', '!='))} '{word}'"
        if pick < 0.8:
            return f"'{{{{{name}}}}}' == '{word}' || {self.dice.choice(('true', 'false'))}"
        return f"{{{{={self.indexed(name)} {self.dice.choice(('==', '!='))} '{word}'}}}}"

    def indexed(self, name: str) -> str:
        """`name` as an expression says it: as text, in brackets where it is no word."""
        head, *rest = name.split(".")
        path = head + "".join(f"['{part}']" if "-" in part else f".{part}" for part in rest)
        return f"string({path})"

    def depend(self, task: _Task, before: list[_Task]) -> None:
        """Gives `task` a `depends` on all of `before`."""
        terms = [self.term(other) for other in before]
        if len(terms) == 1 or self.chance(0.6):
            task.body["depends"] = " && ".join(terms)
            for other, term in zip(before, terms, strict=True):
                name = other.body["name"]
                if term == f"{name}.Succeeded" or (term == name and not other.conditional):
                    task.after.add(name)
        elif len(terms) == 2 or self.chance(0.5):
            task.body["depends"] = " || ".join(terms)
        else:
            task.body["depends"] = f"({terms[0]} || {terms[1]}) && {terms[2]}"

    def term(self, task: _Task) -> str:
        name = task.body["name"]
        pick = self.dice.random()
        if pick < 0.35:
            return str(name)
        if pick < 0.55:
            return f"{name}.Succeeded"
        if task.loops and pick < 0.75:
            return f"{name}.{self.dice.choice(('AnySucceeded', 'AllFailed'))}"
        if pick < 0.85:
            wanted = "Failed" if task.fails else "Skipped" if task.conditional else self.dice.choice(RESULTS)
            return f"{name}.{wanted}"
        if pick < 0.95:
            return f"({name}.Succeeded || {name}.{self.dice.choice(RESULTS[1:])})"
        return f"!{name}.{self.dice.choice(RESULTS)}"

    def exit_handler(self) -> str:
        self.left = max(self.left, 2)
        status = "{{workflow.status}}"
        match self.dice.randrange(4):
            case 0:
                return self.dice.choice(("ok", "ok", "fail"))
            case 1:
                name = self.name("e")
                conditions = [f"{status} == Succeeded", f"{status} != Succeeded"]
                steps = [{"name": f"s{i}", "template": "ok", "when": when} for i, when in enumerate(conditions)]
                self.templates.append({"name": name, "steps": [steps]})
                return name
            case 2:
                name = self.name("e")
                first = {"name": "a", "template": self.dice.choice(("ok", "fail"))}
                last = {"name": "b", "template": "ok", "depends": "a", "when": f"{status} == Failed"}
                self.templates.append({"name": name, "dag": {"tasks": [first, last]}})
                return name
            case _:
                name = self.name("e")
                told = {
                    "name": "told",
                    "template": "show",
                    "arguments": {"parameters": [{"name": "text", "value": status}]},
                }
                self.templates.append({"name": name, "steps": [[told]]})
                return name

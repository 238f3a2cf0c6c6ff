"""A template to be run, and the ways in which that comes to nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


class TemplateError(ValueError):
    """A template that can't be run with what it is given. Its node is an Error by then."""


class TooDeepError(Exception):
    """A template that calls itself without end. Its node is an Error by then."""


class TimedOutError(Exception):
    """A node was Pending for longer than its template's `timeout`. It is Failed by then."""


class NoRoomError(Exception):
    """`parallelism` or `failFast` keeps the node from being made or going on in this pass."""


@dataclass(frozen=True)
class Call:
    """The run of a template as the node `name`, for the DAG or steps node with the id `boundary`.

    `origin` says which template: a task, step or hook with its `template`, `templateRef` or `inline`; `scope` is where
    its names are looked up. `arguments` has `parameters`. `on_exit`: it belongs to an exit handler.
    """

    name: str
    origin: Mapping[str, Any]
    scope: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    boundary: str = ""
    on_exit: bool = False
    flag: Mapping[str, bool] | None = None

    def hook(self, name: str, origin: Mapping[str, Any], arguments: Mapping[str, Any], *, on_exit: bool) -> Call:
        """The run of a hook beside this call's own run."""
        return replace(self, name=name, origin=origin, arguments=arguments, on_exit=on_exit, flag={"hooked": True})

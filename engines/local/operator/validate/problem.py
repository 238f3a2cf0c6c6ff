"""What a check finds, and the checks of names that all of them share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ..paths import Path

Template = Mapping[str, Any]

FIELD, PARAMETER = "field", "parameter"  # what may be in a name: that of a template, step or task; of a parameter

_MOST_OF_A_NAME = 128
_REFERENCE = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_ALLOWED = {FIELD: re.compile(r"[a-zA-Z0-9][-a-zA-Z0-9]*"), PARAMETER: re.compile(r"[-a-zA-Z0-9_]+")}
_SAYS = {
    FIELD: "name must consist of alpha-numeric characters or '-', and must start with an alpha-numeric character "
    "(e.g. My-name1-2, 123-NAME)",
    PARAMETER: "Parameter/Artifact name must consist of alpha-numeric characters, '_' or '-' "
    "e.g. my_param_1, MY-PARAM-1",
}


class Problem(NamedTuple):
    """`message` is in Argo's words where it has any; `path` leads to what is wrong, or to where something is missing.

    `route` is what Argo writes before the message: the tasks and steps by which it came to the template. `ours`: Argo
    would find it only when it runs, or accept it.
    """

    path: Path
    message: str
    route: str = ""
    ours: bool = False
    only_here: bool = False  # Argo runs it, and well

    def through(self, route: str) -> Problem:
        return self._replace(route=f"{route} {self.route}")


def named(items: Any, where: str, path: Path, kind: str = FIELD, *, unique: bool = True) -> Iterator[Problem]:
    """Every item of a list needs a name, of allowed characters and its own; `where` is the list in messages."""
    seen: set[str] = set()
    for index, item in enumerate(items or []):
        name, at = item.get("name") or "", (*path, index)
        if not name:
            yield Problem(at, f"{where}[{index}].name is required")
        elif found := wrong_name(name, kind):
            yield Problem((*at, "name"), f"{where}[{index}].name: '{name}' is invalid: {found}")
        elif unique and name in seen:
            yield Problem((*at, "name"), f"{where}[{index}].name '{name}' is not unique")
        seen.add(name)


def wrong_name(name: str, kind: str) -> str:
    """What is wrong with a name, once the references in it are resolved; empty: nothing."""
    name = _REFERENCE.sub("x", name)
    found = []
    if kind == FIELD and len(name) > _MOST_OF_A_NAME:
        found.append(f"must be no more than {_MOST_OF_A_NAME} characters")
    if not _ALLOWED[kind].fullmatch(name):
        found.append(_SAYS[kind])
    return ";".join(found)


def parameters(holder: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The parameters of a holder's `inputs`, `outputs` or `arguments`."""
    return (holder.get(key) or {}).get("parameters") or []


def artifacts(holder: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    return (holder.get(key) or {}).get("artifacts") or []

"""What is known of a value before it is there: its type, as far as the text of an expression and its names tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .values import INTERFACE, LIST, MAP, type_name


class Nature(NamedTuple):
    """`go`: the Go type, "" where it isn't known; `item`: what a list holds; `fields`: all that an object has."""

    go: str = ""
    item: Nature | None = None
    fields: Mapping[str, Nature] | None = None

    @property
    def known(self) -> bool:
        return self.go not in ("", INTERFACE)

    @property
    def nil(self) -> bool:
        return self.go == "nil"

    @property
    def number(self) -> bool:
        return self.go in ("int", "float64")

    @property
    def held(self) -> Nature:
        """What is in a list or a map."""
        return self.item or ANYTHING

    @property
    def list(self) -> bool:
        return self.go.startswith("[]")

    @property
    def map(self) -> bool:
        return self.go.startswith("map[")

    @property
    def says(self) -> str:
        return "unknown" if self.go in ("", "nil") else self.go

    @property
    def printed(self) -> str:
        """As `%s` prints a type that may be missing."""
        return "%!s(<nil>)" if self.nil else self.go or INTERFACE


UNKNOWN = Nature()
ANYTHING = Nature(INTERFACE)  # as little known, but printed otherwise
NIL, BOOL, INT, FLOAT, TEXT = (Nature(go) for go in ("nil", "bool", "int", "float64", "string"))
ANY_MAP, ANY_LIST = Nature(MAP), Nature(LIST)


def list_of(item: Nature) -> Nature:
    return Nature(LIST, item)


def of_type(go: str) -> Nature:
    """The nature of a declared Go type."""
    items = {"[]string": TEXT, "[]int": INT, "[]float64": FLOAT}
    return Nature(go, items.get(go))


def of_value(value: Any) -> Nature:
    """The nature of a value that a name of the scope stands for; what is in lists and maps may be anything."""
    if value is None:
        return NIL
    if isinstance(value, Fields):
        return Nature("struct", None, {name: of_value(inner) for name, inner in value.items()})
    return of_type(type_name(value))


class Fields(dict[str, Any]):
    """An object with just these fields: to name another is a mistake, not nil."""


def assignable(value: Nature, wanted: Nature) -> bool:
    if value.nil:
        return wanted.list or wanted.map or wanted.go == INTERFACE
    return value.go != "" and value.go == wanted.go


def comparable(left: Nature, right: Nature) -> bool:
    return (
        not left.known or not right.known or left.nil or right.nil
        or (left.number and right.number) or (left.list and right.list) or assignable(left, right)
    )  # fmt: skip


def maybe(left: Nature, right: Nature, *fits: str) -> bool:
    """Whether one of the two isn't known, and the other is nothing else than one of `fits`."""
    if left.known and right.known:
        return False
    return left.known == right.known or left.go in fits or right.go in fits

"""What Argo adds to the language: `asInt`, `asFloat`, `toJson`, `jsonpath` and `sprig`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .builtins import floating, integer
from .errors import FaultError
from .values import INTERFACE, to_json, type_name


class Added:
    """A function of the scope: `signature` is what it takes and gives, in Go's types."""

    def __init__(self, call: Callable[..., Any], takes: tuple[str, ...], gives: str) -> None:
        self.call, self.signature = call, (takes, gives)

    def __call__(self, *arguments: Any) -> Any:
        for value, wanted in zip(arguments, self.signature[0], strict=True):
            if wanted == "string" and not isinstance(value, str):
                shown = "nil" if value is None else type_name(value)
                raise FaultError(f"interface conversion: interface {{}} is {shown}, not string")
        return self.call(*arguments)


def _jsonpath(document: str, path: str) -> Any:
    from .jsonpath import jsonpath  # seldom used, and a start-up cost

    return jsonpath(document, path)


class _Sprig(Mapping[str, Any]):
    """`sprig`, whose functions are loaded when first asked for."""

    def __getitem__(self, name: str) -> Any:
        from .sprig import FUNCTIONS

        return FUNCTIONS[name]

    def __iter__(self) -> Iterator[str]:
        from .sprig import FUNCTIONS

        return iter(FUNCTIONS)

    def __len__(self) -> int:
        from .sprig import FUNCTIONS

        return len(FUNCTIONS)


ADDED: dict[str, Any] = {
    "asInt": Added(integer, (INTERFACE,), INTERFACE),
    "asFloat": Added(floating, (INTERFACE,), INTERFACE),
    "toJson": Added(to_json, (INTERFACE,), "string"),
    "jsonpath": Added(_jsonpath, ("string", "string"), INTERFACE),
    "sprig": _Sprig(),
}

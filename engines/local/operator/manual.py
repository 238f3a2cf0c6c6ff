"""The lists of docs/argo-subset.md, made from the tables that the engine acts on. What else the page says stays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from .expressions import supported
from .fields import WORKFLOW
from .fields.table import Each, Kind, Named, OneOf, Patch, Table

_END = "<!-- end -->"


def render(page: str) -> str:
    """`page` with what stands between `<!-- NAME -->` and `<!-- end -->` made anew, for each list."""
    tables = list(_tables(WORKFLOW, set()))
    lists = {
        "executed": _rows(("object", "fields"), _executed(tables)),
        "without effect": _rows(("object", "fields", "why"), _grouped((t.title, t.without_effect) for t in tables)),
        "refused": _rows(("object", "fields", "instead"), _grouped((t.title, t.refused) for t in tables)),
        "functions": _rows(("where", "names"), _functions()),
    }
    for name, made in lists.items():
        before, begin, rest = page.partition(f"<!-- {name} -->\n")
        _, _, after = rest.partition(_END)
        page = f"{before}{begin}{made}{_END}{after}"
    return page


def _tables(table: Table, seen: set[int]) -> Iterator[Table]:
    """`table` and those within it, each once."""
    if id(table) in seen:
        return
    seen.add(id(table))
    yield table
    for kind in table.executed.values():
        inner: Kind = kind
        while isinstance(inner, (Each, Named, Patch)):
            inner = inner.inner
        if isinstance(inner, Table):
            yield from _tables(inner, seen)


def _executed(tables: Iterable[Table]) -> Iterator[tuple[str, ...]]:
    for table in tables:
        fields = [f"`{name}`{_values(kind)}" for name, kind in table.executed.items()]
        if fields:
            yield table.title, ", ".join(fields)


def _values(kind: Kind) -> str:
    if not isinstance(kind, OneOf):
        return ""
    return f" ({', '.join(f'`{value}`' for value in kind.known if value)})"


def _grouped(lists: Iterable[tuple[str, Mapping[str, str]]]) -> Iterator[tuple[str, ...]]:
    """Fields of one object that share a reason share a row."""
    for title, fields in lists:
        for said in dict.fromkeys(fields.values()):
            yield title, ", ".join(f"`{name}`" for name, why in fields.items() if why == said), said


def _functions() -> Iterator[tuple[str, ...]]:
    for where, names in (
        ("operators", supported.OPERATORS),
        ("functions of the language", supported.BUILTINS),
        ("functions of Argo's", supported.OF_ARGO),
        ("`sprig.`", supported.of_sprig()),
        ("operators of `when`", supported.WHEN_OPERATORS),
    ):
        shown = (name.replace("|", "\\|") for name in dict.fromkeys(names))
        yield where, " ".join(f"`{name}`" for name in shown)


def _rows(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)

"""The three lists of fields, held to Argo's own schema: a field that nobody decided about is a promise nobody made."""

from __future__ import annotations

import copy
import os
import typing
from collections.abc import Iterator
from pathlib import Path as File
from typing import Any

import hera.workflows.models as argo
import pytest
from pydantic import BaseModel, RootModel

from ffdl.engines.local.operator import manual, unsupported, without_effect
from ffdl.engines.local.operator.fields import WORKFLOW
from ffdl.engines.local.operator.fields.table import Each, Kind, Named, Table
from ffdl.engines.local.operator.paths import Path, dotted

MANUAL = File(__file__).parents[3] / "docs" / "argo-subset.md"

Place = tuple[Path, type[BaseModel], Table]  # an object of the schema, where a Workflow has it, and its table


def objects(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models in a field's type: `list[X] | None` -> X."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if issubclass(annotation, RootModel):
            yield from objects(annotation.model_fields["root"].annotation)
        else:
            yield annotation
    for part in typing.get_args(annotation):
        yield from objects(part)


def places(path: Path, model: type[BaseModel], table: Table, seen: set[tuple[type, int]]) -> Iterator[Place]:
    """Every object that is executed, once: its fields are looked at one by one."""
    if (model, id(table)) in seen:
        return
    seen.add((model, id(table)))
    yield path, model, table
    for key, field in model.model_fields.items():
        name = field.alias or key
        kind, below = table.executed.get(name), (*path, name)
        while isinstance(kind, (Each, Named)):
            kind, below = kind.inner, (*below, 0 if isinstance(kind, Each) else "name")
        models = list(objects(field.annotation))
        if isinstance(kind, Table) and models:
            yield from places(below, models[0], kind, seen)


PLACES = list(places((), argo.Workflow, WORKFLOW, set()))
IDS = [dotted(path) or "Workflow" for path, _, _ in PLACES]


@pytest.mark.parametrize(("path", "model", "table"), PLACES, ids=IDS)
def test_every_field_is_in_exactly_one_list(path: Path, model: type[BaseModel], table: Table) -> None:
    """What Argo has and no list names, or a list names and Argo doesn't have, is a mistake of ours."""
    schema = sorted(field.alias or key for key, field in model.model_fields.items())
    assert sorted([*table.executed, *table.without_effect, *table.refused]) == schema


def setting(path: Path, value: Any) -> dict[str, Any]:
    """The smallest Workflow that says `value` at `path`."""
    inner = value
    for part in reversed(path):
        inner = [inner] if isinstance(part, int) else {part: inner}
    assert isinstance(inner, dict)
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", **copy.deepcopy(inner)}


@pytest.mark.parametrize(("path", "model", "table"), PLACES, ids=IDS)
def test_a_field_is_treated_as_its_list_says(path: Path, model: type[BaseModel], table: Table) -> None:
    """The lists are what `ffdl` acts on: refused by its path, said to be without effect, or taken without a word."""
    for name in table.refused:
        said = unsupported(setting((*path, name), {"x": "y"}))
        assert [line.partition(":")[0] for line in said] == [dotted((*path, name))]
        assert table.refused[name] in said[0]
    for name in table.without_effect:
        workflow = setting((*path, name), {"x": "y"})
        assert unsupported(workflow) == []
        assert without_effect(workflow) == [f"{dotted((*path, name))}: {table.without_effect[name]}"]


def test_the_walk_reaches_the_whole_schema() -> None:
    """A field whose object has no table would be executed unseen: only these are taken as they come."""
    unseen = set()
    for path, model, table in PLACES:
        for key, field in model.model_fields.items():
            kind: Kind | None = table.executed.get(field.alias or key)
            while isinstance(kind, (Each, Named)):
                kind = kind.inner
            if any(objects(field.annotation)) and kind is not None and not isinstance(kind, Table):
                unseen.add(dotted((*path, field.alias or key)))
    assert unseen == {"status"}


def test_a_typo_is_told_from_a_field_that_is_not_executed() -> None:
    """`retryStratgy` must not be dropped in silence, as a cluster may."""
    said = unsupported(setting(("spec", "templates", 0, "retryStratgy"), {"limit": 1}))
    assert said == ["spec.templates[0].retryStratgy: unknown field; did you mean retryStrategy?"]


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("spec", "entrypoint"), ["a"], "spec.entrypoint: should be text"),
        (("spec", "parallelism"), "2", "spec.parallelism: should be a whole number"),
        (("spec", "parallelism"), 0, "spec.parallelism: should be a whole number, 1 or more"),
        (("spec", "templates", 0), {"name": "a", "steps": []}, "templates[0].steps: should be a list of 1 or more"),
        (("spec", "suspend"), "yes", "spec.suspend: should be true or false"),
        (("spec", "templates", 0, "container", "env", 0), "A=1", "container.env[0]: should be a mapping"),
        (("spec", "templates", 0, "container", "env", 0), {"name": "A", "value": 1}, "env[0].value: should be text"),
        (("spec", "templates", 0, "container", "args"), "x", "container.args: should be a list"),
        (("metadata", "labels"), {"a": True}, "metadata.labels.a: should be text"),
    ],
)
def test_a_value_of_the_wrong_kind(path: Path, value: Any, says: str) -> None:
    """Argo's API refuses these; here they must not end in a traceback."""
    said = unsupported(setting(path, value))
    assert len(said) == 1
    assert says in said[0]


def test_the_manual_has_the_lists() -> None:
    """A reader of docs/argo-subset.md gets what the engine does. FFDL_REGENERATE=1 writes the lists anew."""
    page = MANUAL.read_text(encoding="utf-8")
    if os.environ.get("FFDL_REGENERATE"):
        MANUAL.write_text(manual.render(page), encoding="utf-8")
    assert MANUAL.read_text(encoding="utf-8") == manual.render(page)

"""Kubernetes objects in YAML: read as a cluster reads them, every value with its line."""

import pytest

from ffdl.workflows.errors import ManifestError
from ffdl.workflows.objects import holds_objects, read, read_map


def values(text):
    (only,) = read(f"kind: X\nspec: {text}\n".encode(), "x.yaml")
    return only.value["spec"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[yes, No, on, y, n, true]", [True, False, True, True, False, True]),
        ("['yes', \"1\", !!str 2]", ["yes", "1", "2"]),
        ("[1, -1, +1, 010, 0o10, 0x1F, 0b11, 1_000]", [1, -1, 1, 8, 8, 31, 3, 1000]),
        ("[1.5, 1.0, 1e3, .5, 08, -1.25]", [1.5, 1, 1000, 0.5, 8, -1.25]),
        ("[2026-11-21, 12:30:00, 1.2.3, 10m, -, 0x]", ["2026-11-21", "12:30:00", "1.2.3", "10m", "-", "0x"]),
        ("[~, null, '']", [None, None, ""]),
    ],
)
def test_values_have_the_types_that_a_cluster_gives_them(text, value):
    """A parameter `yes` that is true on the cluster must not be text here; nor 1.0 another number."""
    found = values(text)
    assert found == value
    assert [type(each) for each in found] == [type(each) for each in value]


WORKFLOW = b"""\
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: a}
spec:
  templates:
  - &shared
    name: main
    container:
      image: debian
  - <<: *shared
    name: other
---
---
kind: List
items:
- kind: ConfigMap
  metadata:
    name: words
- {kind: Secret, metadata: {name: keys}}
"""


def test_every_value_knows_its_line():
    """`FILE:LINE` takes an editor to the place; what isn't there is shown where it should be."""
    first, second, third = read(WORKFLOW, "x.yaml")
    assert (first.kind, second.kind, third.kind) == ("Workflow", "ConfigMap", "Secret")
    assert (first.line(), second.line(), third.line("metadata", "name")) == (1, 16, 19)
    assert first.line("spec", "templates", 0, "container", "image") == 9
    assert first.line("spec", "templates", 1, "name") == 11
    assert first.line("spec", "templates", 1, "container", "image") == 9
    assert first.line("spec", "templates", 7, "name") == 5
    assert first.value["spec"]["templates"][1] == {"name": "other", "container": {"image": "debian"}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\n", "x:1: has no kind; write what it is, like kind: Workflow"),
        ("- a\n", "x:1: is no object; it needs apiVersion, kind, metadata and spec"),
        ("kind: X\na: 1\nkind: Y\n", "x:3: 'kind' is written twice, first on line 1; keep one of them"),
        ("kind: X\nmetadata: name\n", "x:2: metadata should be a map; write metadata: {name: NAME}"),
        ("kind: X\na: [1\n", "x:2: a '[' is not closed properly"),
        ("kind: X\na: &a [*a]\n", "x:2: an alias stands inside what it names; write the value"),
        ("kind: X\na: 1e999\n", "x:2: '1e999' is too large a number; put it in quotes"),
        ("kind: X\n<<: 3\n", "x:2: '<<' merges something that is not a map; write <<: *NAME"),
        ("kind: X\n? [a]\n: b\n", "x:2: a key is a list or a map, not text"),
        ("kind: X\na: \x01\n", "x:2: holds the character U+0001, which is not text; remove it"),
    ],
)
def test_what_can_not_be_read_is_said_with_its_line(text, said):
    """One line each, no traceback."""
    with pytest.raises(ManifestError) as error:
        read(text.encode(), "x")
    assert str(error.value).startswith(said)


def test_a_file_that_grows_by_aliases_is_refused():
    """A kilobyte must not become a gigabyte."""
    lines = ["kind: X", "a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(ManifestError, match="holds more than 1000000 values, aliases counted"):
        read("\n".join(lines).encode(), "x")


def test_a_map_of_parameters_is_read_as_such():
    """YAML or JSON."""
    assert read_map(b"a: 1\nb: yes\n", "x") == {"a": 1, "b": True}
    assert read_map(b'{"a": "1"}', "x") == {"a": "1"}
    assert read_map(b"", "x") == {}
    with pytest.raises(ManifestError, match="x:1: is no map; write NAME: VALUE"):
        read_map(b"- a", "x")


def test_objects_are_told_from_manifests():
    """`ffdl lint` takes both; a manifest may have a `kind` further in."""
    assert holds_objects(WORKFLOW)
    assert holds_objects(b'{"apiVersion": "v1"}')
    assert not holds_objects(b"name: x\ndistribution:\n  kind: peer\n")

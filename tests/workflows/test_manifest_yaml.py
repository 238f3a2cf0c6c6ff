"""Files that are hardly manifests, and `--set`: one clear line for each, within a second."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path

import pytest
import yaml

from ffdl.workflows import yaml_lines
from ffdl.workflows.manifest import Manifest, ManifestError, load

GOOD = b"name: m\nframework: {name: numpy, version: 2, command: x}\n"
FULL = (
    GOOD
    + b"""\
evaluation_metrics:
  {type: regex_extractor, in: a, line_lookahead: 2, event_types: [a], groups: {g: {regex: "(?P<l>.)", meta: {time: $l},
   scalars: {l: {type: FLOAT, value: $l}}, etimes: {}}}}
retry: {attempts: 2, on: [crash]}
checkpoint: {interval: 100 steps, keep: 2}
distribution: {kind: none}
env: {A: b, C: "${D}"}
env_from_secret: [a]
placement: {node_selector: {a: b}, tolerations: [{key: a, operator: Exists}], shm: 1GB}
max_runtime: 1h
"""
)
MANIFESTS = sorted((Path(__file__).parent / "manifests").glob("*.yml"))
LOADERS = [yaml.SafeLoader, *([yaml.CSafeLoader] if hasattr(yaml, "CSafeLoader") else [])]


@pytest.fixture(params=LOADERS, ids=lambda loader: loader.__name__)
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyYAML comes with and without its C parser; both must read alike."""
    monkeypatch.setattr(yaml_lines, "_LOADER", request.param)


def errors(text: bytes, *overrides: str) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        load(text, "job.yml", overrides)
    return str(caught.value).splitlines()


def bomb() -> bytes:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    return "\n".join(lines).encode()


@pytest.mark.usefixtures("loader")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "job.yml:1: is empty"),
        (b"\n# only a comment\n", "job.yml:1: is empty"),
        (b"---\n...\n", "job.yml:1: is empty"),
        (b"- a\n- b\n", "job.yml:1: holds a list"),
        (b"\n\njust words\n", "job.yml:3: holds text"),
        (b"name: a\n\tversion: 1\n", "job.yml:2: a tab stands in the indentation; use spaces"),
        (b"framework:\n\tname: a\n", "job.yml:2: a tab stands in the indentation; use spaces"),
        (b"name: a\nversion: \xff\n", "job.yml:2: is not UTF-8 (byte 0xff)"),
        ("name: ü\n".encode("utf-16"), "job.yml:1: is not UTF-8"),
        ("name: a\nversion: ü\n".encode("latin-1"), "job.yml:2: is not UTF-8 (byte 0xfc)"),
        (b"name: a\nversion: \0\n", "job.yml:2: holds the character U+0000"),
        (b"name: a\r\nversion: \x1b[31m\r\n", "job.yml:2: holds the character U+001B"),
        (b"name: a\n---\nname: b\n", "job.yml:2: a second document begins here"),
        (b"name: a: b\n", "job.yml:1: a ': ' stands where none may"),
        (b"name: a\nfoo\nversion: 1\n", "job.yml:2: this is not 'key: value'"),
        (b"name: 'a\nversion: 1\n", "job.yml:1: a quote is opened here and never closed"),
        (b"name: [a\nversion: 1\n", "job.yml:1: a '[' is not closed properly"),
        (b"name: {a: 1\nversion: 1\n", "job.yml:1: a '{' is not closed properly"),
        (b"name: @a\n", "job.yml:1: a value begins with a character that YAML keeps for itself"),
        (b"framework:\n  name: a\n version: 1\n", "job.yml:3: the indentation does not fit"),
        (b'name: "\\q"\n', "job.yml:1: a backslash in double quotes"),
        (b"%YAML 9.9\n---\nname: a\n", "job.yml:1: the file asks for another version of YAML"),
        (b"{name: a} b\n", "job.yml:1: this does not go on from the lines before"),
        (b"name: [a, }]\n", "job.yml:1: a value is missing here"),
        (b"name: *a\n", "job.yml:1: the alias '*a' names nothing"),
        (b"name: &a [*a]\n", "job.yml:1: the alias '*a' stands inside what it names"),
        (b"env: " + b"[" * 100_000, "job.yml:1: is nested more than 32 levels deep"),
        (b"env: " + b"{a: " * 50_000, "job.yml:1: is nested more than 32 levels deep"),
        (b"\n".join(b" " * n + b"a:" for n in range(500)), "job.yml:32: is nested more than 32 levels deep"),
        (bomb(), "values, aliases counted"),
        (b"a: [" + b"x," * 60_000 + b"]", "job.yml:1: holds more than 20000 values"),
        (b"# " + b"x" * 10_000_000, "job.yml:1: has 10.0 MB, and a manifest at most 256 KiB"),
        (b"name: " + b"x" * 300_000, "job.yml:1: has 300 kB"),
        (b"\xf0" * 200_000, "job.yml:1: is not UTF-8"),
    ],
    ids=lambda value: str(value[:24]),
)
def test_what_is_no_manifest_gets_one_clear_line_soon(text: bytes, message: str) -> None:
    """The wrong file on the command line must neither hang nor print a parser's traceback."""
    began = time.process_time()
    (line,) = errors(text)
    assert time.process_time() - began < 10  # what grows without a bound takes minutes
    assert message in line
    assert re.fullmatch(r"job\.yml:\d+: .+; .+", line)
    assert len(line) < 200


@pytest.mark.usefixtures("loader")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"name: again\n", "job.yml:3: 'name' is written twice, first on line 1; keep one of them"),
        (b"? [a]\n: 1\n", "job.yml:3: a key is a list or a map, not text"),
        (b"{{ x }}: 1\n", "a key is a list or a map, not text"),
        (b'"": 1\n', "job.yml:3: a key is empty"),
        (b"env: !!python/object/apply:os.system {A: id}\n", "has the tag '!!python/object/apply:os.system'"),
        (b"env: !secret {A: id}\n", "has the tag '!secret'"),
        (b"env:\n  <<: word\n", "job.yml:4: '<<' merges something that is not a map"),
    ],
)
def test_odd_keys_and_tags_are_refused_and_nothing_runs(text: bytes, message: str) -> None:
    """Of two equal keys YAML keeps one, silently; a tag can be code."""
    assert any(message in line for line in errors(GOOD + text))


@pytest.mark.usefixtures("loader")
def test_aliases_and_merge_keys_mean_what_yaml_says() -> None:
    """FfDL's parser knew them, so manifests may use them; a key of the map's own goes before a merged one."""
    text = GOOD + b"retry: &r {attempts: 2, on: [crash]}\nenv: &e {A: 1, B: 2}\n"
    read = load(text + b"description: &d words\nversion: *d\n")
    assert (read.retry.attempts, read.version) == (2, "words")
    merged = load(GOOD + b"env: {A: &a 1, <<: [{A: 2, B: *a}]}\n")
    assert merged.env == {"A": "1", "B": "1"}


@pytest.mark.usefixtures("loader")
def test_line_ends_and_byte_order_mark_do_not_matter() -> None:
    """Files come from Windows, too, and keep their line numbers."""
    text = GOOD + b"memory: 4GB\ndescription: |\n  a\n  b\n"
    plain = load(text)
    assert load(b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n")) == plain
    assert plain.description == "a\nb\n"
    (line,) = errors(text.replace(b"4GB", b"4G").replace(b"\n", b"\r\n"))
    assert line.startswith("job.yml:3: ")


def test_more_errors_than_anyone_reads_are_cut() -> None:
    """A data file taken for a manifest has thousands."""
    began = time.process_time()
    lines = errors("\n".join(f"pixel{n}: {n}" for n in range(9000)).encode())
    assert time.process_time() - began < 10  # what grows without a bound takes minutes
    assert len(lines) == 101
    assert lines[-1].endswith("correct these first")


def test_messages_are_lines_and_not_for_the_terminal_to_act_on() -> None:
    """A value with line breaks or escape sequences must not break the list of errors or recolour the screen."""
    lines = errors(GOOD + b'memory: "1\\n2\\e[31m"\n"a\\nb": 1\nevaluation_metrics: {groups: {g: {regex: "(?P\\L"}}}\n')
    assert len(lines) == 3
    assert "".join(lines).isprintable()


@pytest.mark.parametrize(
    ("overrides", "field", "value"),
    [
        (["cpus=2"], "cpus", 2.0),
        (["cpus=1", "cpus=3"], "cpus", 3.0),
        (["name='quoted # name'"], "name", "quoted # name"),
        (["name=plain # name: {x}"], "name", "plain # name: {x}"),
        (['name="\\u00fc"'], "name", "ü"),
        (["name='"], "name", "'"),
        (["memory=4GB"], "memory", 4 * 10**9),
        (["memory="], "memory", None),
        (["env.LEVEL=a=b"], "env", {"LEVEL": "a=b"}),
        (["retry.on.0=crash"], "retry.on", ("crash",)),
        (["framework.command=python a.py --x '1 2'"], "framework.command", "python a.py --x '1 2'"),
        (["framework.command=a\nb # c"], "framework.command", "a\nb # c"),
        (["data_stores.0.connection.path=/y"], "data_stores.0.connection", {"type": "host_mount", "path": "/y"}),
        (["placement.node_selector.disk=ssd"], "placement.node_selector", {"disk": "ssd"}),
    ],
    ids=str,
)
def test_set_replaces_one_value(overrides: list[str], field: str, value: object) -> None:
    """One manifest, many runs: a sweep changes a value on the command line, which a shell has unquoted already."""
    text = GOOD + b"memory: 1GB\ndata_stores:\n  - {id: d, type: mount_volume, training_data: {container: in},\n"
    read: object = load(text + b"     connection: {type: host_mount, path: /x}}\n", "job.yml", overrides)
    for name in field.split("."):
        read = read[int(name)] if isinstance(read, tuple) else getattr(read, name)
    assert read == value


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("cpus", "--set cpus: is not KEY=VALUE; write --set cpus=2"),
        ("=2", "--set : is not KEY=VALUE"),
        ("a..b=2", "--set a..b: is not KEY=VALUE"),
        ("cpus=x", "--set cpus: cpus is 'x', not a number of 0 or more; write"),
        ("memory=8Gi", "--set memory: memory is '8Gi', not a whole number"),
        ("memroy=8GiB", "--set memroy: the key 'memroy' is unknown at the top of a manifest; write memory"),
        ("framework.comand=x", "--set framework.comand: the key 'comand' is unknown in framework; write command"),
        ("framework.command=", "--set framework.command: Training command is not set; write"),
        ("name.first=x", "--set name.first: goes into name, which is one value; write --set name=VALUE"),
        ("retry.on.5=crash", "--set retry.on.5: has '5', and retry.on is a list of 1; write a number from 0"),
        ("env.A=\0", "--set env.A: env.A holds a NUL character"),
        ("env.A=\udcff", "--set env.A: env.A is not UTF-8"),
    ],
)
def test_a_wrong_set_is_refused_by_its_own_name(override: str, message: str) -> None:
    """The mistake is on the command line, not in a line of the file."""
    (line,) = errors(GOOD + b"retry: {on: [crash]}\n", override)
    assert line.startswith(message)
    assert "; " in line


def test_set_comes_after_the_files_own_errors_and_may_cure_them() -> None:
    """Errors in the order of lines, then in the order of the command line."""
    lines = errors(GOOD + b"gpus: 0.5\nmemory: 8Gi\n", "cpus=x", "memory=8GiB", "learners=y")
    assert [line.split(":")[0] for line in lines] == ["job.yml", "--set cpus", "--set learners"]


@pytest.mark.usefixtures("loader")
def test_whatever_the_bytes_the_answer_is_a_manifest_or_a_clear_error() -> None:
    """No file may crash the command line or hang it, however it was damaged."""
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    texts = [path.read_bytes() for path in MANIFESTS] + [FULL] * 8
    tokens = [
        *(b"\n", b"\t", b"\r", b"  ", b": ", b"- ", b"[", b"]", b"{", b"}", b"'", b'"', b"#", b"?", b"!", b"%", b"~"),
        *(b"&a ", b"*a", b"<<: ", b"|\n", b">\n", b"!!str ", b"---\n", b"...\n", b"\\x", b"null", b"\0", b"\xff"),
        *(b"\xc3\xbc", b"\xe2\x80\xa8", b"${", b"(?P<a>", b"1e999", b"9" * 30, b"data_stores:\n", b"retry: {on: ["),
    ]
    slowest = 0.0
    for _ in range(400):
        text = bytearray(chance.choice(texts))
        for _ in range(chance.choice([1, 1, 2, 4])):
            at = chance.randrange(len(text) + 1)
            match chance.randrange(4):
                case 0:
                    text[at : at + chance.randint(0, 12)] = b""
                case 1:
                    text[at:at] = chance.choice(tokens) * chance.choice([1, 1, 1, 50])
                case 2:
                    text[at : at + 1] = bytes([chance.choice([chance.randrange(32, 127), chance.randrange(256)])])
                case _:
                    other = chance.choice(texts)
                    start = chance.randrange(len(other))
                    text[at:at] = other[start : start + chance.randint(1, 100)]
        began = time.process_time()
        try:
            override = chance.choice(["cpus=1", "cpus=2", "cpus=3", "a.0=x", "framework.0=y"])
            assert isinstance(load(bytes(text), "job.yml", [override]), Manifest)
        except ManifestError as error:
            for line in str(error).splitlines():
                assert re.fullmatch(r"(job\.yml(:\d+)?|--set [a-z0-9.]+): .+; .+", line), (seed, line)
                assert line.isprintable(), (seed, line)
        slowest = max(slowest, time.process_time() - began)
    assert slowest < 10, seed

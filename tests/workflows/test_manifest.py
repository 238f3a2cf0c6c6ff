"""What `load` makes of a manifest, clause by clause."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ffdl.workflows import frameworks, manual
from ffdl.workflows.catalogue import shipped
from ffdl.workflows.manifest import Manifest, ManifestError, load, references

HERE = Path(__file__).parent
MANUAL = HERE.parents[1] / "docs" / "manifest.md"
LINE = re.compile(r"\S.*:\d+: .+; .+|--set .+: .+; .+")

FRAMEWORK = {"name": "numpy", "version": "latest", "command": "python train.py"}
S3 = {"auth_url": "http://store:9000", "user_name": "me", "password": "pw"}
HOST = {"type": "host_mount", "path": "/srv"}


def manifest(**keys: Any) -> Manifest:
    return load(written(**keys))


def written(**keys: Any) -> bytes:
    whole = {"name": "m", "framework": FRAMEWORK, **keys}
    return yaml.safe_dump({key: value for key, value in whole.items() if value is not ...}, sort_keys=False).encode()


def store(**keys: Any) -> list[dict[str, Any]]:
    whole = {"id": "d", "type": "mount_cos", "training_data": {"container": "in"}, "connection": S3, **keys}
    return [{key: value for key, value in whole.items() if value is not ...}]


def problems(text: bytes, *overrides: str) -> list[str]:
    """The lines of the error, each of which has a place, says what is wrong and what to write."""
    with pytest.raises(ManifestError) as caught:
        load(text, "job.yml", overrides)
    lines = str(caught.value).splitlines()
    assert len(lines) == len(caught.value.problems)
    for line in lines:
        assert LINE.fullmatch(line), line
    return lines


def problem(text: bytes, *overrides: str) -> str:
    lines = problems(text, *overrides)
    assert len(lines) == 1, lines
    return lines[0]


@pytest.mark.parametrize("path", sorted((HERE / "manifests").glob("*.yml")), ids=lambda path: path.stem)
def test_the_manifests_ffdl_users_have_load_unchanged(path: Path) -> None:
    """Whoever comes from FfDL brings files like these and will not rewrite them first."""
    plain = yaml.safe_load(path.read_bytes())
    read = load(path.read_bytes(), path.name)
    assert (read.name, read.version, read.description) == (plain["name"], "1.0", plain["description"])
    assert (read.cpus, read.gpus, read.learners) == (plain["cpus"], plain["gpus"], plain.get("learners", 1))
    assert read.framework.version == plain["framework"]["version"]
    assert read.framework.command == plain["framework"]["command"].replace("\n", " ").strip()
    assert read.data_stores[0].connection == plain["data_stores"][0]["connection"]
    assert frameworks.image(read.framework) != ""
    assert read.metrics_json().get("type") == plain.get("evaluation_metrics", {}).get("type")


def test_defaults_are_ffdls() -> None:
    """A key left out means what FfDL's documentation said it means."""
    read = manifest()
    assert (read.description, read.version, read.gpu_type) == ("", "", "")
    assert (read.cpus, read.memory, read.storage) == (None, None, None)
    assert (read.gpus, read.learners, read.data_stores) == (0.0, 1, ())
    assert (read.evaluation_metrics, read.metrics_json(), read.completion) == (None, {}, None)
    assert (read.distribution.kind, read.distribution.processes) == ("none", None)
    assert (read.retry.attempts, read.retry.on) == (0, ("crash", "out-of-memory"))
    assert (read.checkpoint.interval, read.checkpoint.steps, read.checkpoint.keep) == (60.0, None, 3)
    assert (read.start_timeout, read.max_runtime, read.halt_grace) == (3600.0, None, 120.0)
    assert (read.env, read.env_from_secret) == ({}, ())
    assert (read.placement.node_selector, read.placement.tolerations, read.placement.shm) == ({}, (), None)
    assert "distribution" not in read.model_fields_set
    assert "distribution" in manifest(distribution={"kind": "none"}).model_fields_set


def test_a_manifest_cannot_be_changed_once_read() -> None:
    """What was checked is what runs."""
    with pytest.raises(ValueError, match="frozen"):
        manifest().learners = 2  # type: ignore[misc]


def test_every_key_arrives() -> None:
    """A key that is accepted and lost would be the silence FfDL was bad for."""
    read = manifest(
        cpus=0.25,
        gpus=2,
        gpu_type="nvidia-TeslaV100",
        learners=3,
        memory="4Gb",
        storage="20GiB",
        completion="master",
        distribution={"kind": "none", "processes": "one"},
        retry={"attempts": 2, "on": ["crash"]},
        checkpoint={"interval": "5m", "keep": 7},
        start_timeout="10m",
        max_runtime="1d",
        halt_grace="0s",
        env={"LEVEL": "info", "TOKEN": "${TOKEN}", "N": 3, "EMPTY": None},
        env_from_secret=["one", "two.three"],
        placement={
            "node_selector": {"kubernetes.io/arch": "amd64"},
            "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}],
            "priority_class": "high",
            "shm": "1GiB",
        },
        data_stores=store(
            type="s3_datastore", training_results={"container": "out"}, connection={**S3, "region": "eu-west-1"}
        ),
    )
    assert (read.cpus, read.gpus, read.gpu_type, read.learners) == (0.25, 2.0, "nvidia-TeslaV100", 3)
    assert (read.memory, read.storage, read.completion) == (4 * 10**9, 20 * 2**30, "master")
    assert (read.retry.attempts, read.retry.on) == (2, ("crash",))
    assert (read.checkpoint.interval, read.checkpoint.keep) == (300.0, 7)
    assert (read.start_timeout, read.max_runtime, read.halt_grace) == (600.0, 86400.0, 0.0)
    assert read.env == {"LEVEL": "info", "TOKEN": "${TOKEN}", "N": "3", "EMPTY": ""}
    assert read.env_from_secret == ("one", "two.three")
    assert read.placement.node_selector == {"kubernetes.io/arch": "amd64"}
    assert read.placement.tolerations == (
        {"key": "dedicated", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
    )
    assert (read.placement.priority_class, read.placement.shm) == ("high", 2**30)
    kept = read.data_stores[0]
    assert (kept.id, kept.type, kept.training_data.container) == ("d", "s3_datastore", "in")
    assert kept.training_results is not None
    assert kept.training_results.container == "out"
    assert kept.connection == {**S3, "region": "eu-west-1"}


@pytest.mark.parametrize(
    ("size", "amount"),
    [
        ("1GB", 10**9),
        ("1000 MB", 10**9),
        ("1GiB", 2**30),
        ("1024MiB", 2**30),
        ("4Gb", 4 * 10**9),
        ("1000MiB", 1000 * 2**20),
        ("1 gb", 10**9),
        ("16GB", 16 * 10**9),
        ("300mib", 300 * 2**20),
    ],
)
def test_sizes_are_exact(size: str, amount: int) -> None:
    """FfDL asked for 4.86 % more than 1GiB; a limit that is not the one written kills jobs that fit."""
    assert manifest(memory=size).memory == amount
    assert manifest(storage=size).storage == amount


@pytest.mark.parametrize(
    ("size", "instead"),
    [
        ("1.5GB", "1500MB"),
        ("1.5GiB", "1536MiB"),
        ("8Gi", "8GiB"),
        ("512M", "512MB"),
        ("512Mi", "512MiB"),
        ("1T", "1000GB"),
        ("1TB", "1000GB"),
        ("1TiB", "1024GiB"),
        ("1024", "1024MB or 1024MiB"),
        ("4000000000", "4GB"),
        ("100k", "1MB"),
        ("-4GB", "a size such as 4GB"),
        ("0GB", "a size such as 4GB"),
        ("4 GB RAM", "a size such as 4GB"),
        ("٤GB", "a size such as 4GB"),
        ("9999999999GB", "a size such as 4GB"),
        ("lots", "a size such as 4GB"),
    ],
)
def test_a_wrong_size_is_refused_with_the_right_spelling(size: str, instead: str) -> None:
    """FfDL turned each of these into 512 MB without a word, and the job died for want of memory."""
    assert problem(written(memory=size)).endswith(f"; write {instead}")


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("2h", 7200), ("1d", 86400), ("1h30m", 5400), ("1d1s", 86401)]
)
def test_durations(text: str, seconds: int) -> None:
    """Whoever bounds a job's time must get the bound meant."""
    assert manifest(max_runtime=text).max_runtime == seconds


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("90", "90s"),
        ("1.5h", "1h30m"),
        ("10min", "10m"),
        ("2 hours", "2h"),
        ("1h 30m", "1h30m"),
        ("30m1h", "1h30m"),
        ("1H", "1h"),
        ("1w", "7d"),
        ("500ms", "1s"),
        ("forever", "a duration such as 90s, 10m, 2h or 1h30m"),
        ("0s", "a duration such as 1h, or remove the key"),
        ("99999d", "a duration such as 12h"),
    ],
)
def test_a_wrong_duration_is_refused_with_the_right_spelling(text: str, instead: str) -> None:
    """`90` as minutes where seconds were meant ends a training at the wrong time."""
    assert problem(written(max_runtime=text)).endswith(f"; write {instead}")


def test_a_checkpoint_interval_may_count_steps() -> None:
    """Some loops know steps, not minutes."""
    assert manifest(checkpoint={"interval": "100 steps"}).checkpoint.steps == 100
    assert manifest(checkpoint={"interval": "100 steps"}).checkpoint.interval is None
    assert manifest(checkpoint={"interval": "1 step", "keep": 1}).checkpoint.steps == 1
    assert "write 100s" in problem(written(checkpoint={"interval": 100}))
    assert "60s, or 100 steps" in problem(written(checkpoint={"interval": "0s"}))
    assert "write 1 to" in problem(written(checkpoint={"interval": "0 steps"}))


@pytest.mark.parametrize(
    ("keys", "instead"),
    [
        ({"cpus": "500m"}, "write 0.5"),
        ({"cpus": -1}, "a number such as 0.5"),
        ({"cpus": float("nan")}, "a number such as 0.5"),
        ({"cpus": float("inf")}, "a number such as 0.5"),
        ({"cpus": "0x10"}, "a number such as 0.5"),
        ({"cpus": 1e9}, "write at most"),
        ({"cpus": 0.0001}, "write 0.001 or more"),
        ({"gpus": 0.5}, "write 0 or 1"),
        ({"gpus": -1}, "a number such as"),
        ({"gpus": "500m"}, "write a number such as 1 or 4"),
        ({"learners": 0}, "write 1 to 10000"),
        ({"learners": 1.5}, "a number such as 1"),
        ({"learners": 10**9}, "write 1 to 10000"),
        ({"learners": "two"}, "a number such as 1"),
        ({"learners": "010"}, "a number such as 1"),
        ({"gpu_type": "two words"}, "write one such as nvidia"),
        ({"retry": {"attempts": -1}}, "a number such as 1"),
        ({"retry": {"on": ["oom"]}}, "crash or out-of-memory"),
        ({"retry": {"on": "crash"}}, "write a list"),
        ({"checkpoint": {"keep": 0}}, "write 1 to"),
        ({"completion": "any"}, "all, first or master"),
        ({"env": {"1X": "a"}}, "write letters, digits and _"),
        ({"env": {"DATA_DIR": "a"}}, "choose another name"),
        ({"env": {"FFDL_INDEX": "a"}}, "choose another name"),
        ({"env": {"X": [1]}}, "write text"),
        ({"env": {"X": {"secret": "s"}}}, "write text"),
        ({"env": {"X": "${X:-1}"}}, "write ${NAME}"),
        ({"env": ["X=1"]}, "write a map"),
        ({"env_from_secret": "one"}, "write a list"),
        ({"env_from_secret": ["One"]}, "such as my-secret"),
        ({"placement": {"node_selector": {"a b": "c"}}}, "kubernetes.io/arch"),
        ({"placement": {"node_selector": {"a": "{{x}}"}}}, "write one such as"),
        ({"placement": {"tolerations": [{"operator": "Maybe"}]}}, "Exists or Equal"),
        ({"placement": {"priority_class": "{{x}}"}}, "write one such as"),
        ({"placement": {"shm": "1G"}}, "write 1GB"),
        ({"name": "two\nlines"}, "write one line"),
        ({"name": ["a"]}, "write one line"),
        ({"framework": "numpy"}, "write framework: with name"),
    ],
    ids=str,
)
def test_a_wrong_value_is_refused_with_what_to_write(keys: dict[str, Any], instead: str) -> None:
    """An error that does not say the way out sends the user to the documentation."""
    line = problem(written(**keys))
    assert instead in line.rpartition("; ")[2], line


def test_zero_cpus_means_the_default_as_in_ffdl() -> None:
    """FfDL's gRPC clients wrote 0 for "you choose"."""
    assert manifest(cpus=0).cpus is None
    assert manifest(gpus=1.0).gpus == 1.0


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"name": ...}, "Model definition name is not set"),
        ({"name": ""}, "Model definition name is not set"),
        ({"name": None}, "Model definition name is not set"),
        ({"framework": ...}, "Framework is not set"),
        ({"framework": None}, "Framework is not set"),
        ({"framework": {**FRAMEWORK, "name": ""}}, "Framework name is not set"),
        ({"framework": {"name": "numpy", "command": "x"}}, "Framework version is not set"),
        ({"framework": {"name": "numpy", "version": "2"}}, "Training command is not set"),
        ({"framework": {**FRAMEWORK, "command": " \n"}}, "Training command is not set"),
        ({"data_stores": []}, "Data stores is not set/empty"),
        ({"data_stores": None}, "Data stores is not set/empty"),
        ({"data_stores": store(id=...)}, "Data store id is not set"),
        ({"data_stores": store(connection=...)}, "Data store connection info not set"),
        ({"data_stores": store(training_data=...)}, "Training input data is not set"),
        ({"data_stores": store(training_data={})}, "Data store bucket is not set"),
        ({"data_stores": store(training_data={"container": ""})}, "Data store bucket is not set"),
        ({"data_stores": store(training_results={"container": None})}, "Data store bucket is not set"),
        (
            {"data_stores": store() + store(id="e")},
            "Please only specify one data_store in the manifest. This constraint will go away with the once the new "
            "manifest is in place.",
        ),
    ],
    ids=str,
)
def test_ffdls_errors_keep_ffdls_words(keys: dict[str, Any], words: str) -> None:
    """Users and their scripts know these sentences."""
    line = problem(written(**keys))
    assert re.fullmatch(rf"job\.yml:\d+: {re.escape(words)}; .+", line), line


def test_all_errors_come_at_once_in_the_order_of_lines() -> None:
    """Correcting a manifest takes one round, from top to bottom."""
    text = b"""\
memory: 8Gi
framework:
  comand: python train.py
  name: tensorflw
  version: latest
data_stores:
  - id: d
    type: mount_volume
    training_data:
      container: a/b
    connection:
      type: host_mount
gpus: 0.5
colour: red
"""
    lines = problems(text)
    assert [line.split(": ")[0] for line in lines] == [f"job.yml:{n}" for n in (1, 1, 2, 3, 4, 10, 11, 13, 14)]
    assert [problem.line for problem in _error(text).problems] == [1, 1, 2, 3, 4, 10, 11, 13, 14]


def _error(text: bytes) -> ManifestError:
    with pytest.raises(ManifestError) as caught:
        load(text)
    return caught.value


@pytest.mark.parametrize(
    ("keys", "instead"),
    [
        ({"memroy": "4GB"}, "write memory"),
        ({"dataStores": []}, "write data_stores"),
        ({"Learners": 2}, "write learners"),
        ({"gpu": 1}, "write gpus"),
        ({"command": "x"}, "it belongs in framework"),
        ({"auth_url": "x"}, "it belongs in data_stores.0.connection"),
        ({"colour": "red"}, "remove it (known: name, description"),
        ({"framework": {**FRAMEWORK, "comand": "x"}}, "write command"),
        ({"framework": {**FRAMEWORK, "image": "x"}}, "write name: custom and version: IMAGE"),
        ({"retry": {"attempt": 1}}, "write attempts"),
        ({"data_stores": store(training_result={"container": "x"})}, "write training_results"),
        ({"data_stores": store(connection={**S3, "passwd": "x"})}, "write password"),
    ],
    ids=str,
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(keys: dict[str, Any], instead: str) -> None:
    """FfDL ignored a misspelt `memory` and ran the job with 512 MB."""
    assert instead in problem(written(**keys))


@pytest.mark.parametrize(
    "keys",
    [
        {"elastic": {"min": 1, "max": 4}},
        {"data_stores": store(type="swift_datastore")},
        {"data_stores": store(type="inmem_datastore")},
        {"data_stores": store(connection={**S3, "domain_name": "x"})},
    ],
    ids=str,
)
def test_what_this_version_does_not_do_is_said_and_not_ignored(keys: dict[str, Any]) -> None:
    """A job that silently runs otherwise than its manifest says wastes a day."""
    assert "in this version" in problem(written(**keys))


@pytest.mark.parametrize("completion", ["all", "first"])
def test_who_completes_a_job_of_mpi_is_not_chosen(completion: str) -> None:
    """No other learner has a command that could end."""
    said = problem(written(learners=2, distribution={"kind": "mpi"}, completion=completion))
    assert f"completion is {completion}, but only learner 1 runs the command; remove it" in said
    assert manifest(learners=2, distribution={"kind": "mpi"}, completion="master").completion == "master"


def test_servers_have_no_process_for_each_gpu() -> None:
    """They keep parameters of learners, not of processes."""
    said = problem(written(distribution={"kind": "parameter-server", "processes": "per-gpu"}))
    assert "distribution.processes is per-gpu, which parameter servers do not go with; remove it" in said


@pytest.mark.parametrize("key", [{"servers": 2}, {"cpus": 1}, {"memory": "1GB"}, {"mode": "sync"}], ids=str)
@pytest.mark.parametrize("kind", [{}, {"kind": "peer"}], ids=str)
def test_what_is_of_parameter_servers_needs_some(kind: dict[str, Any], key: dict[str, Any]) -> None:
    """A job that runs without the servers its manifest describes is another job."""
    said = problem(written(distribution={**kind, **key}))
    assert f"distribution.{next(iter(key))} is of parameter servers; write kind: parameter-server as well" in said


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"training_data": {"container": "a/b"}}, "without '/'"),
        ({"training_data": {"container": ".."}}, "without '/'"),
        ({"training_data": {"container": "a\0b"}}, "write one line"),
        ({"training_data": {"container": "ü" * 200}}, "at most 255 bytes"),
        ({"type": "s3_datastore", "training_data": {"container": "logs"}}, "choose another bucket"),
        ({"type": "s3_datastore", "training_results": {"container": "model-code"}}, "choose another bucket"),
        ({"type": "s3"}, "write mount_cos, s3_datastore or mount_volume"),
        ({"type": "s3_datastor"}, "write s3_datastore"),
        ({"type": ...}, "write type:"),
        ({"connection": {"user_name": "a", "password": "b"}}, "write the store's address"),
        ({"connection": {"auth_url": "x", "user_name": "a"}}, "both user_name and password"),
        ({"connection": {**S3, "secret": "s"}}, "keep one"),
        ({"connection": {**S3, "path": "/x"}}, "remove it"),
        ({"connection": {**S3, "type": "s3_datastore"}}, "remove one of the two"),
        ({"connection": {**S3, "auth_url": "${URL}"}}, "write the value itself"),
        ({"connection": {**S3, "password": "${}"}}, "write ${NAME}"),
        ({"connection": {**S3, "password": ""}}, "remove the key"),
        ({"type": "mount_volume"}, "remove it"),
        ({"type": "mount_volume", "connection": {"path": "/x"}}, "write type: host_mount"),
        ({"type": "mount_volume", "connection": {"type": "host_mount"}}, "write path:"),
        ({"type": "mount_volume", "connection": {**HOST, "path": "/a/{{b}}"}}, "without it"),
        ({"type": "mount_volume", "connection": {**HOST, "path": "/a/$(b)"}}, "without it"),
        ({"type": "mount_volume", "connection": HOST, "training_data": {"container": "$(a)"}}, "without them"),
    ],
    ids=str,
)
def test_a_wrong_data_store_is_refused_before_anything_starts(keys: dict[str, Any], words: str) -> None:
    """A job must not wait in a queue for hours to learn that its data can't be reached."""
    assert any(words in line.partition("; ")[2] for line in problems(written(data_stores=store(**keys))))


@pytest.mark.parametrize("bucket", ["with space", "ünï", "x" * 200, "-dash", "a..b", "under_score", "none", "logs"])
def test_buckets_may_be_called_what_folders_may_be_called(bucket: str) -> None:
    """FfDL's own examples use names that S3 is strict about; folders of a machine have any name."""
    read = manifest(data_stores=store(training_data={"container": bucket}, training_results={"container": bucket}))
    assert read.data_stores[0].training_data.container == bucket
    assert read.data_stores[0].training_results is not None
    assert read.data_stores[0].training_results.container == bucket


@pytest.mark.parametrize("name", ["with space", "ünï 🦜", "x" * 200, "-dash", "{{workflow.name}}", "$(HOME)"])
def test_jobs_may_be_called_anything(name: str) -> None:
    """A name is for people."""
    assert manifest(name=name).name == name


def test_credentials_stay_as_written_and_out_of_messages() -> None:
    """A manifest is kept in git; the secret is the submitter's, and a terminal is read over shoulders."""
    connection = {"auth_url": "x", "user_name": "${ID}", "password": "${KEY}-${ID}"}
    kept = manifest(data_stores=store(connection=connection)).data_stores[0].connection
    assert kept == connection
    assert references(kept["password"]) == ["KEY", "ID"]
    assert references("no $NAME, no ${1X}") == []
    by_name = {"auth_url": "x", "secret": "my-keys"}
    assert manifest(data_stores=store(connection=by_name)).data_stores[0].connection == by_name
    assert manifest(data_stores=store(connection={"auth_url": "x"})).data_stores[0].connection == {"auth_url": "x"}
    wrong = {"auth_url": "x", "user_name": "hunter2${", "password": "hunter2\0"}
    for line in problems(written(data_stores=store(connection=wrong))):
        assert "hunter2" not in line


@pytest.mark.parametrize(
    ("style", "command", "script"),
    [
        ("command: a b", "a b", False),
        ("command: >\n    a\n    b\n", "a b", False),
        ("command: >\n    a\n      b\n\n    c\n", "a   b  c", False),
        ("command: a\n    b", "a b", False),
        ('command: "a\\nb"', "a b", False),
        ("command: 'it''s {{workflow.name}} $$ $(HOME)'", "it's {{workflow.name}} $$ $(HOME)", False),
        ("command: |\n    a\n      b\n\n    c\n", "a\n  b\n\nc\n", True),
        ("command: |-\n    a", "a", True),
        ("command: no", "no", False),
    ],
)
def test_a_command_is_one_line_or_a_script(style: str, command: str, script: bool) -> None:
    """FfDL put folded and quoted text on one line; whoever writes a literal block means its lines."""
    read = load(f"name: m\nframework:\n  name: numpy\n  version: 2\n  {style}\n".encode())
    assert (read.framework.command, read.command_is_script) == (command, script)


def test_scalars_are_what_stands_in_the_file() -> None:
    """YAML makes 1.10 into 1.1, no into False, and 0o17 into 15; a version or a name is text."""
    text = b"name: no\nversion: 1.10\ndescription: 2019-01-01\nenv: {A: yes, B: 0o17, C: 1e3}\n"
    read = load(text + b"framework: {name: numpy, version: 1.0, command: true}\n")
    assert (read.name, read.version, read.description) == ("no", "1.10", "2019-01-01")
    assert (read.framework.version, read.framework.command) == ("1.0", "true")
    assert read.env == {"A": "yes", "B": "0o17", "C": "1e3"}


METRICS = {
    "type": "regex_extractor",
    "in": "$JOB_STATE_DIR/logs",
    "line_lookahead": 2,
    "eventTypes": ["scalars"],
    "groups": {
        "train": {
            "regex": r"Iteration %{INT:step}, loss = (?P<loss>[0-9.]+)",
            "meta": {"time": "$time", "subid": "train"},
            "values": {"loss": {"type": "FLOAT", "value": "$loss"}},
            "etimes": {"iteration": {"type": "INT", "value": "$step"}},
        }
    },
}


def test_evaluation_metrics_arrive_with_a_manifests_keys() -> None:
    """The extractor in the pod reads exactly this."""
    assert manifest(evaluation_metrics=METRICS).metrics_json() == {
        "type": "regex_extractor",
        "in": "$JOB_STATE_DIR/logs",
        "event_types": ["scalars"],
        "line_lookahead": 2,
        "groups": {
            "train": {
                "regex": r"Iteration %{INT:step}, loss = (?P<loss>[0-9.]+)",
                "meta": {"time": "$time", "subid": "train"},
                "scalars": {"loss": {"type": "FLOAT", "value": "$loss"}},
                "etimes": {"iteration": {"type": "INT", "value": "$step"}},
            }
        },
    }
    assert manifest(evaluation_metrics={"type": None}).metrics_json()["type"] == "logger"
    assert manifest(evaluation_metrics={"type": "file"}).metrics_json()["line_lookahead"] == 4


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"type": "regex"}, "which is unknown"),
        ({"groups": None}, "write groups:"),
        ({"groups": {"g": {"scalars": {}}}}, "regex is not set"),
        ({"groups": {"g": {"regex": "(", "scalars": {}}}}, "correct it"),
        ({"groups": {"g": {"regex": "a{99999999999}"}}}, "correct it"),
        ({"groups": {"g": {"regex": "%{FLOTE:x}"}}}, "write FLOAT"),
        ({"groups": {"g": {"regex": "x" * 3000}}}, "at most 2000"),
        ({"groups": {"g": {"regex": "(?P<loss>.)", "scalars": {"l": {"value": "$los"}}}}}, "write $loss"),
        ({"groups": {"g": {"regex": ".", "scalars": {"l": {"value": "x", "type": "FLOT"}}}}}, "write FLOAT"),
        ({"groups": {"g": {"regex": ".", "scalars": {"l": {}}}}}, "scalars.l.value is not set"),
        ({"groups": {"g": {"regex": ".", "scalars": {}, "values": {}}}}, "two names"),
        ({"line_lookahead": 0}, "write 1 to"),
        ({"event_types": ["scalars"]}, "two names"),
    ],
    ids=str,
)
def test_wrong_evaluation_metrics_are_refused(keys: dict[str, Any], words: str) -> None:
    """FfDL's collector died of them in the pod, and the metrics were simply not there."""
    assert any(words in line for line in problems(written(evaluation_metrics={**METRICS, **keys})))


@pytest.mark.parametrize(
    ("framework", "image", "module"),
    [
        ({"name": "tensorflow", "version": "2.17.1"}, "tensorflow/tensorflow:2.17.1", "tensorflow"),
        ({"name": "pytorch", "version": "latest"}, "pytorch/pytorch:latest", "torch"),
        ({"name": "caffe", "version": "cpu"}, "bvlc/caffe:cpu", "caffe"),
        ({"name": "caffe2", "version": "latest"}, "caffe2ai/caffe2:latest", "caffe2"),
        ({"name": "h2o3", "version": "latest"}, "opsh2oai/h2o3-ffdl:latest", "h2o"),
        ({"name": "horovod", "version": "0.13"}, "uber/horovod:0.13", "horovod"),
        ({"name": "pytorchmpi", "version": "1"}, "tomcli/pytorch:1", "torch"),
        ({"name": "jax", "version": "25.04-py3"}, "nvcr.io/nvidia/jax:25.04-py3", "jax"),
        ({"name": "mxnet", "version": "1.9.1_cpu_py3"}, "mxnet/python:1.9.1_cpu_py3", "mxnet"),
        ({"name": "numpy", "version": "2"}, "ffdl-learner-numpy:2", "numpy"),
        ({"name": "numpy", "version": "2", "image_tag": "dev"}, "ffdl-learner-numpy:dev", "numpy"),
        ({"name": "custom", "version": "host:5000/a/b:1"}, "host:5000/a/b:1", None),
        (
            {"name": "pytorch", "version": "1", "image_location": {"registry": "r.io", "namespace": "n"}},
            "r.io/n/pytorch:1",
            "torch",
        ),
        (
            {"name": "ours", "version": "1", "image_location": {"registry": "r:1", "namespace": "n/m"}},
            "r:1/n/m/ours:1",
            None,
        ),
    ],
    ids=str,
)
def test_a_framework_names_its_image_and_module(framework: dict[str, Any], image: str, module: str | None) -> None:
    """FfDL's image map; where there are no images, the module that must be there and how to get it."""
    read = manifest(framework={**framework, "command": "x"}).framework
    known = shipped().entries.get(read.name)
    assert (frameworks.image(read), known and known.module) == (image, module)
    assert known is None or known.install


@pytest.mark.parametrize(
    ("framework", "instead"),
    [
        ({"name": "tensorflw", "version": "1"}, "write tensorflow, or custom with"),
        ({"name": "TensorFlow", "version": "1"}, "write tensorflow"),
        ({"name": "paddle", "version": "1"}, "write custom with an image as version (known: tensorflow"),
        ({"name": "numpy", "version": "a/b:1"}, "write one such as latest"),
        ({"name": "custom", "version": "a b"}, "write one such as pytorch/pytorch:latest"),
        ({"name": "custom", "version": "{{x}}"}, "write one such as"),
        ({"name": "custom", "version": "a", "image_tag": "b"}, "write the tag in version"),
        ({"name": "numpy", "version": "1", "image_tag": "a b"}, "write one such as latest"),
        ({"name": "numpy", "version": "1", "image_location": {"registry": "r"}}, "write its name"),
        ({"name": "numpy", "version": "1", "image_location": {"namespace": "r"}}, "write its address"),
        ({"name": "numpy", "version": "1", "image_location": {"registry": "{{", "namespace": "n"}}, "write one such"),
    ],
    ids=str,
)
def test_a_wrong_framework_is_refused(framework: dict[str, Any], instead: str) -> None:
    """FfDL started a pod with the image `__unknown__`, which waited for ever."""
    assert instead in problem(written(framework={**framework, "command": "x"}))


def test_the_manual_is_current() -> None:
    """A reader of the manual gets what the code does. FFDL_REGENERATE=1 writes it anew."""
    if os.environ.get("FFDL_REGENERATE"):
        MANUAL.write_text(manual.render(), encoding="utf-8")
    assert MANUAL.read_text(encoding="utf-8") == manual.render()


def test_the_manual_names_every_key_and_its_example_loads() -> None:
    """What the manual shows must work when pasted."""
    page = manual.render()
    for model in (Manifest, *(type(part) for part in _parts(manifest()))):
        for name, _, key in model.declared():
            assert f"| `{name}`" in page
            assert key.meaning.replace("|", "\\|") in page
    assert load(manual.EXAMPLE.encode()).retry.attempts == 2


def _parts(read: Manifest) -> list[Any]:
    return [read.framework, read.distribution, read.retry, read.checkpoint, read.placement]

"""Frameworks as a user meets them: what there is, what runs instead of old versions, and what a site changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.cli.shell import Shell

MANIFEST = """\
name: old
cpus: 1
memory: 512MB
framework:
  name: {name}
  version: "{version}"
  command: python train.py
"""
SITE = """\
tensorflow:
  image: mirror.example.org/tensorflow
nowhere:
  image: team/nowhere
  module: module_that_is_nowhere
  install: pip install nowhere
plain:
  image: team/plain
  module: json
  outdated:
    - {versions: [1.0], runs: 2.0, because: one is the loneliest number}
"""


def manifest(shell: Shell, name: str, version: str) -> str:
    (shell.folder / "job").mkdir(exist_ok=True)
    (shell.folder / "job" / "manifest.yml").write_text(MANIFEST.format(name=name, version=version))
    return "job/manifest.yml"


def site(shell: Shell, text: str = SITE) -> Path:
    file = shell.folder / "site.yml"
    file.write_text(text)
    return file


def learner_image(workflow: str) -> str:
    templates = {template["name"]: template for template in yaml.safe_load(workflow)["spec"]["templates"]}
    image: str = templates["learner"]["container"]["image"]
    return image


def test_they_are_listed_with_what_runs(shell: Shell) -> None:
    """What to write is found without reading a manual, by people and by programs."""
    names = shell.ffdl("frameworks", "-o", "name").stdout.split()
    assert {"tensorflow", "pytorch", "jax", "mxnet", "numpy"} <= set(names)
    table = shell.ffdl("frameworks").stdout.splitlines()
    assert [line.split()[0] for line in table] == ["NAME", *names, "custom"]
    found = {each["name"]: each for each in json.loads(shell.ffdl("frameworks", "-o", "json").stdout)}
    assert list(found) == names
    versions = {each["version"]: each for each in found["tensorflow"]["versions"]}
    assert versions["latest"] == {
        "version": "latest", "runs": "tensorflow/tensorflow:latest", "because": "", "refused": False,
    }  # fmt: skip
    assert versions["1.5.0-py3"]["runs"] == "tensorflow/tensorflow:1.15.5"
    lines = shell.ffdl("frameworks", "tensorflow").stdout.splitlines()
    rows = {line.split()[0]: line.split()[1] for line in lines if "tensorflow/tensorflow:" in line}
    assert rows == {version: each["runs"] for version, each in versions.items()}


def test_a_terminal_is_never_too_narrow(shell: Shell) -> None:
    """Reasons are long; the images, which one copies, are whole."""
    shown, _ = shell.terminal("frameworks", "tensorflow", columns=100)
    assert max(map(len, shown.splitlines())) <= 100
    assert "1.5.0-gpu       tensorflow/tensorflow:1.15.5-gpu" in shown


def test_an_unknown_one_is_answered_with_the_nearest(shell: Shell) -> None:
    """A site's names count as ffdl's do."""
    assert shell.fails("frameworks", "tensorflw") == "no framework is called 'tensorflw'; did you mean tensorflow?"
    asked = {"FFDL_CATALOGUE": str(site(shell))}
    assert shell.fails("frameworks", "zzz", **asked).endswith("numpy, nowhere, plain")
    assert "known: tensorflow" in shell.fails("compile", manifest(shell, "zzz", "1"), **asked)
    assert "numpy, nowhere, plain, custom)" in shell.fails("compile", manifest(shell, "zzz", "1"), **asked)


def test_whoever_asks_for_an_old_version_is_told_what_runs(shell: Shell) -> None:
    """A warning beside the Workflow, not in it, so that it can be piped; and nothing of it with `image_tag`."""
    file = manifest(shell, "tensorflow", "1.5.0-py3")
    done = shell.ffdl("compile", file)
    assert learner_image(done.stdout) == "tensorflow/tensorflow:1.15.5"
    assert done.stderr.startswith("Warning: tensorflow 1.5.0-py3 is outdated (")
    assert done.stderr.endswith(
        "tensorflow/tensorflow:1.15.5 runs instead, unless the manifest says image_tag: 1.5.0-py3\n"
    )
    kept = shell.ffdl("compile", file, "--set", "framework.image_tag=1.5.0-py3")
    assert (learner_image(kept.stdout), kept.stderr) == ("tensorflow/tensorflow:1.5.0-py3", "")
    lint = shell.ffdl("lint", file)
    assert f"Warning: {file}: tensorflow 1.5.0-py3 is outdated" in lint.stderr
    assert lint.stderr.endswith("nothing is wrong\n")
    (found,) = json.loads(shell.ffdl("lint", file, "-o", "json").stdout)
    assert found["class"] == "warning"


def test_a_slip_of_the_pen_is_a_note(shell: Shell) -> None:
    """The tag may exist after all: nothing is refused."""
    done = shell.ffdl("compile", manifest(shell, "tensorflow", "1.5-py3"))
    assert done.stderr == "Note: the catalogue has no tensorflow 1.5-py3; did you mean 1.5.0-py3?\n"
    assert learner_image(done.stdout) == "tensorflow/tensorflow:1.5-py3"


def test_the_warning_stays_with_the_job(shell: Shell) -> None:
    """Whoever looks at a job that fails with strange errors sees that another image runs than was asked for."""
    job = shell.job("training-aaaaaaaaaa", summary={"warning": "plain 1.0 is outdated"})
    assert "Warning      plain 1.0 is outdated" in shell.ffdl("show", job).stdout
    assert json.loads(shell.ffdl("show", job, "-o", "json").stdout)["warning"] == "plain 1.0 is outdated"
    assert "Warning" not in shell.ffdl("show", shell.job("training-bbbbbbbbbb")).stdout


@pytest.mark.parametrize("way", ["variable", "file"])
def test_a_site_is_one_setting(shell: Shell, way: str) -> None:
    """For a session, or for good."""
    file = site(shell)
    env = {"FFDL_CATALOGUE": str(file)} if way == "variable" else {}
    if way == "file":
        (shell.folder / ".config" / "ffdl").mkdir(parents=True)
        (shell.folder / ".config" / "ffdl" / "config.yml").write_text("catalogue: ~/site.yml\n")
    assert str(file) in shell.ffdl("frameworks", "plain", **env).stdout
    done = shell.ffdl("compile", manifest(shell, "tensorflow", "1.5.0-py3"), **env)
    assert learner_image(done.stdout) == "mirror.example.org/tensorflow:1.15.5"
    first, *_ = json.loads(shell.ffdl("doctor", "-o", "json", **env).stdout)
    assert (first["topic"], first["state"]) == ("catalogue", "ok")
    assert "tensorflow, nowhere, plain" in first["words"]


def test_a_module_of_a_sites_framework_is_looked_for(shell: Shell) -> None:
    """Without images, a job whose module is missing would fail after its download."""
    asked = {"FFDL_CATALOGUE": str(site(shell))}
    line = shell.fails("train", manifest(shell, "nowhere", "1"), code=2, **asked)
    assert "has no module_that_is_nowhere, which nowhere jobs import; get it there with `pip install nowhere`" in line
    dry = shell.ffdl("train", manifest(shell, "plain", "1.0"), "--dry-run", **asked)
    assert learner_image(dry.stdout) == "team/plain:2.0"
    told = "Warning: plain 1.0 is outdated (one is the loneliest number); on this machine what runs is the json of "
    assert told in dry.stderr


@pytest.mark.parametrize("verb", ["compile", "train", "lint", "graph", "frameworks", "doctor"])
def test_a_broken_site_is_one_line_with_its_place(shell: Shell, verb: str) -> None:
    """Every verb that needs it says so; none goes on with half of it."""
    file = site(shell, "plain:\n  imag: x\n")
    words = f"{file}:2: the key 'imag' is unknown in an entry of a catalogue; write image"
    arguments = [] if verb in ("frameworks", "doctor") else [manifest(shell, "numpy", "1")]
    done = shell.ffdl(verb, *arguments, code=4 if verb == "doctor" else 2, FFDL_CATALOGUE=str(file))
    assert words in done.stdout + done.stderr
    assert "image_tag" not in done.stdout


def test_a_file_that_is_not_there_is_named_with_its_setting(shell: Shell) -> None:
    """After a move, or on a new machine; and verbs that need no frameworks go on."""
    asked = {"FFDL_CATALOGUE": "/nowhere/site.yml"}
    words = "/nowhere/site.yml: No such file or directory; FFDL_CATALOGUE or `catalogue` of config.yml names it"
    assert shell.fails("compile", manifest(shell, "numpy", "1"), **asked) == words
    assert words in shell.ffdl("doctor", code=4, **asked).stdout
    shell.ffdl("list", **asked)

"""The catalogue of frameworks: what runs for each version, what the user is told, and what a site may change."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from ffdl.workflows.catalogue import Catalogue, shipped
from ffdl.workflows.compile import compile_job
from ffdl.workflows.job import Machine, TrainingJob
from ffdl.workflows.manifest import ManifestError

MANIFESTS = sorted((Path(__file__).parent / "manifests").glob("*.yml"))
TENSORFLOW = ("1.4.0", "1.5.0", "1.5.1", "1.6.0", "1.7.0", "1.8.0", "1.9.0", "latest")
OUTDATED = {"1.5.0-py3": "tensorflow/tensorflow:1.15.5", "1.5.0-gpu": "tensorflow/tensorflow:1.15.5-gpu"}
OUTDATED |= {"1.5.0": OUTDATED["1.5.0-py3"], "1.5.0-gpu-py3": OUTDATED["1.5.0-gpu"]}
OUTDATED |= {"latest-py3": "tensorflow/tensorflow:latest", "latest-gpu-py3": "tensorflow/tensorflow:latest-gpu"}
OUTDATED["0.13.10-tf1.9.0-torch0.4.0-py3.5"] = "horovod/horovod:0.28.1"

SITE = b"""
tensorflow:
  image: mirror.example.org:5000/tensorflow/tensorflow
  versions: [2.19.0, 1.5.0-py3]
  outdated:
    - {versions: [2.18.0], runs: 2.19.0, because: the mirror has it no longer}
    - {versions: [1.7.0], runs: 2.19.0, because: our scripts were ported}
    - {versions: [1.15.5], because: it has known holes}
lightning: {image: team/lightning, module: lightning, install: pip install lightning}
bare: {image: team/bare}
caffe: {warning: ''}
"""


def job(name: str, version: str, catalogue: Catalogue | None = None, **keys: Any) -> TrainingJob:
    framework = {"name": name, "version": version, "command": "true", **keys}
    return TrainingJob.from_arguments(name="j", cpus=1, framework=framework, catalogue=catalogue)


def site(text: bytes = SITE) -> Catalogue:
    return shipped().extended(text, "site.yml")


def documented() -> list[tuple[str, str, str]]:
    """Name, version and FfDL's image of each version in FfDL's user guide."""
    variants = product(TENSORFLOW, ("", "-gpu"), ("", "-py3"))
    versions = {
        "tensorflow/tensorflow": [("tensorflow", "".join(each)) for each in variants],
        "bvlc/caffe": [("caffe", version) for version in ("cpu", "intel", "gpu")],
        "pytorch/pytorch": [("pytorch", "v0.2"), ("pytorch", "latest")],
        "caffe2ai/caffe2": [
            ("caffe2", "c2v0.8.1.cpu.full.ubuntu14.04"),
            ("caffe2", "c2v0.8.0.cpu.full.ubuntu16.04"),
            ("caffe2", "c2v0.8.1.cuda8.cudnn7.ubuntu16.04"),
            ("caffe2", "latest"),
        ],
        "opsh2oai/h2o3-ffdl": [("h2o3", "latest")],
        "uber/horovod": [("horovod", f"0.13.10-tf1.9.0-torch0.4.0-py{python}") for python in ("2.7", "3.5")],
        "tomcli/pytorch": [("pytorchmpi", "0925mpi")],
    }
    return [(name, version, image) for image, pairs in versions.items() for name, version in pairs]


@pytest.mark.parametrize(("name", "version", "image"), documented())
def test_each_documented_version_runs_or_says_what_runs_instead(name: str, version: str, image: str) -> None:
    """Manifests of 2018 name them; silently another image, or one that can't be pulled, is not an answer."""
    assert version in shipped().entries[name].known()
    chosen = job(name, version)
    own = f"{image}:{version}"
    told = f"{chosen.image} runs instead, unless the manifest says image_tag: {version}"
    assert chosen.image == own if told not in chosen.warning else chosen.image != own
    assert job(name, version, image_tag=version).image == own, "who wants the old image gets it"
    assert "instead" not in job(name, version, image_tag=version).warning
    assert chosen.notes == ()


@pytest.mark.parametrize("version", [*TENSORFLOW[:-1], "v0.2", *OUTDATED])
def test_versions_of_2018_have_a_successor(version: str) -> None:
    """FfDL's own examples ask for them."""
    name = "pytorch" if version == "v0.2" else "horovod" if version.startswith("0.13") else "tensorflow"
    chosen = job(name, version)
    assert chosen.image == OUTDATED.get(version, chosen.image)
    assert chosen.warning.startswith(f"{name} {version} is outdated (")


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_ffdls_manifests_compile_and_those_of_old_images_warn(path: Path) -> None:
    """The warning stays with the job: it is in the Workflow that is submitted."""
    text = path.read_text()
    names = {"DLAAS_URL": "x", "DATA_DIR": "x"}
    chosen = TrainingJob.from_manifest(text, environ=names, file=path.name)
    compiled = compile_job(chosen).to_yaml()
    learner = next(
        template["container"]
        for template in compile_job(chosen).workflow["spec"]["templates"]
        if template["name"] == "learner"
    )
    assert learner["image"] == chosen.image
    version = chosen.spec.framework_version
    old = version in OUTDATED
    assert ("runs instead" in chosen.warning) == old
    assert ('"warning": ' in compiled) == (chosen.warning != "")
    assert chosen.image == OUTDATED[version] if old else version in chosen.image


def test_a_version_that_is_not_listed_is_the_tag() -> None:
    """Upstream goes on; nobody should wait for a catalogue."""
    chosen = job("tensorflow", "2.31.0-gpu")
    assert (chosen.image, chosen.warning, chosen.notes) == ("tensorflow/tensorflow:2.31.0-gpu", "", ())


@pytest.mark.parametrize(
    ("name", "version", "meant"),
    [
        ("tensorflow", "1.5-py3", "1.5.0-py3"),
        ("tensorflow", "v2.19.0", "2.19.0"),
        ("tensorflow", "1.5.0-py3-gpu", "1.5.0-gpu-py3"),
        ("tensorflow", "1.5.0_py3", "1.5.0-py3"),
        ("tensorflow", "lastest-gpu", "latest-gpu"),
        ("pytorch", "Latest", "latest"),
        ("mxnet", "1.9.1_cpu", None),
        ("tensorflow", "2.19.1", None),
        ("tensorflow", "1.50.0-py3", None),
        ("tensorflow", "nightly", None),
        ("pytorch", "2.8.0", None),
        ("numpy", "2", None),
    ],
)
def test_a_slip_of_the_pen_is_asked_about(name: str, version: str, meant: str | None) -> None:
    """FfDL's own example says 1.3-py3 where the tag is 1.3.0-py3; a pull that fails an hour later is a poor answer."""
    chosen = job(name, version)
    expected = (f"the catalogue has no {name} {version}; did you mean {meant}?",) if meant else ()
    assert (chosen.image, chosen.notes) == (f"{shipped().entries[name].image}:{version}", expected)


def test_without_images_the_warning_speaks_of_this_machine() -> None:
    """On one machine nothing is pulled, so that no other image runs instead."""
    framework = {"name": "tensorflow", "version": "1.5.0", "command": "true"}
    here = TrainingJob.from_arguments(name="j", framework=framework, machine=Machine(2, 1 << 30))
    assert here.warning.endswith("on this machine what runs is the tensorflow of the learners' Python")
    framework = {"name": "caffe", "version": "cpu", "command": "true"}
    assert TrainingJob.from_arguments(name="j", framework=framework, machine=Machine(2, 1 << 30)).warning == ""
    assert "caffe: there are no images" in job("caffe", "cpu").warning


def test_an_image_location_is_taken_at_its_word() -> None:
    """Who runs a registry knows what is in it."""
    location = {"registry": "r.io", "namespace": "n"}
    chosen = job("tensorflow", "1.5.0-py3", image_location=location)
    assert (chosen.image, chosen.warning, chosen.notes) == ("r.io/n/tensorflow:1.5.0-py3", "", ())


def test_a_site_changes_and_adds_entries() -> None:
    """What it does not write stays as it is."""
    mirror = "mirror.example.org:5000/tensorflow/tensorflow"
    assert job("tensorflow", "latest-gpu-py3", site()).image == f"{mirror}:latest-gpu"
    moved = job("tensorflow", "2.18.0", site())
    assert moved.image == f"{mirror}:2.19.0"
    assert "outdated (the mirror has it no longer)" in moved.warning
    assert "(our scripts were ported)" in job("tensorflow", "1.7.0", site()).warning, "the site's word goes first"
    own = job("tensorflow", "1.5.0-py3", site())
    assert (own.image, own.warning) == (f"{mirror}:1.5.0-py3", ""), "a version that the site lists runs as it is"
    new = job("lightning", "2.5", site())
    assert (new.image, new.needs) == ("team/lightning:2.5", {"module": "lightning", "install": "pip install lightning"})
    assert job("bare", "1", site()).needs == {}
    assert job("caffe", "cpu", site()).warning == ""
    assert job("pytorch", "latest", site()) == job("pytorch", "latest")


@pytest.mark.parametrize("keys", [{"version": "1.15.5"}, {"version": "1.6.0"}, {"version": "x", "image_tag": "1.15.5"}])
def test_what_a_site_has_retired_is_refused_with_its_words(keys: dict[str, str]) -> None:
    """By whatever way a manifest gets to it."""
    with pytest.raises(ManifestError) as caught:
        job("tensorflow", catalogue=site(), **keys)
    (problem,) = caught.value.problems
    assert "which is not run any more: it has known holes; write one that `ffdl frameworks tensorflow` lists" in str(
        problem
    )
    assert problem.line > 1


def test_an_unknown_framework_lists_the_sites_too() -> None:
    """A user can't know which file a name should have come from."""
    with pytest.raises(ManifestError, match=r"known: tensorflow, .*, lightning, bare, custom\)"):
        job("zzz", "1", site())
    with pytest.raises(ManifestError, match="write lightning, or custom"):
        job("lightening", "1", site())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "site.yml:1: is no catalogue; write"),
        (b"- a\n", "site.yml:1: is no catalogue"),
        (b"a: [\n", "site.yml:2: a value is missing here"),
        (b"\xff", "site.yml:1: is not UTF-8"),
        (
            b"a:\n  image: x/y\n  modul: z\n",
            "site.yml:3: the key 'modul' is unknown in an entry of a catalogue; write",
        ),
        (
            b"a:\n  image: x/y\n  command: z\n",
            "site.yml:3: the key 'command' is unknown in an entry of a catalogue; ",
        ),
        (b"a:\n  image: x/y\na:\n  image: x/z\n", "site.yml:3: 'a' is written twice, first on line 1"),
        (b"a:\n  image: x/y:1\n", "site.yml:2: a.image is 'x/y:1', not an image's name without a tag"),
        (b"a:\n  module: x\n", "site.yml:1: a.image is not set"),
        (b"a: x\n", "site.yml:1: a is a single value"),
        (b"pytorch:\n", "site.yml:1: pytorch is a single value"),
        (b"a b: {image: x}\n", "site.yml:1: 'a b' can't be a framework's name"),
        (b"custom: {image: x}\n", "site.yml:1: 'custom' can't be a framework's name"),
        (b"a: {image: x, module: 'a b'}\n", "site.yml:1: a.module is 'a b', not the name of a Python module"),
        (b"a:\n  image: x\n  versions: 1\n", "site.yml:3: a.versions is a single value, not a list"),
        (b"a:\n  image: x\n  versions: [a/b]\n", "site.yml:3: a.versions.0 is 'a/b', not an image's tag"),
        (b"a:\n  image: x\n  outdated:\n    - {versions: [1]}\n", "site.yml:4: a.outdated.0.because is not set"),
        (b"a:\n  image: x\n  outdated:\n    - {because: b}\n", "site.yml:4: a.outdated.0.versions is not set"),
        (
            b"a:\n  image: x\n  outdated:\n    - {versions: [1], because: b, runs: 'a b'}\n",
            "site.yml:4: a.outdated.0.runs is 'a b', no tag and no image",
        ),
        (
            b"a:\n  image: x\n  versions: [1]\n  outdated: [{versions: [1], because: b}]\n",
            "site.yml:4: a has '1' twice; keep one of the two",
        ),
        (
            b"tensorflow:\n  outdated: [{versions: [1.15.5], runs: 1.5.0-py3, because: b}]\n",
            "site.yml:1: tensorflow.outdated leads from '1.15.5' back to it",
        ),
    ],
    ids=str,
)
def test_a_broken_catalogue_is_one_line_with_its_place(text: bytes, words: str) -> None:
    """An administrator corrects it at that line; nothing is guessed in the meantime."""
    with pytest.raises(ManifestError) as caught:
        site(text)
    assert str(caught.value).startswith(words), str(caught.value)
    assert len(caught.value.problems) == 1
    assert "; " in str(caught.value)

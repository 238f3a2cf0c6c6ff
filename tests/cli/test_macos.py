"""`ffdl` on macOS, as far as Linux can tell: compiling, looking and clusters work, the local engine says what it needs.

`macos/sitecustomize.py` takes from its processes what only Linux offers.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ffdl.engines.argo import packaged
from tests.cli.shell import Shell
from tests.steps.api_server import serve

MACOS = str(Path(__file__).parent / "macos")
DIGITS = Path(__file__).parents[2] / "examples" / "digits"
NEEDED = "Error: the local engine needs Linux; use --engine argo with a cluster\n"
IMPORT_ALL = """
import importlib, pkgutil, sys
assert sys.platform == "darwin"
for package in ("ffdl.cli", "ffdl.workflows", "ffdl.engines.argo", "ffdl.engines.graph"):
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        importlib.import_module(module.name)
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    made.env["PYTHONPATH"] = MACOS
    return made


def test_compiling_and_linting_are_the_same_everywhere(shell: Shell) -> None:
    """What a laptop compiles is what goes to the cluster."""
    manifest, workflow = str(DIGITS / "manifest.yml"), str(DIGITS / "workflow.yaml")
    assert shell.ffdl("compile", manifest).stdout == shell.ffdl("compile", manifest, PYTHONPATH="").stdout
    said = shell.ffdl("lint", manifest, workflow).stderr
    assert said.endswith("2 files: nothing is wrong\n")
    assert said == shell.ffdl("lint", manifest, workflow, PYTHONPATH="").stderr


def test_every_part_that_a_cluster_needs_can_be_loaded(shell: Shell) -> None:
    """Most parts are loaded on first use: one that can't be would be met in the middle of something."""
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], env=shell.env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl for the server's certificate")
def test_a_job_is_submitted_to_a_cluster(shell: Shell) -> None:
    """The people with the Macs are those who submit jobs."""
    with serve(shell.folder / "api") as server:
        for found in packaged.objects("tenant", "ns"):
            if found["kind"] == "ConfigMap":
                server.put("configmaps", found)
        kubeconfig = str(server.kubeconfig(shell.folder / "kubeconfig"))
        said = shell.ffdl("--engine", "argo", "train", str(DIGITS / "manifest.yml"), KUBECONFIG=kubeconfig).stdout
        assert ("workflows", said.strip().removeprefix("Model ID: ")) in server.objects
        listed = shell.ffdl("--engine", "argo", "list", KUBECONFIG=kubeconfig).stdout
        assert "digits" in listed
    done = shell.ffdl("--engine", "argo", "doctor", code=4, KUBECONFIG=kubeconfig)
    assert "connection refused" in done.stdout


@pytest.mark.parametrize("verb", ["train", "run", "list", "engine"])
def test_the_local_engine_says_that_it_needs_linux(shell: Shell, verb: str) -> None:
    """One sentence with the way out, whichever command comes first; nothing is begun."""
    file = {"train": [str(DIGITS / "manifest.yml")], "run": [str(DIGITS / "workflow.yaml")]}
    done = shell.ffdl("--engine", "local", verb, *file.get(verb, []), code=4)
    assert (done.stdout, done.stderr) == ("", NEEDED)
    assert not shell.home.exists()


def test_doctor_says_so_too(shell: Shell) -> None:
    """Who asks what is wrong is told the same."""
    done = shell.ffdl("--engine", "local", "doctor", code=4)
    assert "the local engine needs Linux; use --engine argo with a cluster" in done.stdout
    assert done.stderr == "1 problem found\n"

"""`ffdl images build`: one line for everything that can be wrong, and builds where there is a builder."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest

from ffdl.images.builder import Builder, BuildError, find_builder
from tests.cli.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def program(folder: Path, name: str, text: str) -> None:
    """A stand-in for a builder that is installed."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_what_was_asked_for_wrongly(shell: Shell) -> None:
    """Typing errors are told before anything is built."""
    assert "there are steps, agent" in shell.fails("images", "build", "stepps")
    assert "--push needs --registry" in shell.fails("images", "build", "--push")


def test_nothing_that_builds(shell: Shell, tmp_path: Path) -> None:
    """What to install is said, also where docker is there but its engine is not."""
    tools = tmp_path / "tools"
    tools.mkdir()
    missing = shell.fails("images", "build", code=4, PATH=str(tools))
    assert missing == "nothing here builds images; install buildah (Debian, Ubuntu: apt install buildah) or Docker"
    program(tools, "docker", "echo 'Cannot connect to the Docker daemon at unix:///var/run/docker.sock.' >&2; exit 1")
    broken = shell.fails("images", "build", code=4, PATH=str(tools))
    assert broken.startswith("docker does not work here: Cannot connect to the Docker daemon")


def test_the_builder_that_works_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Either may be there without working; the user should not have to find out."""
    monkeypatch.setenv("PATH", str(tmp_path))
    program(tmp_path, "buildah", "echo 'no subordinate ids'; exit 125")
    program(tmp_path, "docker", "echo info")
    assert find_builder().name == "docker"
    with pytest.raises(BuildError, match="buildah does not work here: no subordinate ids"):
        find_builder("buildah")


def test_proxies_reach_a_build_by_name_only(tmp_path: Path) -> None:
    """Their values may hold passwords: they are not for the list of processes."""
    environment = {"https_proxy": "http://me:secret@proxy:3128", "HTTP_PROXY": "", "PATH": "/bin"}
    secrets = {"pip": tmp_path / "pip"}
    command = Builder("docker").build_command(tmp_path / "steps.Containerfile", "r/i:1", "base", secrets, environment)
    assert command[-3:] == ["--build-arg", "https_proxy", str(tmp_path)]
    assert f"id=pip,src={tmp_path / 'pip'}" in command
    assert "secret@" not in " ".join(command)


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (
            "Error: creating build container: initializing source docker://r.example/b:1: pinging container registry: "
            'Get "https://r.example/v2/": dial tcp: lookup r.example: no such host',
            "the base image BASE can't be had: creating build container",
        ),
        (
            "ERROR: failed to solve: BASE: failed to resolve source metadata for docker.io/library/b:1: not found",
            "the base image BASE can't be had: failed to solve",
        ),
        (
            "W: Failed to fetch http://d.example/InRelease  Temporary failure resolving 'd.example'\n"
            "E: Unable to locate package python3\n"
            'Error: building at STEP "RUN apt-get update": while running runtime: exit status 100',
            "IMAGE can't be built: no way to a server of packages: W: Failed to fetch http://d.example/InRelease",
        ),
        (
            "ERROR: No matching distribution found for hera<8,>=7.1\n"
            'Error: building at STEP "RUN pip": while running runtime: exit status 1',
            "IMAGE can't be built: No matching distribution found for hera<8,>=7.1; -v shows all that buildah says",
        ),
        ("something else", "IMAGE can't be built: something else"),
    ],
)
def test_why_a_build_failed(log: str, said: str) -> None:
    """Builders wrap a reason in lines of their own; the person gets the reason."""
    assert Builder("buildah").why(log, "IMAGE", "BASE").startswith(said)


@pytest.fixture
def base() -> str:
    """An image of this machine to build on."""
    if os.geteuid() or not shutil.which("buildah"):
        pytest.skip("needs buildah and root")
    wanted = os.environ.get("FFDL_TEST_BASE", "localhost/debian:bookworm")
    if subprocess.run(["buildah", "inspect", "--type", "image", wanted], capture_output=True, check=False).returncode:
        pytest.skip(f"needs the image {wanted} (FFDL_TEST_BASE names another)")
    return wanted


def test_an_image_that_holds_the_agent_and_no_secret(shell: Shell, base: str, tmp_path: Path) -> None:
    """The real thing: built, written to a file, refused by a registry that is not there."""
    shell.env |= {name: value for name, value in os.environ.items() if name.startswith(("BUILDAH_", "STORAGE_"))}
    shell.env["PIP_INDEX_URL"] = "https://me:hidden@index.example/simple"
    tag = uuid.uuid4().hex  # the machine's images are shared with tests that run beside this one
    name = f"127.0.0.1:1/test/ffdl-agent:{tag}"
    arguments = ("images", "build", "agent", "--base", base, "--tag", tag, "--registry", "127.0.0.1:1/test")
    try:
        assert shell.ffdl(*arguments, "--archive", "out").stdout == f"{name}\n"
        assert (tmp_path / "out" / "ffdl-agent.tar").stat().st_size > 1 << 20
        told = subprocess.run(
            ["buildah", "inspect", "--type", "image", name], capture_output=True, text=True, check=True
        )
        assert "65532:65532" in told.stdout
        assert "hidden" not in told.stdout
        refused = shell.ffdl(*arguments, "--push", code=4).stderr.splitlines()[-1]
        assert refused.startswith(f"Error: {name} was not taken by 127.0.0.1:1: ")
    finally:
        subprocess.run(["buildah", "rmi", name], capture_output=True, check=False)

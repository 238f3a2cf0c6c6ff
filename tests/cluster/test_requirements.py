"""Someone who tries the cluster on a machine without its parts is told all that is missing at once, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster import __main__ as command
from tests.cluster import requirements


def put(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_everything_missing_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody wants to learn of one missing package per attempt; nothing is started or installed unasked."""
    monkeypatch.setattr(requirements, "ADMIN_PATHS", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("FFDL_CLUSTER_CACHE", str(tmp_path / "cache"))
    assert command.main(["up"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "Go 1.26 or later is needed (there is none): https://go.dev/dl" in said
    assert "conntrack containerd" in said
    assert "`up --install`" in said
    assert not (tmp_path / "cache").exists()


def test_the_clusters_own_tools_are_not_taken_for_the_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a shell with its `env`, `up` would wrap its ctr around itself."""
    ours, machine = tmp_path / "ours", tmp_path / "machine"
    put(ours, "ctr", "")
    put(machine, "ctr", "")
    monkeypatch.setenv("PATH", f"{ours}:{machine}")
    assert requirements.program("ctr", ours) == str(machine / "ctr")


@pytest.mark.parametrize(("version", "found"), [("go1.26.8", (1, 26)), ("go1.19", (1, 19)), ("devel", None)])
def test_gos_version_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, found: tuple[int, int] | None
) -> None:
    """Debian's own Go is too old: that is said at once, not after ten minutes by a compiler."""
    put(tmp_path / "bin", "go", f"echo {version}")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    assert requirements.go_version() == found
    assert any("Go 1.26" in line for line in requirements.missing()) == (found != (1, 26))


def test_install_asks_apt_for_what_is_missing_and_starts_no_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only with --install, only what is missing; the machine's own containerd must not come up for it."""
    put(tmp_path / "bin", "apt-get", f'echo "$@" >> {tmp_path}/asked; ls {tmp_path}/policy >> {tmp_path}/asked')
    put(tmp_path / "bin", "runc", "")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/bin")
    monkeypatch.setattr(requirements, "POLICY", tmp_path / "policy")
    monkeypatch.setattr(requirements, "PACKAGES", {"runc": "runc", "no-such-program": "ipset"})
    requirements.install()
    policy = tmp_path / "policy"
    install = "install -q -y --no-install-recommends ipset"
    assert (tmp_path / "asked").read_text().splitlines() == ["update -q", str(policy), install, str(policy)]
    assert not policy.exists()

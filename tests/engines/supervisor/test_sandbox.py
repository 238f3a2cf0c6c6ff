"""Whether this kernel gives namespaces is never answered by accident."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ffdl.engines.local import linux, sandbox


@pytest.fixture(autouse=True)
def untried(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(sandbox.SWITCH_ENV, raising=False)
    if sandbox.available() == sandbox.NONE:
        pytest.skip("this kernel gives no namespaces: `ffdl doctor` says how to get them")
    sandbox._tried.cache_clear()
    yield
    sandbox._tried.cache_clear()


@pytest.mark.parametrize("victim", ["child", "grandchild"])
def test_who_is_killed_while_it_tries_the_namespaces_says_nothing_about_them(
    victim: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod without namespaces finds no mounts: `kill -9` at the wrong moment must not put a job's pods there."""
    killed, mount, fork = tmp_path / "killed", linux.mount, os.fork

    def kill_once(*arguments: Any) -> None:
        mount(*arguments)
        if not killed.exists():
            killed.touch()
            if victim == "child":
                os.kill(os.getpid(), signal.SIGKILL)
            monkeypatch.setattr(os, "fork", killed_at_once)

    def killed_at_once() -> int:
        child = fork()
        if child == 0:
            signal.pause()
        os.kill(child, signal.SIGKILL)
        return child

    monkeypatch.setattr(linux, "mount", kill_once)
    assert sandbox.available() == sandbox.NAMESPACES
    assert killed.exists()

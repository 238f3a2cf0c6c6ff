"""How learners come to a parameter server where they can't come by memory in common."""

from __future__ import annotations

import os
import select
import socket
from pathlib import Path
from typing import Any

import pytest

from ffdl.learner import doorkeeper, rendezvous
from tests.learner.learners import WAIT


def test_a_server_where_no_name_can_be_listened_at_lets_learners_in_by_tcp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names without a file are Linux's alone. Elsewhere the server has one door less, and sleeps at the other."""
    opened: list[Any] = []

    def counted(selector: Any, listener: Any) -> None:
        opened.append(listener)
        real(selector, listener)

    real = rendezvous._open
    monkeypatch.setattr(rendezvous, "_open", counted)
    monkeypatch.setattr(doorkeeper, "name", lambda place, to: str(tmp_path / "no folder" / "socket"))
    key = os.urandom(32)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with doorkeeper.Doorkeeper(rendezvous.Place(1 << 20, 7, key), listener, 2) as door:
            for rank in range(2):
                place = rendezvous.Place(rank, 7, key)
                with rendezvous.connect(place, 1 << 20, listener.getsockname(), lambda: None):
                    assert select.select([door.woken], [], [], WAIT)[0]
                    ((came, line),) = door.newcomers()
                    line.close()
                    assert came == rank
        assert set(opened) == {listener}

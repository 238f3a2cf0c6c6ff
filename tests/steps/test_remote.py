"""Commands that other learners of a world ask for, over real sockets: who may, and what comes back."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ffdl.learner.errors import PeerLost
from ffdl.learner.rendezvous import Place, arrivals
from ffdl.learner.world import World
from ffdl.steps import remote, remote_client
from ffdl.steps.remote_client import parse
from ffdl.steps.remote_server import Server

KEY = bytes(range(32))


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    """Where learner 2 of generation 4 serves."""
    place, over = Place(1, 4, KEY), threading.Event()
    server = Server(place, {"PATH": os.environ["PATH"], "OWN": "its own"})

    def look() -> None:
        if over.is_set():
            raise PeerLost

    def serve() -> None:
        with contextlib.suppress(PeerLost):
            for _, connection in arrivals(place, [listener], lambda rank: True, look):
                connection.setblocking(True)
                server.serve(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()
        over.set()
        thread.join()


def world(address: tuple[str, int], generation: int = 4, key: bytes = KEY) -> World:
    return World(generation, 0, 2, key, (("", 0), address))


def test_output_errors_and_the_exit_code_come_back(address: tuple[str, int], capfd: pytest.CaptureFixture[str]) -> None:
    """As with ssh: launchers read what their daemons say, and judge how they end."""
    assert remote_client.run(world(address), 1, "echo $OWN; echo wrong >&2; exit 3") == 3
    assert capfd.readouterr() == ("its own\n", "wrong\n")
    assert remote_client.run(world(address), 1, "head -c 300000 /dev/zero | tr '\\0' x") == 0
    assert capfd.readouterr().out == "x" * 300_000


def test_what_stays_behind_does_not_keep_the_connection(
    address: tuple[str, int], capfd: pytest.CaptureFixture[str]
) -> None:
    """A daemon that goes to the background with its output open must not make its launcher wait."""
    assert remote_client.run(world(address), 1, "sleep 60 & echo done") == 0
    assert capfd.readouterr().out == "done\n"


@pytest.mark.parametrize("changes", [{"key": bytes(32)}, {"generation": 3}], ids=["key", "generation"])
def test_a_stranger_runs_nothing(
    address: tuple[str, int], changes: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reaches the port of a pod could else run commands in it."""
    monkeypatch.setattr(remote_client, "WITHIN", 0.3)
    with pytest.raises(remote_client.LateError):
        remote_client.run(world(address, **changes), 1, f"touch {tmp_path}/done")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_a_command_that_was_changed_on_its_way_is_not_run() -> None:
    """Who has listened to one command can't have it, or another, run again."""
    place = Place(1, 4, KEY)
    here, there = socket.socketpair()
    with here, there:
        once = os.urandom(16)
        here.sendall(place.prove(b"command", once, b"true") + (4).to_bytes(4, "big") + b"true")
        with pytest.raises(ConnectionError, match="not what was sent"):
            remote.hear(there, place)


def test_nothing_is_left_when_who_asked_hangs_up(address: tuple[str, int], tmp_path: Path) -> None:
    """The launcher was killed: its processes must not hold GPUs until someone looks."""
    place = Place(0, 4, KEY)
    pids = tmp_path / "pids"
    with remote_client.connect(place, 1, address, lambda: None) as connection:
        remote.ask(connection, place, f"sleep 100 & echo $! > {pids}.tmp; setsid sleep 100 & echo $! >> {pids}.tmp; "
                   f"mv {pids}.tmp {pids}; wait")  # fmt: skip
        _until(pids.exists)
        started = [int(pid) for pid in pids.read_text().split()]
        assert len(started) == 2
    _until(lambda: not any(_alive(pid) for pid in started))


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _until(condition: object) -> None:
    deadline = time.monotonic() + 30
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("arguments", "host", "command"),
    [
        (["job-1", "orted", "-mca", "x", "1"], "job-1", "orted -mca x 1"),
        (["-x", "-p", "22", "me@job-1.job", "orted --tree"], "job-1.job", "orted --tree"),
        (["-oBatchMode=yes", "job-1", "true"], "job-1", "true"),
    ],
)
def test_arguments_are_those_of_ssh(arguments: list[str], host: str, command: str) -> None:
    """Each launcher has a way of its own to call it."""
    assert parse(arguments) == (host, command)


@pytest.mark.parametrize(
    ("host", "rank"),
    [("job-3", 3), ("job-3.job", 3), ("job-3.job.ns.svc.cluster.local", 3), ("job-3.other", None), ("jo-3", None)],
)
def test_hosts_go_by_their_names(host: str, rank: int | None) -> None:
    """Some launchers cut a name at its first dot."""
    assert remote.rank_of(host, "job") == rank

"""The slow road to a store: a moment that lasts long enough for a fault to fall into it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.faults.throttle import WITHOUT, Throttle


@pytest.fixture
def road() -> Iterator[Throttle]:
    """To a server that sends back what it gets."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=echo, args=(client,), daemon=True).start()

    def echo(client: socket.socket) -> None:
        with client:
            while data := client.recv(1 << 16):
                client.sendall(data)

    threading.Thread(target=serve, daemon=True).start()
    made = Throttle("127.0.0.1", listener.getsockname()[:2])
    yield made
    made.close()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def there_and_back(road: Throttle, size: int) -> float:
    """Seconds that `size` bytes take."""
    host, port = road.endpoint.removeprefix("http://").split(":")
    began = time.monotonic()
    with socket.create_connection((host, int(port))) as client:
        sender = threading.Thread(target=client.sendall, args=(bytes(size),))
        sender.start()
        left = size
        while left:
            left -= len(client.recv(1 << 16))
        sender.join()
    return time.monotonic() - began


def test_bytes_take_the_time_that_the_rate_says(road: Throttle) -> None:
    """Two connections share one road: it is the machine's, not theirs."""
    road.rate = 2e6
    seconds: list[float] = []
    threads = [threading.Thread(target=lambda: seconds.append(there_and_back(road, 500_000))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(seconds) > 0.4
    assert road.passed == 2_000_000


def test_a_road_set_free_is_free_at_once(road: Throttle) -> None:
    """What a scenario waits for must not be the tail of its own slowness."""
    road.rate = 1e4
    threading.Timer(0.3, lambda: setattr(road, "rate", WITHOUT)).start()
    assert there_and_back(road, 1_000_000) < 60  # 100 s at that rate, one way


def test_nobody_there_ends_the_connection(road: Throttle) -> None:
    """A store that is killed is felt as one: not as a connection that hangs."""
    host, port = road.endpoint.removeprefix("http://").split(":")
    with socket.socket() as taken:  # a port at which nobody listens, nor will anybody meanwhile
        taken.bind(("127.0.0.1", 0))
        road.target = taken.getsockname()[:2]
        with socket.create_connection((host, int(port)), 60) as client:
            assert client.recv(1) == b""

"""Collectives among learners that are processes of their own, by shared memory and by TCP."""

from __future__ import annotations

import array as arrays
import contextlib
import os
import random
import re
import resource
import signal
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from ffdl.learner import overlay, rendezvous
from ffdl.learner.overlay import Mismatch, Overlay, PeerLost
from ffdl.learner.rendezvous import Place, admit, connect
from tests.learner.learners import WAIT, Learners

WAYS = pytest.mark.parametrize("shared_memory", [True, False], ids=["shared memory", "tcp"])


def in_order(inputs: list[np.ndarray]) -> np.ndarray:
    """The sum as documented: chunk c in the order of ranks c, c+1, ..."""
    size, length = len(inputs), len(inputs[0])
    total = np.empty_like(inputs[0])
    for chunk in range(size):
        part = slice(length * chunk // size, length * (chunk + 1) // size)
        total[part] = inputs[chunk][part]
        for step in range(1, size):
            total[part] += inputs[(chunk + step) % size][part]
    return total


@WAYS
def test_sums_are_exact_to_the_bit(shared_memory: bool) -> None:
    """A model must be the same whoever was killed and whichever way the gradients went: so the order of adding is
    fixed. Lengths around the sizes of blocks and slots, one element, none."""
    seed = random.randrange(2**32)
    print("seed", seed)
    lengths = [0, 1, 2, 3, 1000, 65536 + 1, (1 << 18) // 4, (1 << 20) // 4 + 3, random.Random(seed).randrange(1 << 20)]

    def inputs(rank: int) -> list[np.ndarray]:
        dice = np.random.default_rng([seed, rank])
        return [dice.standard_normal(length).astype(kind) for length in lengths for kind in ("f4", "f8", "f2")]

    def body(overlay: Overlay) -> list[int]:
        found = inputs(overlay.rank)
        for one in found:
            overlay.all_reduce(one)
        return [zlib.crc32(one.tobytes()) for one in found]

    for size in (1, 2, 3, 4):
        wanted = [zlib.crc32(in_order(list(one)).tobytes()) for one in zip(*map(inputs, range(size)), strict=True)]
        assert Learners(size, body, shared_memory).results() == dict.fromkeys(range(size), wanted)


@WAYS
def test_many_that_are_on_their_way_are_as_if_each_had_been_waited_for(shared_memory: bool) -> None:
    """Also those of one array, and of parts of it: the second has what the first has found."""
    seed = random.randrange(2**32)
    print("seed", seed)

    def calls(overlay: Overlay, begin: Callable[[np.ndarray, str], Any]) -> list[int]:
        dice, own = random.Random(seed), np.random.default_rng([seed, overlay.rank])
        arrays, under_way = [own.standard_normal((900, 300)) for _ in range(4)], []
        for _ in range(300):
            columns = slice(0, dice.choice([0, 1, 150, 300]), dice.choice([1, 1, 2]))
            under_way.append(begin(dice.choice(arrays)[dice.randrange(900) :, columns], dice.choice(["mean", "max"])))
            if dice.random() < 0.05:
                overlay.barrier()
        for one in under_way:
            one.wait()
        return [zlib.crc32(one.tobytes()) for one in arrays]

    def body(overlay: Overlay) -> bool:
        def waited(array: np.ndarray, operation: str) -> Any:
            pending = overlay.all_reduce_async(array, operation)
            pending.wait()
            return pending

        return calls(overlay, overlay.all_reduce_async) == calls(overlay, waited)

    for size in (2, 3):
        assert Learners(size, body, shared_memory).results() == dict.fromkeys(range(size), True)


@WAYS
def test_every_collective(shared_memory: bool) -> None:
    """As a script uses them: any shape, views, arrays in shared memory, Python's own arrays, several on their way."""

    def body(overlay: Overlay) -> str:
        rank, size = overlay.rank, overlay.size
        mean = np.full((2, 3), float(rank))
        overlay.all_reduce(mean, "mean")
        assert (mean == (size - 1) / 2).all()
        columns = np.full((4, 6), rank, np.int16)
        overlay.all_reduce(columns[:, ::2], "max")
        assert (columns[:, ::2] == size - 1).all()
        assert (columns[:, 1::2] == rank).all()
        scalar = np.array(rank + 1)
        overlay.all_reduce(scalar)
        assert scalar == size * (size + 1) // 2
        own = arrays.array("d", [rank, 1.0])
        overlay.all_reduce(own)
        assert own.tolist() == [size * (size - 1) / 2, size]
        living = overlay.empty((300, 1000), np.float32)
        living[:] = rank
        under_way = [overlay.all_reduce_async(living[part * 100 : part * 100 + 100]) for part in range(3)]
        rows = overlay.all_gather(np.full((2, 2), rank))
        for one in under_way:
            one.wait()
        assert (living == size * (size - 1) / 2).all()
        assert (rows == np.arange(size)[:, None, None]).all()
        assert rows.shape == (size, 2, 2)
        for root in range(size):
            large = np.full(700_000, rank, np.int64)
            overlay.broadcast(large, root)
            assert (large == root).all()
        overlay.barrier()
        return overlay.transport

    for size in (1, 2, 3, 5):
        way = "none" if size == 1 else "shared memory" if shared_memory else "tcp"
        assert Learners(size, body, shared_memory).results() == dict.fromkeys(range(size), way)


@WAYS
def test_more_memory_can_be_had_while_a_collective_is_on_its_way(shared_memory: bool) -> None:
    """A script makes room for the next gradients while the last ones travel: it must not get in their way."""
    gate, opened = os.pipe()
    begun: list[int] = []

    def look() -> None:
        if begun == [0]:  # the first learner waits for the second
            os.write(opened, b"x")

    def body(overlay: Overlay) -> float:
        if overlay.rank == 1:
            os.read(gate, 1)
        begun.append(overlay.rank)
        try:
            under_way = overlay.all_reduce_async(gradients := np.ones(1000))
            more = overlay.empty(1000)
            more.fill(overlay.rank)
            overlay.all_reduce(more)
            under_way.wait()
        finally:
            os.write(opened, b"x")
        assert (gradients == 2).all()
        return float(more.mean())

    assert Learners(2, body, shared_memory, look=look).results() == {0: 1.0, 1: 1.0}


@WAYS
def test_arrays_in_common_memory_and_others_are_added_up_together(shared_memory: bool) -> None:
    """A script whose learners take their arrays from different places gets its sum by TCP, so it does by memory, too.
    Every choice of learners with an array of `empty`, which are not at the same place in it, to the bit."""
    size, lengths = 3, [0, 1, 1000, (1 << 20) + 3]

    def inputs(rank: int) -> list[np.ndarray]:
        dice = np.random.default_rng(rank)
        return [dice.standard_normal(length).astype("f4") for length in lengths]

    def body(overlay: Overlay) -> list[int]:
        living = overlay.empty((size, max(lengths)))
        found = []
        for choice in range(1 << size):
            for one in inputs(overlay.rank):
                if choice >> overlay.rank & 1:
                    place = living[overlay.rank, : len(one)]
                    place[:] = one
                    one = place
                overlay.all_reduce(one)
                found.append(zlib.crc32(one.tobytes()))
        return found

    wanted = [zlib.crc32(in_order(list(one)).tobytes()) for one in zip(*map(inputs, range(size)), strict=True)]
    assert Learners(size, body, shared_memory).results() == dict.fromkeys(range(size), wanted * (1 << size))


def test_what_can_not_be_sent_is_said_before_anything_is_sent() -> None:
    """An error at one learner alone, and the others wait: so it must come before they are told of anything."""

    def body(overlay: Overlay) -> list[str]:
        said = []
        fixed = np.ones(2)
        fixed.flags.writeable = False
        for array, operation in [
            (fixed, "sum"),
            (np.ones(2, int), "mean"),
            (np.array(["x"]), "sum"),
            (np.ones(2), "or"),
        ]:
            with pytest.raises((TypeError, ValueError)) as raised:
                overlay.all_reduce(array, operation)
            said.append(str(raised.value))
        with pytest.raises(TypeError):
            overlay.all_reduce([1.0, 2.0])  # a list would be copied, and the result lost
        with pytest.raises(ValueError, match="no rank 2 among 2"):
            overlay.broadcast(np.ones(2), 2)
        overlay.barrier()
        return said

    assert Learners(2, body, True).results()[0] == [
        "the array can't be written to, and the result is to go there",
        "the mean of int64 is no int64: take the sum, or an array of floats",
        "an array of <U1 can't be sent: numbers can",
        "there is no operation 'or': one of sum, mean, max",
    ]


@WAYS
def test_a_barrier_waits_for_all(shared_memory: bool) -> None:
    """Who comes early waits for who comes late: the last one comes when the others have been seen waiting."""
    gate, opened = os.pipe()
    news, tell = os.pipe()
    inside: list[int] = []

    def look() -> None:
        if inside:
            os.write(tell, b"%d" % inside[0])

    def body(overlay: Overlay) -> None:
        if overlay.rank == 1:
            os.read(gate, 1)
        inside.append(overlay.rank)
        try:
            overlay.barrier()
        finally:
            inside.clear()
            os.write(tell, b"returned")

    learners = Learners(3, body, shared_memory, look=look)
    os.close(tell)
    seen = b""
    while b"r" not in seen and not {*b"02"} <= {*seen}:
        seen += os.read(news, 1)
    os.write(opened, b"x")
    learners.results()
    assert b"r" not in seen


@WAYS
@pytest.mark.parametrize("what", ["length", "type", "kind"])
def test_different_calls_are_an_error_that_names_them(shared_memory: bool, what: str) -> None:
    """A script in which one learner skips a step would hang, or worse: add what does not belong together."""

    def body(overlay: Overlay) -> str:
        odd = overlay.rank == 1
        array = np.ones(6 if what == "length" and odd else 5, "f4" if what == "type" and odd else "f8")
        with pytest.raises((Mismatch, PeerLost)) as raised:
            overlay.barrier() if what == "kind" and odd else overlay.all_reduce(array)
        with pytest.raises(type(raised.value)):
            overlay.barrier()  # it stays so
        return str(raised.value)

    said = " ".join(Learners(2, body, shared_memory).results().values())
    assert {"length": "48 bytes", "type": "float32", "kind": "barrier"}[what] in said
    assert "all_reduce of the sum (40 bytes of float64) as its number 1" in said


def test_memory_that_only_one_makes_is_a_mistake_too() -> None:
    """The others call something else meanwhile, and nobody would ever take what it hands over."""

    def body(overlay: Overlay) -> str:
        with pytest.raises(Mismatch) as raised:
            overlay.empty(5) if overlay.rank == 1 else overlay.barrier()
        return str(raised.value)

    said = Learners(2, body, True).results()
    assert said[1].startswith("this learner calls empty (20 bytes of float32) as its number 1, rank 0 barrier")


def test_on_different_machines_it_is_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    """They find that out among themselves, which is no call of the script's."""
    monkeypatch.setattr(overlay, "_machine", lambda: os.urandom(32))

    def body(overlay: Overlay) -> str:
        with pytest.raises((Mismatch, PeerLost)) as raised:
            overlay.all_reduce(np.ones(5 + overlay.rank))
        return f"{overlay.transport}: {raised.value}"

    said = " ".join(Learners(2, body, True).results().values())
    assert re.search(r"tcp: this learner calls all_reduce of the sum \(4[08] bytes of float64\) as its number 1,", said)


@WAYS
def test_one_that_has_finished_is_not_taken_for_lost(shared_memory: bool) -> None:
    """A loop that is longer at one learner than at another is a mistake of the script's: it is said as one, at once,
    whether the others wait for the first one already or not."""
    seed = random.randrange(2**32)
    print("seed", seed)
    for trial in range(8):

        def body(overlay: Overlay, trial: int = trial) -> str:
            dice = random.Random(seed + 100 * trial + overlay.rank)
            overlay.all_reduce(np.ones(10))
            time.sleep(dice.random() * 0.02)  # who comes first is what is tried
            if overlay.rank == 0:
                overlay.finish()
                return "finished"
            with pytest.raises(Mismatch) as raised:
                overlay.all_reduce(np.ones(1 << 20))
            with pytest.raises(Mismatch):
                overlay.barrier()  # it stays so
            return str(raised.value)

        said = Learners(2, body, shared_memory).results()
        assert said[1].startswith("this learner calls all_reduce of the sum (8388608 bytes of float64) as its number 2")
        assert said[1].endswith("none any more: it has finished")


@WAYS
def test_one_that_finishes_does_first_what_nobody_has_waited_for(shared_memory: bool) -> None:
    """A forgotten `wait` at the end of one learner's training must not end the others'."""

    def body(overlay: Overlay) -> float:
        large = np.full(1 << 20, 1.0 + overlay.rank)
        if overlay.rank == 0:
            overlay.all_reduce_async(large)
            overlay.finish()
        else:
            time.sleep(0.2)  # the other one is at its end by now
            overlay.all_reduce(large)
        return float(large.min() + large.max())

    assert Learners(2, body, shared_memory).results() == {0: 6.0, 1: 6.0}


@WAYS
def test_a_mismatch_that_nobody_has_waited_for_is_told_at_the_end(shared_memory: bool) -> None:
    """Also where it has come to light long before."""

    def body(overlay: Overlay) -> bool:
        if overlay.rank == 1:
            overlay.finish()
            return True
        under_way = overlay.all_reduce_async(np.ones(10))
        with pytest.raises(Mismatch):
            under_way.wait()
        with pytest.raises(Mismatch):
            overlay.finish()
        return True

    assert Learners(2, body, shared_memory).results() == {0: True, 1: True}


def test_memory_that_one_has_no_room_for_is_made_by_none() -> None:
    """All can go on without it."""

    def body(overlay: Overlay) -> float:
        if overlay.rank == 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with pytest.raises(OSError, match="no memory in common for 4194304 bytes of each learner"):
            overlay.empty(1 << 20)
        array = overlay.empty(10)
        array[:] = overlay.rank
        overlay.all_reduce(array)
        return float(array.sum())

    assert Learners(2, body, True).results() == {0: 10.0, 1: 10.0}


@WAYS
def test_one_that_is_killed_is_an_error_at_once(shared_memory: bool) -> None:
    """At any moment, in whatever it did: the others must not wait for it. What they had in common goes with them."""
    dice = random.Random(seed := random.randrange(2**32))
    print("seed", seed)
    begun, begin = os.pipe()

    def body(overlay: Overlay) -> str:
        large = np.ones(1 << 20, np.float32)
        if overlay.rank == 1:
            os.write(begin, b"x")
        try:
            while True:
                overlay.all_reduce(large, "max")
        except PeerLost as error:
            return str(error)

    for _ in range(3):
        learners = Learners(3, body, shared_memory)
        os.read(begun, 1)
        time.sleep(dice.random() * 0.3)  # the moment of the kill is what is tried
        os.kill(learners.processes[1].pid, signal.SIGKILL)
        found = learners.results()
        assert sorted(found) == [0, 2]
        assert all("is gone" in said or "given up" in said for said in found.values())


@WAYS
def test_closing_ends_what_is_on_its_way(shared_memory: bool) -> None:
    """A script that gives up must not hang in the collective that it has left running."""

    def body(overlay: Overlay) -> bool:
        overlay.barrier()
        if overlay.rank == 0:
            under_way = overlay.all_reduce_async(np.ones(1 << 20))
            overlay.close()
            with pytest.raises(PeerLost):
                under_way.wait()
        return True

    assert Learners(1 + 1, body, shared_memory).results()[0] is True


class Enough(Exception):  # noqa: N818
    """Raised to end a wait."""


@WAYS
def test_a_wait_can_be_ended(shared_memory: bool) -> None:
    """A learner that is stopped and not dead: whoever knows that it is given up must be able to say so."""
    told, tell = os.pipe()
    os.set_blocking(told, False)

    def look() -> None:
        try:
            os.read(told, 1)
        except BlockingIOError:
            return
        raise Enough

    def body(overlay: Overlay) -> bool:
        overlay.barrier()
        if overlay.rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        with pytest.raises(Enough):
            overlay.all_reduce(np.ones(1 << 20))
        return True

    learners = Learners(2, body, shared_memory, look=look)
    with open(f"/proc/{learners.processes[1].pid}/stat") as stat:
        deadline = time.monotonic() + WAIT
        while stat.read().rpartition(")")[2].split()[0] != "T":
            assert time.monotonic() < deadline
            time.sleep(0.005)
            stat.seek(0)
    os.write(tell, b"x")
    os.waitid(os.P_PID, learners.processes[0].pid, os.WEXITED | os.WNOWAIT)
    learners.processes[1].kill()
    assert learners.results() == {0: True}


def end_at_once() -> None:
    raise Enough


@pytest.fixture
def door() -> Iterator[tuple[bytes, tuple[str, int], Future[dict[int, socket.socket]]]]:
    """Rank 0 of generation 7 waits for rank 1: the key, the address, and who is let in."""
    key, over = os.urandom(32), threading.Event()

    def look() -> None:
        if over.is_set():
            raise Enough

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        try:
            yield key, listener.getsockname(), pool.submit(admit, Place(0, 7, key), listener, [1], look)
        finally:
            over.set()


def test_strangers_are_kept_out(door, capfd: pytest.CaptureFixture[str]) -> None:
    """A scan of ports, noise, someone who says nothing, one with another key, of an earlier world, who has mistaken the
    door: none gets in, none keeps out who belongs there, and somebody can read of it."""
    key, address, admitted = door
    held = [socket.create_connection(address) for _ in range(5)]
    held[0].close()
    held[1].sendall(os.urandom(1 << 16))
    held[2].sendall(b"GET / HTTP/1.1\r\nContent-Length: 4294967296\r\n\r\n")
    held[3].sendall(b"\xff" * 20)
    another, earlier = Place(1, 7, os.urandom(32)), Place(1, 6, key)
    for place, to in [(another, 0), (earlier, 0), (Place(1, 7, key), 2), (Place(3, 7, key), 0)]:
        with pytest.raises(Enough):
            connect(place, to, address, end_at_once)
    with connect(Place(1, 7, key), 0, address, lambda: None) as friend, admitted.result(WAIT)[1] as let_in:
        friend.sendall(b"hello")
        let_in.settimeout(WAIT)
        assert let_in.recv(5) == b"hello"
    for stranger in held[1:]:
        stranger.settimeout(WAIT)
        with contextlib.suppress(ConnectionResetError):
            while stranger.recv(1 << 16):
                pass
        stranger.close()
    said = capfd.readouterr().err.splitlines()
    assert len(said) >= 5
    assert all(line.startswith("ffdl: someone who wanted to join the learners was turned away: ") for line in said)


def test_the_silent_keep_nobody_out(door, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than are listened to at once, who come again as soon as they are turned away for their silence."""
    monkeypatch.setattr(rendezvous, "HANDSHAKE_WITHIN", WAIT)
    key, address, admitted = door
    patience = time.monotonic() + WAIT / 2

    def look() -> None:
        assert time.monotonic() < patience, "nobody opens"

    with contextlib.ExitStack() as silent:
        for _ in range(2 * rendezvous.STRANGERS_MOST):
            silent.enter_context(socket.create_connection(address))
        with connect(Place(1, 7, key), 0, address, look), admitted.result(WAIT)[1]:
            pass


def test_who_proves_nothing_is_not_connected_to() -> None:
    """Another process may listen at a learner's address by now: no gradients for it."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        trying = pool.submit(connect, Place(1, 7, os.urandom(32)), 0, listener.getsockname(), end_at_once)
        with listener.accept()[0] as connection:
            connection.sendall(bytes(16))
            connection.settimeout(WAIT)
            while len(connection.recv(1 << 10)) == 0:
                pass
            connection.sendall(bytes(32))
            with pytest.raises(Enough):
                trying.result(WAIT)

"""What parameter servers and learners refuse of one another, and of strangers."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import threading
from typing import Any

import numpy as np
import pytest

from ffdl.learner import parameter_server
from ffdl.learner.errors import Mismatch, PeerLost
from ffdl.learner.exchange import HEAD, OPENS, SERVERS
from ffdl.learner.optimizers import SGD
from ffdl.learner.parameter_server import ParameterServer
from ffdl.learner.rendezvous import Place, connect
from tests.learner.conftest import WAIT, AgentEnd, Start
from tests.learner.parameter_server.servers import Begin


def test_learners_that_disagree_are_told_about_what(job: Begin) -> None:
    two = job(2, 1, "sync")
    first = two.learner(0, np.zeros(4))
    with pytest.raises(Mismatch, match="names and shapes of parameters"):
        two.learner(1, np.zeros((2, 2)))
    with pytest.raises(Mismatch, match=r"disagree about elements, names: 5, .* at another"):
        two.learner(1, np.zeros(5))
    with pytest.raises(Mismatch, match="disagree about optimizer"):
        two.learner(1, np.zeros(4), SGD(0.5))
    first.close()


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({}, "there are no parameters"),
        ({"a": np.zeros(1), "b": np.zeros(1, np.float32)}, "of one type, float16, float32 or float64, not of float32"),
        ({"a": np.zeros(3, np.int64)}, "not of int64"),
        ({"a": np.zeros((4, 4))[:, ::2]}, "a is to be changed in place"),
    ],
)
def test_parameters_that_cannot_be_are_refused(parameters: dict[str, np.ndarray], said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        ParameterServer(Place(0, 0, b""), [], parameters, SGD(1.0))


def test_gradients_of_something_else_are_refused() -> None:
    server = ParameterServer(Place(0, 0, b""), [], {"a": np.zeros(2), "b": np.zeros(1)}, SGD(1.0))
    with pytest.raises(ValueError, match="gradients are of a, parameters a, b"):
        server.step({"a": np.zeros(2)})
    with pytest.raises(ValueError, match=r"the gradient of b has shape \(3,\), not \(1,\)"):
        server.step({"a": np.zeros(2), "b": np.zeros(3)})


def test_who_waits_for_a_learner_that_has_left_is_told(job: Begin) -> None:
    """Not a hang: one that takes more steps than the others, or whose partner is gone."""
    two = job(2, 2, "sync")

    def learn(rank: int) -> str:
        server = two.learner(rank, np.zeros(9))
        server.step(np.zeros(9))
        if rank == 1:
            server.close()
            return ""
        with pytest.raises(PeerLost) as raised:
            server.step(np.zeros(9))
        return str(raised.value)

    assert two.all(learn)[0] == "learner 2 has left"


def test_a_server_that_dies_is_noticed(job: Begin) -> None:
    one = job(1, 2, "sync")
    server = one.learner(0, np.zeros(1000))
    one.processes[1].kill()
    one.processes[1].wait()
    with pytest.raises(PeerLost, match="parameter server 2"):
        server.step(np.ones(1000))


def test_strangers_get_nowhere(job: Begin) -> None:
    """A port scan, noise, a half-open connection, a learner's place without the key: no crash, no effect, a line."""
    one = job(1, 1, "sync")
    (address,) = one.addresses
    half_open = socket.create_connection(address)
    for noise in (b"", b"GET / HTTP/1.1\r\n\r\n", random.Random(1).randbytes(5000), b"\0" * 64, b"\xff" * 72):
        with contextlib.suppress(OSError), socket.create_connection(address) as stranger:
            stranger.sendall(noise)
    gave_up = threading.Timer(1.0, lambda: None)
    gave_up.start()

    def look() -> None:
        if not gave_up.is_alive():
            raise PeerLost("enough")

    with pytest.raises(PeerLost):
        connect(Place(0, 3, b"another key"), SERVERS, address, look)
    own = np.zeros(2)
    server = one.learner(0, own)
    server.step(np.ones(2))
    assert list(own) == [-1.0, -1.0]
    half_open.close()
    one.processes[0].kill()
    assert "someone who wanted to join the learners was turned away" in one.processes[0].communicate()[1]


@pytest.mark.parametrize(
    "said",
    [
        HEAD.pack(OPENS, 0xFFFFFFFF, 0, 0.0),  # a text of 4 GB
        HEAD.pack(OPENS, 3, 0, 0.0) + b"{}}",
        HEAD.pack(OPENS, 2, 0, 0.0) + b"{}",
        HEAD.pack(99, 0, 0, 0.0),
        HEAD.pack(3, 0, 0, 0.0),  # a gradient of what was not opened
    ],
    ids=["4 GB", "no JSON", "nothing", "unknown", "too early"],
)
def test_a_learner_that_says_what_it_should_not_is_shown_out(job: Begin, said: bytes) -> None:
    """Its own code can be wrong, too: that harms no other learner."""
    two = job(2, 1, "async")
    (address,) = two.addresses
    own = np.zeros(1)
    server = two.learner(0, own)
    with connect(two.place(1), SERVERS, address, lambda: None) as connection:
        connection.sendall(said)
        connection.settimeout(WAIT)
        answer = b""
        while got := connection.recv(4096):
            answer += got
    assert answer
    server.step(np.ones(1))
    assert list(own) == [-1.0]


def test_more_parameters_than_there_is_memory_for_are_refused(job: Begin) -> None:
    """Told to who asks, where the server would else end with a traceback and take the job along."""
    one = job(1, 1, "sync")
    about = {"elements": 1 << 39, "dtype": "float64", "sent_as": "float64", "mode": "sync"}
    text = json.dumps({**about, "optimizer": {"kind": "sgd", "lr": 0.1}}).encode()
    with connect(one.place(0), SERVERS, one.addresses[0], lambda: None) as connection:
        connection.sendall(HEAD.pack(OPENS, len(text), 0, 0.0) + text)
        connection.settimeout(WAIT)
        answer = b""
        while got := connection.recv(4096):
            answer += got
    assert answer[HEAD.size :].decode() == f"a server has no memory for {1 << 39} parameters"


WRONG = [
    ({"staleness": -1}, "staleness is a whole number of steps, 0 or more, not -1"),
    ({"staleness": "3"}, "staleness is a whole number of steps, 0 or more, not '3'"),
    ({"staleness": True}, "staleness is a whole number of steps, 0 or more, not True"),
    ({"elasticity": 5.0}, "elasticity is a number above 0 and up to 1 / learners = 0.5, not 5.0"),
    ({"elasticity": 0.51}, "elasticity is a number above 0 and up to 1 / learners = 0.5, not 0.51"),
    ({"elasticity": 0}, "elasticity is a number above 0 and up to 1 / learners = 0.5, not 0"),
    ({"elasticity": "a"}, "elasticity is a number above 0 and up to 1 / learners = 0.5, not 'a'"),
    ({"elasticity": float("nan")}, "elasticity is a number above 0 and up to 1 / learners = 0.5, not nan"),
]
IDS = [f"{name}={value}" for wrong, _ in WRONG for name, value in wrong.items()]


@pytest.mark.parametrize(("options", "said"), WRONG, ids=IDS)
def test_options_that_cannot_be_are_errors_before_anything_is_sent(options: dict[str, Any], said: str) -> None:
    """Said in the script's own words: not a step that hangs, nor a model that grows without bound."""
    with pytest.raises(ValueError, match=said):
        ParameterServer(Place(0, 0, b""), [("nowhere", 1)], np.zeros(1), SGD(1.0), "easgd", learners=2, **options)


def test_a_session_knows_how_many_learners_share_elasticity(agent: AgentEnd, start: Start) -> None:
    agent.world |= {"mode": "easgd", "servers": [["nowhere", 1]], "key": "00", "size": 2}
    script = """
import numpy as np
from ffdl import learner
from ffdl.learner.parameter_server import SGD

learner.run(lambda job: job.parameter_server(np.zeros(1), SGD(1.0), elasticity=0.9))
"""
    process = start(script, env={"FFDL_AGENT_SOCKET": str(agent.path)})
    assert process.wait(WAIT) == 1
    *_, last = process.stderr.read().splitlines()
    assert last.endswith("ValueError: elasticity is a number above 0 and up to 1 / learners = 0.5, not 0.9")


@pytest.mark.parametrize(("options", "said"), WRONG, ids=IDS)
@pytest.mark.parametrize("mode", ["async", "easgd"])
def test_servers_refuse_options_that_cannot_be(
    job: Begin, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], said: str, mode: str
) -> None:
    """What comes over a socket is anyone's; the server goes on, for whoever asks for what can be."""
    monkeypatch.setattr(parameter_server, "check", lambda *_: None)
    two = job(2, 1, mode)
    with pytest.raises(Mismatch, match=said):
        two.learner(0, np.zeros(1), **options)
    own = np.zeros(1)
    two.learner(0, own, staleness=0, elasticity=0.5).step(np.ones(1))
    assert list(own) == [-1.0 if mode == "async" else -0.5]


def test_optimizers_that_cannot_be_are_refused(job: Begin) -> None:
    class Odd(SGD):
        kind = "odd"

    with pytest.raises(Mismatch, match="there is no optimizer"):
        job(1, 1, "sync").learner(0, np.zeros(1), Odd(1.0))

"""The API client and what stands on it: a helper must hear of a halt whatever the API server and the network do."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ffdl.steps.kube import Kube, KubeError, patiently
from ffdl.steps.mirror import Mirror
from ffdl.steps.outbox import Outbox
from tests.steps.api_server import ApiServer, Handler, serve

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl for the server's certificate")
WAIT = 20.0  # seconds until a test gives up on a condition


def until(condition: Callable[[], Any], what: str = "") -> Any:
    deadline = time.monotonic() + WAIT
    while not (value := condition()):
        assert time.monotonic() < deadline, f"never came: {what or condition}"
        time.sleep(0.01)
    return value


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    with serve(tmp_path / "api") as running:
        yield running


@pytest.fixture
def kube(server: ApiServer) -> Iterator[Kube]:
    client = Kube("127.0.0.1", server.port, str(server.folder), timeout=2.0)
    yield client
    client.close()


def pod(name: str, value: str = "", **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "value": value}


class Held:
    """A Mirror of pods labelled job=j, and how often it said that something had changed."""

    def __init__(self, kube: Kube, stream: float = 1.0) -> None:
        self.rung = 0
        self.mirror = Mirror(kube, "pods", lambda found: str(found["value"]), self._ring, "job=j", stream=stream)
        self.mirror.start()

    def _ring(self) -> None:
        self.rung += 1

    def becomes(self, expected: dict[str, str]) -> None:
        until(lambda: self.mirror.items == expected, f"{expected}, is {self.mirror.items}")

    def close(self, kube: Kube) -> None:
        self.mirror.stop()
        kube.close()
        self.mirror.join(WAIT)
        assert not self.mirror.is_alive()


@pytest.fixture
def held(server: ApiServer, kube: Kube) -> Iterator[Held]:
    server.put("pods", pod("a", "1", job="j"))
    server.put("pods", pod("other", "1", job="k"))
    held = Held(kube)
    held.becomes({"a": "1"})
    yield held
    held.close(kube)


def refuse(status: int, **headers: str) -> Callable[[Handler], object]:
    return lambda handler: handler.error(status, "Refused", **headers)


# --- requests ---------------------------------------------------------------------------------------------------------


def test_objects_are_read_written_and_removed(server: ApiServer, kube: Kube) -> None:
    """What all of a helper's work on a cluster is made of."""
    kube.create("configmaps", {"metadata": {"name": "c", "annotations": {"a": "1"}}, "data": {"x": "1"}})
    patched = kube.patch("configmaps", "c", {"metadata": {"annotations": {"b": "2"}}, "data": {"x": None, "y": "é"}})
    assert patched["metadata"]["annotations"] == {"a": "1", "b": "2"}
    assert kube.get("configmaps", "c")["data"] == {"y": "é"}
    kube.delete("configmaps", "c", grace=0)
    assert '"gracePeriodSeconds": 0' in server.seen[-1][2]["body"]
    kube.delete("configmaps", "c")
    with pytest.raises(KubeError, match="404") as raised:
        kube.get("configmaps", "c")
    assert (raised.value.status, raised.value.passing) == (404, False)


def test_a_long_list_comes_in_pages(server: ApiServer, kube: Kube) -> None:
    """A thousand pods as one answer would be many times what a helper may take."""
    for number in range(120):
        server.put("pods", pod(f"p{number:03}", job="j"))
    assert len({found["metadata"]["name"] for found in kube.list("pods", "job=j")}) == 120
    assert server.count("list", "pods") == 3


def test_only_the_one_that_was_meant_is_deleted(server: ApiServer, kube: Kube) -> None:
    """A pod that has come back under the same name is not the one that did not end."""
    uid = server.put("pods", pod("a"))["metadata"]["uid"]
    kube.delete("pods", "a", uid="another")
    assert ("pods", "a") in server.objects
    kube.delete("pods", "a", uid=uid)
    assert ("pods", "a") not in server.objects


def test_a_conditional_patch_loses_against_another(server: ApiServer, kube: Kube) -> None:
    """Two helpers at once must not both take the same epoch."""
    version = server.put("configmaps", pod("c"))["metadata"]["resourceVersion"]
    kube.patch("configmaps", "c", {"metadata": {"resourceVersion": version}})
    with pytest.raises(KubeError) as raised:
        kube.patch("configmaps", "c", {"metadata": {"resourceVersion": version}})
    assert raised.value.status == 409


def test_a_rotated_token_is_used_at_once(server: ApiServer, kube: Kube) -> None:
    """The kubelet replaces it within the hour; a job may last for weeks."""
    server.put("pods", pod("a"))
    kube.get("pods", "a")
    server.token = "token-2"
    with pytest.raises(KubeError) as raised:
        kube.get("pods", "a")
    assert (raised.value.status, raised.value.passing) == (401, True)
    (server.folder / "token").write_text("token-2\n")
    assert kube.get("pods", "a")


def test_a_connection_that_was_closed_meanwhile_is_replaced(server: ApiServer, kube: Kube) -> None:
    """Servers and load balancers close what is idle; that is no failure."""
    server.put("pods", pod("a"))
    for _ in range(3):
        kube.get("pods", "a")
        server.cut()
    assert kube.get("pods", "a")


def test_a_server_that_says_nothing_is_given_up(server: ApiServer, tmp_path: Path) -> None:
    """A call without a bound would hold a helper for ever."""
    server.fail("get", "pods", lambda _: time.sleep(3.0))
    client = Kube("127.0.0.1", server.port, str(server.folder), timeout=0.3)
    began = time.monotonic()
    with pytest.raises(KubeError, match=r"can't be reached: .*timed out") as raised:
        client.get("pods", "a")
    assert raised.value.passing
    assert time.monotonic() - began < 2.0
    client.close()


def test_an_impostor_gets_no_token(server: ApiServer, tmp_path: Path) -> None:
    """Whoever does not hold the cluster's key is not spoken to."""
    with serve(tmp_path / "other") as other:
        shutil.copy(other.folder / "ca.crt", server.folder / "ca.crt")
        client = Kube("127.0.0.1", server.port, str(server.folder), timeout=2.0)
        with pytest.raises(KubeError, match="certificate"):
            client.get("pods", "a")
        client.close()
    assert server.seen == []


def test_what_fails_in_passing_is_tried_again(server: ApiServer, kube: Kube) -> None:
    """A busy API server says 429, one that restarts says nothing: neither is the end of a job."""
    server.put("pods", pod("a"))
    server.fail("get", "pods", refuse(429, Retry_After="1"))
    server.fail("get", "pods", refuse(503))
    server.fail("get", "pods", lambda handler: handler.connection.close())
    began = time.monotonic()
    assert patiently(lambda: kube.get("pods", "a"), WAIT)
    assert time.monotonic() - began >= 1.0, "the server asked for a second's pause"
    server.fail("get", "pods", refuse(403))
    with pytest.raises(KubeError, match="403"):
        patiently(lambda: kube.get("pods", "a"), WAIT)


# --- watching ---------------------------------------------------------------------------------------------------------


def test_changes_are_held_as_they_come(server: ApiServer, held: Held) -> None:
    """Only the job's own pods, and a word only when something has changed."""
    server.put("pods", pod("b", "1", job="j"))
    held.becomes({"a": "1", "b": "1"})
    server.put("pods", pod("a", "2", job="j"))
    held.becomes({"a": "2", "b": "1"})
    rung = held.rung
    server.put("pods", pod("other", "2", job="k"))
    server.put("pods", pod("a", "2", job="j"))  # a change that is none of ours
    server.remove("pods", "b")
    held.becomes({"a": "2"})
    assert held.rung == rung + 1


def test_streams_end_and_go_on_where_they_were(server: ApiServer, held: Held) -> None:
    """The server ends each stream after a while: nothing is listed again, and nothing is missed in between."""
    until(lambda: server.count("watch", "pods") > 3)
    server.put("pods", pod("b", "1", job="j"))
    held.becomes({"a": "1", "b": "1"})
    assert server.count("list", "pods") == 1


def test_changes_that_are_forgotten_are_listed(server: ApiServer, held: Held) -> None:
    """After a long silence the server knows only the present (410): what has gone meanwhile is gone here too."""
    server.stop()
    server.remove("pods", "a")
    server.put("pods", pod("c", "1", job="j"))
    server.forget()
    server.start()
    held.becomes({"c": "1"})
    assert server.count("list", "pods") == 2


def test_changes_forgotten_within_a_stream(server: ApiServer, kube: Kube) -> None:
    """The same said in the middle of a stream."""

    def gone(handler: Handler) -> None:
        handler.begin_stream()
        handler.say("ERROR", {"kind": "Status", "code": 410, "message": "too old resource version"})
        handler.wfile.write(b"0\r\n\r\n")

    server.fail("watch", "pods", gone)
    held = Held(kube)
    server.put("pods", pod("a", "1", job="j"))
    held.becomes({"a": "1"})
    until(lambda: server.count("list", "pods") == 2)
    held.close(kube)


def test_torn_streams_cost_nothing(server: ApiServer, kube: Kube) -> None:
    """A line that ends in the middle, one that is no JSON, a chunk that is none: the stream is begun again."""
    whole = b'{"type": "ADDED", "object": {"metadata": {"name": "x", "resourceVersion": "1"}, "value": "1"}}\n'

    def torn(handler: Handler, data: bytes, end: bytes) -> None:
        handler.begin_stream()
        handler.chunk(data)
        handler.wfile.write(end)
        handler.close_connection = True

    for data, end in ((whole[:40], b""), (whole[:40], b"0\r\n\r\n"), (b"nonsense\n", b""), (b"[1]\n", b"zzz\r\n")):
        server.fail("watch", "pods", lambda handler, data=data, end=end: torn(handler, data, end))  # type: ignore[misc]
    held = Held(kube)
    until(lambda: server.count("watch", "pods") > 4)
    server.put("pods", pod("a", "1", job="j"))
    held.becomes({"a": "1"})
    held.close(kube)


def test_a_stream_that_has_gone_silent_is_left(server: ApiServer, tmp_path: Path) -> None:
    """A connection that leads nowhere must not hide a halt: without a word within its time it is begun again."""
    kube = Kube("127.0.0.1", server.port, str(server.folder), timeout=0.5)
    server.put("pods", pod("a", "1", job="j"))

    def silent(handler: Handler) -> None:
        handler.begin_stream()
        time.sleep(5.0)

    server.fail("watch", "pods", silent)
    held = Held(kube, stream=1.0)
    held.becomes({"a": "1"})
    until(lambda: server.count("watch", "pods") == 1)
    began = time.monotonic()
    server.put("pods", pod("a", "2", job="j"))
    held.becomes({"a": "2"})
    assert time.monotonic() - began < 4.0
    held.close(kube)


def test_a_server_that_comes_back_is_found_again(server: ApiServer, held: Held) -> None:
    """The API server of a small cluster restarts now and then."""
    for value in ("2", "3"):
        server.stop()
        server.put("pods", pod("a", value, job="j"))
        until(lambda: held.mirror.failure)
        assert held.mirror.items, "what was known stays while nothing can be heard"
        server.start()
        held.becomes({"a": value})


def test_a_server_that_was_set_back_is_read_anew(server: ApiServer, held: Held) -> None:
    """Versions of a server restored from a backup begin lower: waiting for the old ones would last for ever."""
    for _ in range(6):
        server.fail("watch", "pods", refuse(504))
    server.cut()
    server.put("pods", pod("a", "2", job="j"))
    held.becomes({"a": "2"})
    assert server.count("list", "pods") == 2


def test_a_server_in_trouble_is_not_pestered(server: ApiServer, kube: Kube) -> None:
    """Hundreds of helpers that come back at once, without pause, would keep it down."""
    for _ in range(1000):
        server.fail("watch", "pods", refuse(500))
    held = Held(kube)
    time.sleep(2.0)
    assert server.count("watch", "pods") + server.count("list", "pods") < 12
    held.close(kube)


# --- writing ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def outbox() -> Iterator[Outbox]:
    box = Outbox(lambda: None, 0.1)
    box.start()
    yield box
    box.close()
    box.join(WAIT)


def test_what_is_to_be_written_is_written_in_the_end(server: ApiServer, kube: Kube, outbox: Outbox) -> None:
    """The reason why a job failed must not be lost to an API server that restarts just then."""
    server.put("workflows", pod("w"))
    server.stop()
    began = time.monotonic()
    outbox.put("note", lambda: kube.patch("workflows", "w", {"metadata": {"annotations": {"reason": "r"}}}))
    assert time.monotonic() - began < 2.0, "the helper does not wait for it"
    assert not outbox.flush(0.5)
    server.start()
    assert outbox.flush(WAIT)
    assert server.objects["workflows", "w"]["metadata"]["annotations"] == {"reason": "r"}


def test_one_that_can_not_be_done_holds_up_no_other(
    server: ApiServer, kube: Kube, outbox: Outbox, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is forbidden is said once and dropped; what fails in passing waits apart."""
    server.put("workflows", pod("w"))
    server.fail("delete", "pods", refuse(403))
    for _ in range(3):
        server.fail("patch", "configmaps", refuse(500))
    outbox.put("deletion of p", lambda: kube.delete("pods", "p"))
    outbox.put("report", lambda: kube.patch("configmaps", "c", {}))
    outbox.put("note", lambda: kube.patch("workflows", "w", {"metadata": {"annotations": {"a": "1"}}}))
    until(lambda: "annotations" in server.objects["workflows", "w"]["metadata"])
    assert not server.count("patch", "configmaps") > 2
    assert outbox.flush(WAIT)
    assert "not done: deletion of p: the API server says 403" in capsys.readouterr().err


def test_only_the_last_of_a_kind_is_written(outbox: Outbox) -> None:
    """Reports come every two seconds and are written every ten; the end waits for none of that."""
    written: list[int] = []
    for number in range(5):
        outbox.put("report", lambda number=number: written.append(number), delay=60.0)  # type: ignore[misc]
    assert outbox.flush(WAIT)
    assert written == [4]


def test_a_report_that_failed_keeps_its_turn(server: ApiServer, outbox: Outbox) -> None:
    """A later one must not send it back to the end of the ten seconds: `ffdl list` would be as late."""
    written: list[int] = []

    def fail() -> None:
        raise KubeError(503, "busy")

    outbox.put("report", fail)
    until(lambda: not outbox.flush(0.05))
    outbox.put("report", lambda: written.append(1), delay=60.0)
    until(lambda: written)


def test_the_chores_go_on_beside_it(server: ApiServer, kube: Kube) -> None:
    """They are asked for now and then, and a failure of one is not the last of them."""
    calls = threading.Event()
    count = 0

    def chore() -> None:
        nonlocal count
        count += 1
        if count > 3:
            calls.set()
        kube.get("pods", "none")

    box = Outbox(chore, 0.05)
    box.start()
    assert calls.wait(WAIT)
    box.close()
    box.join(WAIT)

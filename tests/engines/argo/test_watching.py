"""Following a job for days means outliving API servers, connections and histories. Nothing may be missed, or hang."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from ffdl.engines.argo import patience
from ffdl.engines.argo.access import CONFIG_MAPS, PODS, Api
from ffdl.engines.argo.watching import CHANGED, GONE, LISTED, Feed, Source
from ffdl.engines.base import EngineError
from tests.engines.argo.test_access import refuse
from tests.steps.api_server import ApiServer

WAIT = 20.0


@pytest.fixture
def feed(server: ApiServer, api: Api) -> Iterator[Feed]:
    """Of the pods labelled job=j, of which there is one, already told of."""
    put(server, "a", "1")
    feed = Feed(api, Source(PODS, labels="job=j"))
    change = feed.next(WAIT)
    assert change is not None
    assert (change.what, [pod["value"] for pod in change.objects]) == (LISTED, ["1"])
    yield feed
    feed.close()
    deadline = time.monotonic() + WAIT
    while any(thread.name.startswith("watch-") for thread in threading.enumerate()):
        assert time.monotonic() < deadline, "a thread is left"
        time.sleep(0.01)


def put(server: ApiServer, name: str, value: str, job: str = "j") -> None:
    server.put("pods", {"metadata": {"name": name, "labels": {"job": job}}, "value": value})


def seen(feed: Feed) -> tuple[str, list[str]]:
    change = feed.next(WAIT)
    assert change is not None, "nothing was heard"
    return change.what, [pod["value"] for pod in change.objects]


def test_changes_are_told_as_they_happen(server: ApiServer, feed: Feed) -> None:
    """What is on the screen is what the job does; other people's jobs are not sent at all."""
    put(server, "other", "9", job="k")
    put(server, "a", "2")
    assert seen(feed) == (CHANGED, ["2"])
    put(server, "b", "3")
    assert seen(feed) == (CHANGED, ["3"])
    server.remove("pods", "a")
    assert seen(feed) == (GONE, ["2"])
    assert feed.next(0.0) is None
    assert all(query["labelSelector"] == "job=j" for _, _, query in server.seen)


def test_a_broken_connection_is_gone_on_from(server: ApiServer, feed: Feed) -> None:
    """What happened meanwhile is told, what was told is not told again."""
    for value in ("2", "3", "4"):
        server.cut()
        put(server, "a", value)
        assert seen(feed) == (CHANGED, [value])
    assert server.count("list", "pods") == 1


def test_a_server_that_restarts_is_waited_for(server: ApiServer, feed: Feed) -> None:
    """A control plane that is upgraded must not end `ffdl wait` in somebody's script."""
    server.stop()
    time.sleep(0.6)  # some attempts to reach it
    put(server, "a", "2")
    server.start()
    assert seen(feed) == (CHANGED, ["2"])


def test_a_history_that_was_forgotten_is_listed_anew(server: ApiServer, feed: Feed) -> None:
    """After a compaction the changes are lost, but not what they led to."""
    server.stop()
    put(server, "a", "2")
    server.forget()
    server.start()
    assert seen(feed) == (LISTED, ["2"])
    put(server, "a", "3")
    assert seen(feed) == (CHANGED, ["3"])


def test_a_history_forgotten_while_watching_is_listed_anew(server: ApiServer, api: Api) -> None:
    """The same told inside a watch that was accepted, as API servers do when their cache was too short."""
    put(server, "a", "1")

    def expire(handler: object) -> None:
        handler.begin_stream()  # type: ignore[attr-defined]
        handler.say("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})  # type: ignore[attr-defined]
        handler.chunk(b"")  # type: ignore[attr-defined]

    server.fail("watch", "pods", expire)
    feed = Feed(api, Source(PODS, labels="job=j"))
    assert seen(feed) == (LISTED, ["1"])
    assert seen(feed) == (LISTED, ["1"])
    feed.close()


def test_a_busy_server_is_asked_later(server: ApiServer, feed: Feed) -> None:
    """429 and 5xx of a watch pass, too."""
    for status in (429, 500, 503):
        server.fail("watch", "pods", refuse(status))
    server.cut()
    put(server, "a", "2")
    assert seen(feed) == (CHANGED, ["2"])


def test_a_right_taken_away_ends_it_with_a_line(server: ApiServer, feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting could not bring it back, unless the server has only just started and does not know it yet."""
    monkeypatch.setattr(patience, "RIGHTS_PATIENCE", 0.5)
    deadline = time.monotonic() + WAIT
    while not server.count("watch", "pods"):  # what is cut is the watch, not a request on its way there
        assert time.monotonic() < deadline
        time.sleep(0.01)
    server.fail("watch", "pods", refuse(403, "Forbidden", "not yet"))
    server.cut()
    put(server, "a", "2")
    assert seen(feed) == (CHANGED, ["2"])
    for _ in range(20):
        server.fail("watch", "pods", refuse(403, "Forbidden", "no more"))
    server.cut()
    with pytest.raises(EngineError, match="no more"):
        feed.next(WAIT)


def test_a_cluster_that_stays_away_ends_it_with_a_line(
    server: ApiServer, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that waits for a cluster that was taken down would wait for ever."""
    monkeypatch.setattr(patience, "PATIENCE", 0.5)
    server.stop()
    with pytest.raises(EngineError, match="can't be reached: connection refused"):
        feed.next(WAIT)


def test_a_closed_feed_lets_go_at_once(server: ApiServer, api: Api) -> None:
    """A program that looks at many jobs, one after the other, must not collect threads and connections."""
    for _ in range(5):
        feed = Feed(api, Source(PODS, labels="job=j"), Source(CONFIG_MAPS, fields="metadata.name=c"))
        assert feed.next(WAIT) is not None
        assert feed.next(WAIT) is not None
        began = time.monotonic()
        feed.close()
        while any(thread.name.startswith("watch-") for thread in threading.enumerate()):
            assert time.monotonic() - began < 5
            time.sleep(0.01)

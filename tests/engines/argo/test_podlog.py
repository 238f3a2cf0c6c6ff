"""A pod's output, read in several goes: each line once, whatever breaks between them."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from ffdl.engines.argo import logs
from ffdl.engines.argo.access import Api
from ffdl.engines.argo.podlog import LogGone, PodLog
from ffdl.engines.argo.pods import Attempt
from ffdl.engines.base import LogLine, Refused, Selection
from ffdl.learner import contract
from tests.engines.argo.test_access import refuse
from tests.steps.api_server import ApiServer, Handler

ATTEMPT = Attempt("learner-1", 2, "p", "Running")


def stamp(seconds: float) -> str:
    return f"2026-01-01T00:{int(seconds) // 60:02}:{seconds % 60:012.9f}Z"


def writes(text: bytes, broken: bool = False) -> Callable[[Handler], None]:
    """The log as a kubelet sends it; `broken` leaves out the end of the answer."""

    def answer(handler: Handler) -> None:
        handler.begin_stream()
        for begin in range(0, len(text), 97):
            handler.chunk(text[begin : begin + 97])
        if broken:
            handler.close_connection = True
            handler.api.cut()
        else:
            handler.chunk(b"")

    return answer


def since(lines: list[tuple[float, str]], query: dict[str, str]) -> bytes:
    """What the API gives for `sinceTime`, which it knows to the second."""
    first = query.get("sinceTime", "")[:19]
    chosen = [f"{stamp(moment)} {text}\n" for moment, text in lines if stamp(moment)[:19] >= first]
    return "".join(chosen).encode()


def test_a_line_is_told_with_its_time_and_attempt(server: ApiServer, api: Api) -> None:
    """Who reads a log after a crash wants to know when, and of which attempt."""
    server.fail("get", "pods", writes(b"2026-01-01T00:00:01.5Z a  b\n2026-01-01T00:00:02Z \xff\nno time\n"))
    lines = list(PodLog(api, ATTEMPT).read())
    assert [(line.source, line.attempt, line.text) for line in lines] == [
        ("learner-1", 2, "a  b"),
        ("learner-1", 2, "\ufffd"),
        ("learner-1", 2, "no time"),
    ]
    assert [line.time for line in lines] == [1767225601.5, 1767225602.0, None]


def test_what_argo_says_of_itself_is_left_out(server: ApiServer, api: Api) -> None:
    """Users wonder about lines that they did not write; those they wrote stay, also beside one of Argo's."""
    at = b"2026-01-01T00:00:01Z "
    argo = b'time=2026-01-01T00:00:00.955Z level=INFO msg="waiting for \\"it\\"" argo=true signalPath=/x'
    ended = b'time=2026-01-01T00:00:00.955Z level=INFO msg="sub-process exited" error="exit status 3" argo=true'
    said = [argo, b"mine", b"level=INFO argo=true", b"Error: exit status 3", b"no end" + argo, ended]
    said += [b"Error: exit status 3"]
    server.fail("get", "pods", writes(b"".join(at + line + b"\n" for line in said)))
    lines = [line.text for line in PodLog(api, ATTEMPT).read()]
    assert lines == ["mine", "level=INFO argo=true", "Error: exit status 3", "no end"]


def test_what_the_kubelet_says_in_its_place_is_no_log(server: ApiServer, api: Api) -> None:
    """A pod that a finalizer keeps outlives its containers and what they wrote: that is looked for elsewhere."""
    for look in (lambda pod: list(pod.read()), lambda pod: pod.is_whole()):
        server.fail("get", "pods", writes(b"unable to retrieve container logs for containerd://e1e73b795b73"))
        with pytest.raises(LogGone):
            look(PodLog(api, ATTEMPT))
    said = b"2026-01-01T00:00:01Z unable to retrieve container logs for a friend\n"
    server.fail("get", "pods", writes(said))
    assert [line.text for line in PodLog(api, ATTEMPT).read()] == ["unable to retrieve container logs for a friend"]


def test_a_step_whose_output_is_gone_says_so(server: ApiServer, api: Api) -> None:
    """Nothing at all looks as if it had written nothing."""
    server.fail("get", "pods", writes(b"unable to retrieve container logs for containerd://e1e73b795b73"))
    pod = PodLog(api, Attempt("download", 1, "p", "Succeeded"))
    with pytest.raises(Refused, match="the pod of download is gone, and with it what it wrote"):
        list(logs._written([pod], Selection()))


def test_one_attempt_whose_output_is_gone_says_where_it_is(server: ApiServer, api: Api) -> None:
    """Its lines are kept, in a file with all attempts'; to ask for one of them must not print nothing."""
    server.fail("get", "pods", writes(b"unable to retrieve container logs for containerd://e1e73b795b73"))
    pod = PodLog(api, ATTEMPT)
    with pytest.raises(Refused, match=r"the pod of attempt 2 is gone; .* leave --attempt out"):
        list(logs._written([pod], Selection(attempt=2)))


def test_every_line_comes_once_over_broken_connections(server: ApiServer, api: Api) -> None:
    """A log that repeats or loses lines when an API server restarts can't be trusted. Equal lines are lines, too."""
    seed = random.randrange(2**32)
    print("seed", seed)
    dice = random.Random(seed)
    moment, lines = 0.0, []
    for _ in range(400):
        moment += dice.choice([0.0, 0.0, 0.001, 0.3, 1.0])
        lines.append((moment, dice.choice(["x", "y", "longer " * 20])))
    for number, (at, text) in enumerate(lines):
        if dice.random() < 0.05 and number:  # standard error overtakes standard output by a moment
            lines[number - 1], lines[number] = (at, text), lines[number - 1]
    log, got = PodLog(api, ATTEMPT), []
    written = 0
    while len(got) < len(lines):
        written = min(len(lines), written + dice.randrange(60))

        def answer(handler: Handler, written: int = written) -> None:
            text = since(lines[:written], server.seen[-1][2])
            broken = dice.random() < 0.5
            writes(text[: dice.randrange(len(text) + 1)] if broken and text else text, broken)(handler)

        server.fail("get", "pods", answer)
        before = len(got)
        for line in log.read(follow=dice.random() < 0.5):
            got.append(line.text)
        assert got == [text for _, text in lines[: len(got)]], (before, len(got))


def test_a_pod_that_is_gone_is_told_from_one_that_has_not_begun(server: ApiServer, api: Api) -> None:
    """The output of the one may be kept elsewhere, that of the other is still to come."""
    server.fail("get", "pods", refuse(404, "NotFound", 'pods "p" not found'))
    with pytest.raises(LogGone):
        list(PodLog(api, ATTEMPT).read())
    waits = 'container "main" in pod "p" is waiting to start: PodInitializing'
    server.fail("get", "pods", refuse(400, "BadRequest", waits))
    assert list(PodLog(api, ATTEMPT).read()) == []


def test_the_cluster_is_asked_for_no_more_than_is_wanted(server: ApiServer, api: Api) -> None:
    """The last lines of a large log must not bring all of it over the network."""
    server.fail("get", "pods", writes(b""))
    list(PodLog(api, ATTEMPT).read(since=1767225601.9, tail=10))
    query = server.seen[-1][2]
    assert query["sinceTime"].startswith("2026-01-01T00:00:01")
    assert 10 <= int(query["tailLines"]) < 50


def test_a_log_whose_beginning_is_lost_is_known(server: ApiServer, api: Api) -> None:
    """Of a long log nodes keep the last 10 MB; who reads it must get the whole from where it is kept."""
    said = 'time=2026-01-01T00:00:00.955Z level=INFO msg="{}" argo=true error=<nil>'
    argos = said.format("waiting for signals").encode()
    for text, whole in (
        (argos, True),
        (b"epoch 3000", False),
        (b"time=12 epoch=3000", False),
        (said.format("sub-process exited").encode(), False),
        (b"", True),
        (argos + b"\nepoch 1\n", True),
        (argos + f"\nffdl: {contract.EARLIER_POD}\nepoch 1\n".encode(), False),
    ):
        server.fail("get", "pods", writes(text))
        assert PodLog(api, ATTEMPT).is_whole() == whole, text


@pytest.mark.parametrize(
    ("known", "written", "new"),
    [
        ("", "abc", "abc"),
        ("abc", "abc", ""),
        ("abc", "abcd", "d"),
        ("xyabc", "abcd", "d"),
        ("abc", "vwxabcd", "d"),
        ("xyz", "abc", "abc"),
        ("aab", "aaaabc", "c"),
    ],
)
def test_a_kept_log_is_gone_on_with_where_it_ends(known: str, written: str, new: str) -> None:
    """An earlier attempt's lines come from a file, which has some of the present one's, too."""
    lines = [LogLine("learner-1", 1, None, text) for text in written]
    assert written[logs._known(list(known), lines) :] == new

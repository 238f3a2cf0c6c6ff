"""Stores: what is put comes back as it was under its own name, and errors are told in words that help."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ffdl.learner import contract
from ffdl.steps import storage
from ffdl.steps.fetch import Arrived, fetch_all
from ffdl.steps.folder_store import FolderObjects
from ffdl.steps.retrying import Halted, Patience, Stop
from ffdl.steps.storage import Entry, NoRanges, Objects, Source, SourceError, StoreError, Vanished
from ffdl.steps.transfer import Item, Memory, upload
from tests.steps import s3
from tests.steps.volume import ODD_NAMES

CREDENTIALS = {"user_name": s3.KEY, "password": s3.SECRET}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3.Server]:
    with s3.serve(tmp_path_factory.mktemp("s3")) as running:
        yield running


def bucket(server: s3.Server, name: str, endpoint: str = "", **credentials: str) -> Objects:
    store = contract.Store("s3", name, endpoint=endpoint or server.endpoint, region="us-standard")
    return storage.open_store(store, CREDENTIALS | credentials, "results")


@pytest.fixture(params=["folder", "s3"])
def objects(request: pytest.FixtureRequest, server: s3.Server, tmp_path: Path) -> Objects:
    if request.param == "folder":
        return FolderObjects(str(tmp_path / "store"), "b", create=True)
    name = f"bucket-{len(list(server.root.iterdir()))}"
    server.bucket(name)
    return bucket(server, name)


def put(objects: Objects, key: str, folder: Path, data: bytes) -> tuple[Entry, str]:
    (folder / "source").write_bytes(data)
    with Source(str(folder), "source") as source:
        return objects.put(key, source)


def fetched(objects: Objects, entry: Entry, folder: Path) -> bytes:
    with open(folder / "fetched", "w+b") as stream:
        objects.fetch(entry, stream.fileno(), 0, entry.size, lambda _: None)
        stream.seek(0)
        return stream.read()


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_round_trip(objects: Objects, tmp_path: Path, name: str) -> None:
    """A user's file names are the user's: what is stored under a name is listed, found and read under that name."""
    data = name.encode()
    entry, _ = put(objects, f"job/{name}", tmp_path, data)
    assert [found.key for found in objects.list("job/")] == [f"job/{name}"]
    assert objects.find(f"job/{name}") == entry
    assert list(objects.list("")) == [entry]
    assert fetched(objects, entry, tmp_path) == data
    assert objects.read(f"job/{name}") == data
    objects.delete(f"job/{name}")
    objects.delete(f"job/{name}")
    assert objects.find(f"job/{name}") is None


def test_names_that_no_object_can_have_are_written_with_escapes(server: s3.Server, tmp_path: Path) -> None:
    """A file called "loss\\nold" or with bytes of another encoding is stored all the same."""
    server.bucket("escapes")
    objects = bucket(server, "escapes")
    for name in ("loss\nold", "tab\there", os.fsdecode(b"latin-\xe9")):
        entry, _ = put(objects, objects.key(name), tmp_path, b"x")
        assert fetched(objects, entry, tmp_path) == b"x"
    assert {found.key for found in objects.list("")} == {"loss%0Aold", "tab%09here", "latin-%E9"}
    folder = FolderObjects(str(tmp_path / "store"), "b", create=True)
    put(folder, folder.key(os.fsdecode(b"latin-\xe9\n")), tmp_path, b"x")
    assert [found.key for found in folder.list("")] == [os.fsdecode(b"latin-\xe9\n")]


@pytest.mark.parametrize("size", [0, 1, (8 << 20) - 1, 8 << 20, (8 << 20) + 1, (20 << 20) + 17])
def test_sizes(objects: Objects, tmp_path: Path, size: int) -> None:
    """Empty files, files of exactly one part and of several arrive whole, and are then known to be unchanged."""
    data = random.Random(size).randbytes(size)
    entry, digest = put(objects, "a/file", tmp_path, data)
    assert (entry.size, digest) == (size, hashlib.md5(data).hexdigest())
    assert fetched(objects, entry, tmp_path) == data
    with Source(str(tmp_path), "source") as source:
        assert objects.same(entry, source) == digest
    (tmp_path / "source").write_bytes(data + b"more")
    with Source(str(tmp_path), "source") as source:
        assert objects.same(entry, source) is None


def test_replacing(objects: Objects, tmp_path: Path) -> None:
    """Stored again, an object is the new one, and its tag tells."""
    first, _ = put(objects, "a", tmp_path, b"old")
    second, _ = put(objects, "a", tmp_path, b"new")
    assert first.tag != second.tag
    assert objects.read("a") == b"new"
    objects.write("a", b"newer")
    assert objects.read("a") == b"newer"
    with pytest.raises(FileNotFoundError):
        objects.read("b")
    assert list(objects.list("nothing/")) == []


def test_a_folder_prefix_is_a_whole_name(objects: Objects, tmp_path: Path) -> None:
    """Listing step-1 does not show step-10: a clean-up of the one must not touch the other."""
    for key in ("step-1/a", "step-10/a", "step-1x"):
        put(objects, key, tmp_path, b"x")
    assert [found.key for found in objects.list("step-1/")] == ["step-1/a"]


def test_ranges(server: s3.Server, tmp_path: Path) -> None:
    """Parts of an object are fetched to their places; a server without partial answers is told apart."""
    server.bucket("ranges")
    data = random.Random(3).randbytes(3000)
    with s3.Proxy(server.port) as proxy:
        objects = bucket(server, "ranges", proxy.endpoint)
        entry, _ = put(objects, "a", tmp_path, data)
        with open(tmp_path / "part", "w+b") as stream:
            with pytest.raises(NoRanges):
                objects.fetch(entry, stream.fileno(), 1000, 2000, lambda _: None)
            proxy.ranges = True
            objects.fetch(entry, stream.fileno(), 1000, 2000, lambda _: None)
            stream.seek(0)
            assert stream.read() == bytes(1000) + data[1000:2000]
            put(objects, "a", tmp_path, data[::-1])
            with pytest.raises(StoreError, match="replaced"):
                objects.fetch(entry, stream.fileno(), 0, 1000, lambda _: None)


def test_tags_that_are_no_digests(tmp_path: Path) -> None:
    """Stores that encrypt have ETags that look like MD5 and are not: reading back proves what is stored there."""
    with s3.serve(tmp_path / "s3", "xxh128") as server:
        server.bucket("other")
        objects = bucket(server, "other")
        for size in (5, 9 << 20):
            entry, _ = put(objects, f"f{size}", tmp_path, bytes(size))
            assert entry.size == size
        stop = Stop()
        patience = Patience(20, stop.wait, print)
        with Arrived(str(tmp_path / "arrived")) as arrived:
            fetch_all(
                objects, list(objects.list("")), "", str(tmp_path / "here"), arrived, patience, stop, lambda _: None
            )
        assert (tmp_path / "here/f5").read_bytes() == bytes(5)
        assert (tmp_path / "here" / f"f{9 << 20}").read_bytes() == bytes(9 << 20)


class Forgetful(FolderObjects):
    """A store that loses, or cuts short, the first object it has taken."""

    def __init__(self, root: str, cut: bool) -> None:
        super().__init__(root, "b", create=True)
        self.taken, self.cut, self.always = 0, cut, False

    def put(self, key: str, source: Source) -> tuple[Entry, str]:
        result = super().put(key, source)
        self.taken += 1
        if self.taken == 1 or self.always:
            if self.cut:
                os.truncate(f"{self.root}/{key}", 1)
            else:
                self.delete(key)
        return result


@pytest.mark.parametrize("cut", [False, True])
def test_what_a_store_lost_is_put_again(tmp_path: Path, cut: bool) -> None:
    """A store's word is not taken for it: what is not listed as it was stored is stored again, or the step is red."""
    (tmp_path / "a").write_bytes(b"aaa")
    (tmp_path / "b").write_bytes(b"bbb")
    items = [Item(f"job/{name}", str(tmp_path), name) for name in "ab"]
    objects, stop = Forgetful(str(tmp_path / "store"), cut), Stop()
    patience = Patience(5, stop.wait, print)
    done = upload(objects, items, "job/", Memory(str(tmp_path / "memory")), patience, stop)
    assert set(done.stored) == {"job/a", "job/b"}
    assert (objects.read("job/a"), objects.read("job/b")) == (b"aaa", b"bbb")
    objects.always = True
    (tmp_path / "a").write_bytes(b"other")
    with pytest.raises(StoreError, match="not there as it was stored"):
        upload(objects, items, "job/", Memory(str(tmp_path / "memory")), patience, stop)


def test_a_file_that_shrinks_is_no_object(objects: Objects, tmp_path: Path) -> None:
    """A file cut short while it is read leaves nothing under its key, however big."""
    for size in (100, 20 << 20):
        (tmp_path / "source").write_bytes(bytes(size))
        with Source(str(tmp_path), "source") as source:
            os.truncate(tmp_path / "source", size // 2)
            with pytest.raises(SourceError, match="shorter"):
                objects.put("a", source)
        assert objects.find("a") is None


def test_links_and_pipes_are_no_sources(tmp_path: Path) -> None:
    """A link to a secret, or a pipe that never ends, is not opened."""
    (tmp_path / "secret").write_text("s")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "folder/pipe")
    for name in ("link", "pipe", "missing", "../secret"):
        with pytest.raises(Vanished):
            Source(str(tmp_path / "folder"), name)


def test_a_folder_turned_into_a_link_is_no_folder(tmp_path: Path) -> None:
    """Learners can replace /job/checkpoints itself by a link to what they may not read."""
    (tmp_path / "job").mkdir()
    (tmp_path / "secret").mkdir()
    (tmp_path / "job/checkpoints").symlink_to(tmp_path / "secret")
    assert storage.settled(str(tmp_path / "job/checkpoints"), str(tmp_path / "job")) is None
    (tmp_path / "job/logs/x").mkdir(parents=True)
    (tmp_path / "job/logs/x/file").write_text("f")
    place = storage.settled(str(tmp_path / "job/logs/x"), str(tmp_path / "job"))
    assert place is not None
    (tmp_path / "job/logs").rename(tmp_path / "job/elsewhere")
    (tmp_path / "job/logs").symlink_to(tmp_path / "secret")
    with Source(place, "file") as source:
        assert b"".join(source.pieces()) == b"f"


def test_a_read_only_or_missing_folder_is_said(tmp_path: Path) -> None:
    """A host folder that nobody made is named, not made; a file in the way is named."""
    objects = FolderObjects(str(tmp_path / "absent"), "b")
    with pytest.raises(StoreError, match="not there") as caught:
        list(objects.list(""))
    assert caught.value.permanent
    with pytest.raises(StoreError, match="not there"):
        objects.write("a", b"x")
    made = FolderObjects(str(tmp_path / "store"), "b", create=True)
    made.write("a", b"x")
    with pytest.raises(SourceError, match="name of a folder"):
        made.write("a/b", b"x")
    with pytest.raises(SourceError):
        made.write("../x", b"x")


def faults(server: s3.Server) -> dict[str, tuple[Objects, str, bool]]:
    store = contract.Store("s3", "faults", endpoint="http://127.0.0.1:1")
    return {
        "user": (bucket(server, "faults", user_name="nobody"), "Data store authentication information", True),
        "password": (
            bucket(server, "faults", password="wrong-pass"),
            "Data store authentication information for id",
            True,
        ),
        "bucket": (bucket(server, "no-such-bucket"), "Data store bucket 'no-such-bucket'", True),
        "down": (storage.open_store(store, CREDENTIALS, "data"), "no connection", False),
    }


@pytest.mark.parametrize("name", ["user", "password", "bucket", "down"])
def test_errors_are_one_line_without_secrets(server: s3.Server, name: str) -> None:
    """What is wrong with a store is said in a line, whether it may pass is known, and nothing secret is in it."""
    server.bucket("faults")
    objects, words, permanent = faults(server)[name]
    with pytest.raises(StoreError) as caught:
        list(objects.list("x/"))
    text = str(caught.value)
    assert words in text
    assert caught.value.permanent == permanent
    assert "\n" not in text
    assert s3.SECRET not in text
    assert "wrong-pass" not in text


def test_ffdls_sentences(server: s3.Server) -> None:
    """Who knows FfDL's errors finds them again, with the id and bucket of the manifest."""
    import obstore
    from obstore.store import S3Store

    def failure(name: str, key: str, port: int) -> Exception:
        config = {"endpoint": f"http://127.0.0.1:{port}", "access_key_id": key, "secret_access_key": s3.SECRET}
        store = S3Store(name, config=config, client_options={"allow_http": True}, retry_config={"max_retries": 0})  # type: ignore[arg-type]
        with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it is
            list(obstore.list(store))
        return caught.value

    server.bucket("faults")
    wrong_key = storage.sentence(failure("faults", "nobody", server.port), "cos", "faults")
    assert wrong_key == "Data store authentication information for id 'cos' incorrect or there is a connection problem"
    assert storage.sentence(failure("faults", s3.KEY, 1), "cos", "faults") == wrong_key
    assert storage.sentence(failure("absent", s3.KEY, server.port), "cos", "absent") == (
        "Data store bucket 'absent' for data store id 'cos' incorrect, there may be a connection problem or "
        "credentials do not allow access to the bucket"
    )


def test_a_session_token_of_someone_elses_is_not_sent(server: s3.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own AWS_… variables do not get mixed into the credentials a manifest gives."""
    server.bucket("own")
    for name, value in {"AWS_SESSION_TOKEN": "x", "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1"}.items():
        monkeypatch.setenv(name, value)
    assert list(bucket(server, "own").list("")) == []


def test_without_credentials_the_environment_is_asked(server: s3.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod with a role of its own needs no credentials in the manifest."""
    server.bucket("own")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.SECRET)
    store = contract.Store("s3", "own", endpoint=server.endpoint)
    assert list(storage.open_store(store, {}, "data").list("")) == []


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


def failing(times: int, permanent: bool = False) -> Callable[[], int]:
    calls = []

    def action() -> int:
        calls.append(1)
        if len(calls) <= times:
            raise StoreError("down", permanent)
        return len(calls)

    return action


def test_patience_is_bounded_and_said() -> None:
    """A store that is down is tried again with growing pauses, as long as agreed, without flooding a log."""
    clock = Clock()
    lines: list[str] = []
    patience = Patience(300, clock.wait, lines.append, clock)
    assert patience.run(failing(10)) == 11
    clock.now = 10_000  # waiting for something else does not use it up
    with pytest.raises(StoreError):
        patience.run(failing(10**9))
    assert 300 <= clock.now - 10_000 <= 301
    assert 5 < len(lines) < 40


def test_what_is_permanent_is_not_waited_for() -> None:
    """A wrong password fails in seconds, not minutes."""
    clock = Clock()
    with pytest.raises(StoreError):
        Patience(300, clock.wait, lambda _: None, clock).run(failing(10**9, permanent=True))
    assert clock.now < 2


def test_a_halt_ends_a_pause(tmp_path: Path) -> None:
    """A halt is heard while a store is waited for."""
    stop = Stop(str(tmp_path / "halted"))
    stop.check()
    (tmp_path / "halted").touch()
    with pytest.raises(Halted):
        Patience(300, stop.wait, lambda _: None).run(failing(10**9))

"""Objects of a store into a folder, so that a kill at any byte costs only what was under way."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from .retrying import Patience, Stop
from .storage import CHUNK, PART, Entry, NoRanges, Objects, StoreError, printable
from .transfer import run_all

PARTS_AT_ONCE = 4
STAGING = ".ffdl-download"  # in the target folder, while files arrive: a rename may not cross mounts
_MD5 = re.compile(r"[0-9a-f]{32}")


class Arrived:
    """Which objects are in the folder already: a file with a line for each (key, size, tag, mtime of the file)."""

    def __init__(self, name: str) -> None:
        self._name, self._lock = name, threading.Lock()
        self._known: dict[str, tuple[int, str, int]] = {}
        with contextlib.suppress(FileNotFoundError), open(name, "rb") as stream:
            for line in stream:
                with contextlib.suppress(ValueError, TypeError):  # the last line of a killed attempt
                    key, size, tag, mtime_ns = json.loads(line)
                    self._known[key] = (size, tag, mtime_ns)
        os.makedirs(os.path.dirname(name), exist_ok=True)
        self._stream = open(name, "ab", buffering=0)  # noqa: SIM115 - closed by __exit__
        if self._stream.tell():
            self._stream.write(b"\n")

    def has(self, entry: Entry, target: str) -> bool:
        try:
            status = os.stat(target, follow_symlinks=False)
        except OSError:
            return False
        return status.st_size == entry.size and self._known.get(entry.key) == (
            entry.size,
            entry.tag,
            status.st_mtime_ns,
        )

    def note(self, entry: Entry, mtime_ns: int) -> None:
        line = json.dumps([entry.key, entry.size, entry.tag, mtime_ns]).encode("ascii") + b"\n"
        with self._lock:
            self._stream.write(line)

    def __enter__(self) -> Arrived:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()


def fetch_all(
    objects: Objects,
    entries: Iterable[Entry],
    strip: str,
    folder: str,
    arrived: Arrived,
    patience: Patience,
    stop: Stop,
    advance: Callable[[int], None],
) -> int:
    """Brings the objects to `folder`, `strip` taken from the front of their keys. Returns how many were fetched.

    `advance` hears of bytes; of those that are there already too. Raises StoreError, Halted.
    """
    staging = f"{folder}/{STAGING}"
    small: list[tuple[Entry, str]] = []
    big: list[tuple[Entry, str]] = []
    for entry in entries:
        target = f"{folder}/{_beneath(entry.key.removeprefix(strip))}"
        if entry.size == 0 and entry.key.endswith("/"):
            _make_folder(target)
        elif arrived.has(entry, target):
            advance(entry.size)
        else:
            (small if entry.size <= 2 * PART else big).append((entry, target))
    if not small and not big:
        shutil.rmtree(staging, ignore_errors=True)
        return 0
    _make_folder(staging)

    def fetch_small(entry: Entry, target: str) -> None:
        stop.check()
        part, checked = f"{staging}/{_part_name(entry)}", _Check(objects, entry)

        def attempt() -> None:
            with _opened(part) as descriptor:
                _get(objects, entry, descriptor, 0, entry.size, lambda _: stop.check())
                checked.verify(descriptor)

        patience.run(attempt)
        _arrive(part, target, entry, arrived)
        advance(entry.size)

    for _ in run_all([partial(fetch_small, entry, target) for entry, target in small], stop):
        pass
    for entry, target in big:
        _fetch_big(objects, entry, f"{staging}/{_part_name(entry)}", patience, stop, advance)
        _arrive(f"{staging}/{_part_name(entry)}", target, entry, arrived)
    shutil.rmtree(staging, ignore_errors=True)
    sync(folder)
    return len(small) + len(big)


def sync(folder: str) -> None:
    """Makes what was written on the folder's file system durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        ctypes.CDLL(None).syncfs(descriptor)
    except AttributeError:
        os.sync()
    finally:
        os.close(descriptor)


def _fetch_big(
    objects: Objects, entry: Entry, part: str, patience: Patience, stop: Stop, advance: Callable[[int], None]
) -> None:
    """Fetches pieces side by side; beside the part lies a file with a line for each piece that is durable in it."""
    notes, checked = part + ".done", _Check(objects, entry)

    def attempt() -> None:
        done = _pieces_done(notes) if os.path.exists(part) else set()
        with _opened(notes, os.O_APPEND) as descriptor:
            os.write(descriptor, b"\n")  # ends the half line of a killed attempt
        for start in done:
            advance(min(PART, entry.size - start))
        _fetch_pieces(objects, entry, part, done, patience, stop, advance)
        try:
            with _opened(part) as descriptor:
                checked.verify(descriptor)
        except StoreError:
            os.unlink(notes)
            raise

    patience.run(attempt)


def _fetch_pieces(
    objects: Objects,
    entry: Entry,
    part: str,
    done: set[int],
    patience: Patience,
    stop: Stop,
    advance: Callable[[int], None],
) -> None:
    def get(start: int, end: int) -> None:
        # A descriptor of its own: one that stands still is left behind when another has failed.
        with _opened(part) as descriptor:
            patience.run(lambda: _get(objects, entry, descriptor, start, end, lambda _: stop.check()))
            os.fdatasync(descriptor)

    def piece(start: int) -> None:
        end = min(start + PART, entry.size)
        stop.check()
        get(start, end)
        with _opened(part + ".done", os.O_APPEND) as descriptor:
            os.write(descriptor, b"%d\n" % start)
        advance(end - start)

    try:
        missing = [partial(piece, start) for start in range(0, entry.size, PART) if start not in done]
        for _ in run_all(missing, stop, PARTS_AT_ONCE):
            pass
    except NoRanges:
        get(0, entry.size)
        advance(entry.size)


def _pieces_done(name: str) -> set[int]:
    try:
        with open(name, "rb") as stream:
            lines = stream.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return set()
    return {int(line) for line in lines if line.isdigit() and int(line) % PART == 0}


def _get(objects: Objects, entry: Entry, descriptor: int, begin: int, end: int, advance: Callable[[int], None]) -> None:
    try:
        objects.fetch(entry, descriptor, begin, end, advance)
    except FileNotFoundError:
        raise StoreError(f"{objects.where}: {printable(entry.key)} is gone", permanent=True) from None


class _Check:
    """Whether an object has arrived whole."""

    def __init__(self, objects: Objects, entry: Entry) -> None:
        self._objects, self._entry, self._before = objects, entry, ""

    def verify(self, descriptor: int) -> None:
        """Raises StoreError. Of a tag that is no digest after all (encrypted objects) two equal arrivals are proof."""
        entry = self._entry
        os.ftruncate(descriptor, entry.size)
        if not _MD5.fullmatch(entry.tag):
            return  # the tag of an object that came in parts, or of a folder's file
        digest, position = hashlib.md5(usedforsecurity=False), 0
        while piece := os.pread(descriptor, CHUNK, position):
            digest.update(piece)
            position += len(piece)
        if digest.hexdigest() not in (entry.tag, self._before):
            self._before = digest.hexdigest()
            raise StoreError(f"{self._objects.where}: {printable(entry.key)} has not arrived whole")


def _arrive(part: str, target: str, entry: Entry, arrived: Arrived) -> None:
    _make_folder(os.path.dirname(target))
    try:
        os.rename(part, target)
    except OSError as error:
        raise StoreError(f"{printable(target)} can't be written: {error.strerror}", permanent=True) from None
    arrived.note(entry, os.stat(target, follow_symlinks=False).st_mtime_ns)


def _beneath(name: str) -> str:
    parts = name.rstrip("/").split("/")
    if not name or "\0" in name or any(part in ("", ".", "..", STAGING) for part in parts):
        raise StoreError(f"the object {printable(name)!r} can't be a file: rename it in the store", permanent=True)
    if any(len(os.fsencode(part)) > 255 for part in parts):
        raise StoreError(f"the object {printable(name)!r} can't be a file: its name is too long", permanent=True)
    return "/".join(parts)


def _make_folder(folder: str) -> None:
    try:
        os.makedirs(folder, exist_ok=True)
        with contextlib.suppress(OSError):
            os.chmod(folder, 0o777 | os.stat(folder).st_mode & 0o7000)
    except OSError as error:
        gone = isinstance(error, (FileExistsError, NotADirectoryError))
        raise StoreError(f"the folder {printable(folder)} can't be made: {error.strerror}", permanent=gone) from None


@contextlib.contextmanager
def _opened(part: str, flags: int = 0) -> Iterator[int]:
    try:
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | flags, 0o666)
        with contextlib.suppress(OSError):
            os.fchmod(descriptor, 0o666)
    except OSError as error:
        raise StoreError(f"the job's volume can't be written: {error.strerror}") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _part_name(entry: Entry) -> str:
    about = f"{entry.key}\0{entry.size}\0{entry.tag}".encode("utf-8", "surrogateescape")
    return hashlib.sha256(about).hexdigest()[:32]

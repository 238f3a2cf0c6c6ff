"""Objects in a folder: each a file that appears whole and durable by a rename. Any file name is a key, as it is."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator

from .storage import CHUNK, Entry, Source, SourceError, StoreError, printable, to_disk

TEMPORARY = ".ffdl-put-"  # what a crash leaves of an object; never listed
ABANDONED = 3600.0  # seconds after which it is cleared away


class FolderObjects:
    """The objects beneath `root`. `create`: the folder is made when the first object comes."""

    def __init__(self, root: str, bucket: str, create: bool = False) -> None:
        self.root, self.where, self._create = root, f"store {printable(bucket)!r}", create

    def key(self, name: str) -> str:
        return name

    def list(self, folder: str) -> Iterator[Entry]:
        self._present()
        start = self._path(folder.rstrip("/")) if folder else self.root
        waiting = [start]
        while waiting:
            place = waiting.pop()
            try:
                with os.scandir(place) as entries:
                    found = sorted(entries, key=lambda entry: entry.name)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise self._error(error, "list") from None
            for entry in found:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                    continue
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat()
                    if not entry.name.startswith(TEMPORARY):
                        yield self._entry(os.path.relpath(entry.path, self.root), status)
                    elif time.time() - status.st_ctime > ABANDONED:
                        os.unlink(entry.path)

    def find(self, key: str) -> Entry | None:
        self._present()
        try:
            return self._entry(key, os.stat(self._path(key)))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._error(error, key) from None

    def read(self, key: str) -> bytes:
        self._present()
        try:
            with open(self._path(key), "rb") as stream:
                return stream.read()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise FileNotFoundError(key) from None
        except OSError as error:
            raise self._error(error, key) from None

    def fetch(self, entry: Entry, descriptor: int, begin: int, end: int, advance: Callable[[int], None]) -> None:
        try:
            with open(self._path(entry.key), "rb", buffering=0) as stream:
                while begin < end:
                    piece = os.pread(stream.fileno(), min(CHUNK, end - begin), begin)
                    if not piece:
                        raise StoreError(f"{self.where}: {printable(entry.key)} became shorter while it was read")
                    to_disk(descriptor, piece, begin)
                    begin += len(piece)
                    advance(len(piece))
        except FileNotFoundError:
            raise FileNotFoundError(entry.key) from None
        except OSError as error:
            raise self._error(error, entry.key) from None

    def put(self, key: str, source: Source) -> tuple[Entry, str]:
        digest = hashlib.md5(usedforsecurity=False)

        def pieces() -> Iterator[bytes]:
            for piece in source.pieces():
                digest.update(piece)
                yield piece

        self._store(key, pieces(), 0o755 if source.executable else 0o644, source.mtime_ns)
        entry = self.find(key)
        if entry is None or entry.size != source.size:
            raise StoreError(f"{self.where}: {printable(key)} has not arrived whole")
        return entry, digest.hexdigest()

    def same(self, entry: Entry, source: Source) -> str | None:
        if (entry.size, entry.tag) != (source.size, str(source.mtime_ns)):
            return None
        digest = hashlib.md5(usedforsecurity=False)
        for piece in source.pieces():
            digest.update(piece)
        return digest.hexdigest()

    def write(self, key: str, data: bytes) -> None:
        self._store(key, iter((data,)), 0o644, None)
        if self.read(key) != data:
            raise StoreError(f"{self.where}: {printable(key)} has not arrived whole")

    def delete(self, key: str) -> None:
        target = self._path(key)
        try:
            os.unlink(target)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise self._error(error, key) from None
        with contextlib.suppress(OSError):  # folders are no objects: an empty one goes with its last file
            while (target := os.path.dirname(target)) != self.root:
                os.rmdir(target)

    def _store(self, key: str, pieces: Iterator[bytes], mode: int, mtime_ns: int | None) -> None:
        target = self._path(key)
        temporary = f"{os.path.dirname(target)}/{TEMPORARY}{os.getpid()}-{threading.get_ident()}"
        try:
            if not self._create:
                self._present()
            os.makedirs(os.path.dirname(target), exist_ok=True)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
        except (FileExistsError, NotADirectoryError):
            raise SourceError(f"{printable(key)}: a file of the store has the name of a folder above it") from None
        except OSError as error:
            raise self._error(error, key) from None
        try:
            with os.fdopen(descriptor, "wb", buffering=0) as stream:
                for piece in pieces:
                    view = memoryview(piece)
                    while view:
                        view = view[stream.write(view) :]
                os.fchmod(descriptor, mode)
                if mtime_ns is not None:
                    os.utime(descriptor, ns=(mtime_ns, mtime_ns))
                os.fsync(descriptor)
            os.rename(temporary, target)
            folder = os.open(os.path.dirname(target), os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except IsADirectoryError:
            raise SourceError(f"{printable(key)}: the store has a folder of this name") from None
        except OSError as error:
            raise self._error(error, key) from None
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary)

    def _present(self) -> None:
        if not self._create and not os.path.isdir(self.root):
            raise StoreError(f"{self.where}: its folder is not there ({self.root})", permanent=True)

    def _path(self, key: str) -> str:
        if not key or "\0" in key or any(part in ("", ".", "..") for part in key.split("/")):
            raise SourceError(f"{printable(key)!r} is no name of an object")
        return f"{self.root}/{key}"

    def _error(self, error: OSError, key: str) -> StoreError:
        return StoreError(f"{self.where}: {printable(key)}: {error.strerror or type(error).__name__}")

    @staticmethod
    def _entry(key: str, status: os.stat_result) -> Entry:
        return Entry(key, status.st_size, str(status.st_mtime_ns))

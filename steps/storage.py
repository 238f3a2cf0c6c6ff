"""Where a job's bytes come from and go to: one interface, `Objects`, over buckets and folders, and what errors mean."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..learner import contract
from . import safe_files

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

RETRY_ENV = "FFDL_RETRY_SECONDS"  # how long a store that fails is tried again, in seconds
CHUNK = 1 << 20  # bytes read at once
PART = 8 << 20  # bytes
SINGLE = 2 << 20  # bytes: what is bigger goes in parts, a few of which are held in memory


class StoreError(Exception):
    """What a store did not do, in one line. `permanent`: trying again won't change it."""

    def __init__(self, message: str, permanent: bool = False) -> None:
        super().__init__(message)
        self.permanent = permanent


class SourceError(Exception):
    """A file that can't be read, has changed under our hands or can't have this name: no fault of the store."""


class Vanished(SourceError):  # noqa: N818
    """The file is gone, or is no longer a regular file."""


@dataclass(frozen=True)
class Entry:
    """An object: `tag` changes with its content (an ETag, or a file's mtime in nanoseconds)."""

    key: str
    size: int
    tag: str


class Source:
    """A regular file beneath `root`, opened without following a link, and its first `size` bytes.

    Raises Vanished where there is no such file any more, SourceError where it can't be read.
    """

    def __init__(self, root: str, relative: str) -> None:
        try:
            root_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                self.descriptor = safe_files.open_beneath(root_fd, relative)
            finally:
                os.close(root_fd)
        except OSError as error:
            gone = error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL)
            raise (Vanished if gone else SourceError)(f"{printable(relative)}: {error.strerror}") from None
        status = os.fstat(self.descriptor)
        self.name, self.size, self.mtime_ns = relative, status.st_size, status.st_mtime_ns
        self.executable = bool(status.st_mode & stat.S_IXUSR)

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    def pieces(self, size: int = CHUNK) -> Iterator[bytes]:
        """The first `self.size` bytes; more may have been written since, fewer is a SourceError."""
        position = 0
        while position < self.size:
            try:
                piece = os.pread(self.descriptor, min(size, self.size - position), position)
            except OSError as error:
                raise SourceError(f"{printable(self.name)}: {error.strerror}") from None
            if not piece:
                raise SourceError(f"{printable(self.name)}: became shorter while it was read")
            position += len(piece)
            yield piece


def settled(folder: str, mount: str) -> str | None:
    """A path for `folder`, beneath the trusted `mount`, that learners can't turn elsewhere; None if it is no folder.

    They can write to the folders above it, so it is opened name by name, once, and called by its descriptor then.
    """
    held = -1
    try:
        held = os.open(mount, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for part in filter(None, folder.removeprefix(mount).split("/")):
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=held)
            os.close(held)
            held = below
    except OSError:
        if held >= 0:
            os.close(held)
        return None
    return f"/proc/self/fd/{held}"


class Objects(Protocol):
    """A place of objects. Every method raises StoreError; none leaves a part of an object under its key."""

    where: str  # for people

    def key(self, name: str) -> str:
        """The key under which a file of this name is stored: `name`, unless the store can't have such keys."""

    def list(self, folder: str) -> Iterator[Entry]:
        """What lies beneath `folder` ("" is everything). Its end is a slash, or it is empty."""

    def find(self, key: str) -> Entry | None: ...

    def read(self, key: str) -> bytes:
        """A small object. Raises FileNotFoundError."""

    def fetch(self, entry: Entry, descriptor: int, begin: int, end: int, advance: Callable[[int], None]) -> None:
        """Writes bytes begin..end into the file at the same places. Raises NoRanges, FileNotFoundError."""

    def put(self, key: str, source: Source) -> tuple[Entry, str]:
        """Stores and verifies a file. Returns the object and the hexadecimal MD5 of what was read."""

    def same(self, entry: Entry, source: Source) -> str | None:
        """The MD5 of the file if the object certainly has its content, else None."""

    def write(self, key: str, data: bytes) -> None:
        """Stores a small object and verifies it."""

    def delete(self, key: str) -> None:
        """Removes an object; a missing one is fine."""


class NoRanges(Exception):  # noqa: N818
    """This store hands out whole objects only."""


def open_store(store: contract.Store, credentials: Mapping[str, str], role: str) -> Objects:
    """The store behind a job's `data` or `results` (`role`). Nothing is contacted yet."""
    if store.kind == "s3":
        from .s3_store import S3Objects  # Rust inside: 5 MiB that a job without S3 need not hold

        return S3Objects(store, credentials, retry_seconds(60.0))
    from .folder_store import FolderObjects

    if store.kind == "host":
        place = contract.HOST_DATA_DIR if role == "data" else contract.HOST_RESULTS_DIR
        return FolderObjects(contract.path(place), store.bucket)
    if store.kind == "claim":
        return FolderObjects(f"{contract.path(contract.STORE_DIR)}/{store.bucket}", store.bucket, create=True)
    raise StoreError(f"data store of unknown kind {store.kind!r}", permanent=True)


def credentials() -> dict[str, str]:
    """What the job's Secret holds of the data store's credentials; empty where it holds none."""
    name = contract.path(f"{contract.STORE_SECRET_DIR}/{contract.STORE_CREDENTIALS_FILE}")
    try:
        with open(name, encoding="utf-8") as stream:
            values = json.load(stream)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        raise StoreError(f"{name} can't be read: not the JSON object of store credentials", permanent=True) from None
    return {key: value for key, value in values.items() if isinstance(value, str)}


def retry_seconds(default: float) -> float:
    try:
        return max(0.0, float(os.environ[RETRY_ENV]))
    except (KeyError, ValueError):
        return default


def to_disk(descriptor: int, data: Buffer, position: int) -> None:
    """Writes all of `data` into a file of the job's volume. Raises StoreError."""
    view = memoryview(data)
    while view:
        try:
            written = os.pwrite(descriptor, view, position)
        except OSError as error:
            raise StoreError(f"the job's volume can't be written: {error.strerror}") from None
        view, position = view[written:], position + written


def printable(name: str) -> str:
    """A name on one line, whatever bytes it has."""
    text = name.encode("utf-8", "backslashreplace").decode("utf-8")
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


@dataclass(frozen=True)
class Fault:
    """What an exception of an S3 client means.

    `kind` is credentials (there are none), authentication, bucket, missing, request or connection.
    """

    kind: str
    detail: str  # the server's own code, or the first words of the error


_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w{1,64})</Code>")
_MACHINES_ROLE = re.compile(r"http://169\.254\.\d+\.\d+/")  # asked for credentials where none are given
_AUTHENTICATION = {
    "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken", "TokenRefreshRequired",
    "AuthorizationHeaderMalformed", "RequestTimeTooSkewed", "InvalidSecurity", "NotSignedUp",
}  # fmt: skip
_BUCKET = {"NoSuchBucket", "InvalidBucketName", "AccessDenied", "AllAccessDisabled", "PermanentRedirect"}


def classify(error: BaseException) -> Fault:
    """Reads what obstore raises. Nothing of a request but the server's own code gets into `detail`."""
    text = str(error).partition("Debug source:")[0]
    found, code = _STATUS.search(text), _CODE.search(text)
    name = code.group(1) if code else ""
    status = int(found.group(1)) if found else 0
    detail = name or (f"HTTP status {status}" if status else "no connection")
    if _MACHINES_ROLE.search(text):
        return Fault("credentials", "the machine has no role either")
    if name in _AUTHENTICATION or status == 401:
        return Fault("authentication", detail)
    if name in _BUCKET or status == 403:
        return Fault("bucket", detail)
    if isinstance(error, FileNotFoundError) or status == 404:
        return Fault("missing", detail)
    if 400 <= status < 500 and status not in (408, 409, 425, 429) and name not in ("RequestTimeout", "SlowDown"):
        return Fault("request", detail)
    if not status:
        last = text.strip().splitlines()[0] if text.strip() else type(error).__name__
        detail = last.rpartition(" - ")[2][:200] or detail
    return Fault("connection", detail)


def sentence(error: BaseException, store_id: str, bucket: str) -> str:
    """FfDL's text (its C103) for a data store that can't be used: `store_id` and `bucket` as in the manifest."""
    if classify(error).kind in ("bucket", "missing"):
        return (
            f"Data store bucket '{bucket}' for data store id '{store_id}' incorrect, there may be a connection problem "
            "or credentials do not allow access to the bucket"
        )
    return f"Data store authentication information for id '{store_id}' incorrect or there is a connection problem"

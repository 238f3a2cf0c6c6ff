"""Objects in an S3 bucket, through obstore."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from ..learner import contract
from .storage import (
    CHUNK,
    PART,
    SINGLE,
    Entry,
    NoRanges,
    Source,
    SourceError,
    StoreError,
    classify,
    printable,
    sentence,
    to_disk,
)

MOST_PARTS = 10_000  # S3's
_NO_KEY = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")  # what XML listings and UTF-8 can't carry


class S3Objects:
    """A bucket. `patience` (seconds) bounds how long one request may stand still."""

    def __init__(self, store: contract.Store, credentials: Mapping[str, str], patience: float) -> None:
        self.where = f"bucket {printable(store.bucket)!r}" + (f" at {store.endpoint}" if store.endpoint else "")
        self._id, self._bucket = store.id, store.bucket
        # FfDL's default region is an old name, which no signature is made with.
        region = store.region if store.region not in ("", "us-standard") else "us-east-1"
        config: dict[str, str | bool] = {"region": region, "virtual_hosted_style_request": False}
        if store.endpoint:
            config["endpoint"] = store.endpoint.rstrip("/")
        if credentials.get("user_name"):
            for name in [name for name in os.environ if name.startswith("AWS_")]:
                del os.environ[name]  # a session token of someone else's would be sent beside these
            config["access_key_id"] = credentials["user_name"]
            config["secret_access_key"] = credentials.get("password", "")
            if credentials.get("session_token"):
                config["session_token"] = credentials["session_token"]
        still = timedelta(seconds=min(60.0, max(1.0, patience)))
        try:
            self._store = S3Store(
                store.bucket,
                config=config,  # type: ignore[arg-type]
                client_options={
                    "allow_http": store.endpoint.startswith("http://"),
                    "connect_timeout": min(still, timedelta(seconds=5)),
                    "read_timeout": still,
                    "timeout": timedelta(minutes=10),
                },
                retry_config={"max_retries": 2, "retry_timeout": min(still, timedelta(seconds=20))},
            )
        except (BaseError, ValueError) as error:
            raise StoreError(f"{self.where}: {_first_line(error)}", permanent=True) from None

    def key(self, name: str) -> str:
        return _NO_KEY.sub(lambda found: "".join(f"%{byte:02X}" for byte in os.fsencode(found.group())), name)

    def list(self, folder: str) -> Iterator[Entry]:
        try:
            for page in obstore.list(self._store, folder.rstrip("/") or None):
                for about in page:
                    yield Entry(about["path"], about["size"], _tag(about["e_tag"]))
        except (BaseError, OSError, ValueError) as error:
            raise self._error(error, f"listing {printable(folder) or 'it'}") from None

    def find(self, key: str) -> Entry | None:
        try:
            about = obstore.head(self._store, key)
        except FileNotFoundError:
            return None
        except (BaseError, OSError) as error:
            raise self._error(error, printable(key)) from None
        except ValueError as error:
            raise SourceError(_first_line(error)) from None
        return Entry(key, about["size"], _tag(about["e_tag"]))

    def read(self, key: str) -> bytes:
        try:
            return bytes(obstore.get(self._store, key).bytes())
        except FileNotFoundError as error:
            if classify(error).kind != "missing":
                raise self._error(error, printable(key)) from None
            raise FileNotFoundError(key) from None
        except (BaseError, OSError) as error:
            raise self._error(error, printable(key)) from None

    def fetch(self, entry: Entry, descriptor: int, begin: int, end: int, advance: Callable[[int], None]) -> None:
        if begin == end:
            return
        whole = begin == 0 and end == entry.size
        try:
            answer = obstore.get(self._store, entry.key, options={} if whole else {"range": (begin, end)})
            if (answer.meta["size"], _tag(answer.meta["e_tag"])) != (entry.size, entry.tag):
                raise StoreError(f"{self.where}: {printable(entry.key)} was replaced while it was read")
            for piece in answer.stream(CHUNK):
                to_disk(descriptor, piece, begin)
                begin += len(piece)
                advance(len(piece))
        except FileNotFoundError:
            raise FileNotFoundError(entry.key) from None
        except (BaseError, OSError) as error:
            if "non-partial response" in str(error):
                raise NoRanges from None
            raise self._error(error, printable(entry.key)) from None
        if begin != end:
            raise StoreError(f"{self.where}: {printable(entry.key)} ended early")

    def put(self, key: str, source: Source) -> tuple[Entry, str]:
        digests = _Digests(source.size)
        try:
            if source.size <= SINGLE:
                data = b"".join(digests.passing(source.pieces()))
                answer = obstore.put(self._store, key, data, use_multipart=False)
                entry: Entry | None = Entry(key, source.size, _tag(answer["e_tag"]))
            else:
                pieces = digests.passing(source.pieces())
                obstore.put(self._store, key, pieces, use_multipart=True, chunk_size=digests.part, max_concurrency=2)
                entry = self.find(key)
        except (BaseError, OSError) as error:
            raise self._error(error, printable(key)) from None
        except ValueError as error:
            raise SourceError(_first_line(error)) from None
        if entry is None or entry.size != source.size or not digests.are(entry.tag):
            entry = self._read_back(key, source.size, digests.whole)  # not every store's tag is a digest
        return entry, digests.whole

    def same(self, entry: Entry, source: Source) -> str | None:
        if entry.size != source.size:
            return None
        digests = _Digests(source.size)
        for _ in digests.passing(source.pieces()):
            pass
        return digests.whole if digests.are(entry.tag) else None

    def write(self, key: str, data: bytes) -> None:
        try:
            obstore.put(self._store, key, data, use_multipart=False)
        except (BaseError, OSError) as error:
            raise self._error(error, printable(key)) from None
        if self.read(key) != data:
            raise StoreError(f"{self.where}: {printable(key)} has not arrived whole")

    def delete(self, key: str) -> None:
        try:
            obstore.delete(self._store, key)
        except FileNotFoundError:
            pass
        except (BaseError, OSError) as error:
            raise self._error(error, printable(key)) from None

    def _read_back(self, key: str, size: int, whole: str) -> Entry:
        digest = hashlib.md5(usedforsecurity=False)
        try:
            answer = obstore.get(self._store, key)
            for piece in answer.stream(CHUNK):
                digest.update(piece)
        except (BaseError, OSError) as error:
            raise self._error(error, printable(key)) from None
        if answer.meta["size"] != size or digest.hexdigest() != whole:
            raise StoreError(f"{self.where}: {printable(key)} has not arrived whole")
        return Entry(key, size, _tag(answer.meta["e_tag"]))

    def _error(self, error: Exception, what: str) -> StoreError:
        fault = classify(error)
        plain = {
            "request": "the store refuses the request",
            "connection": "no connection, or it was cut",
            "credentials": "no credentials; write user_name and password, or secret, in the data store's connection, "
            "or export AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY before you submit the job",
        }
        meaning = plain.get(fault.kind) or sentence(error, self._id, self._bucket)
        return StoreError(f"{self.where}: {what}: {meaning} ({fault.detail})", permanent=fault.kind != "connection")


class _Digests:
    """MD5 of a file and the ETag that S3 gives it when it comes in parts, from one reading."""

    def __init__(self, size: int) -> None:
        self.part = max(PART, -(-size // MOST_PARTS))
        self._whole = hashlib.md5(usedforsecurity=False)
        self._of_parts = b""
        self._part, self._filled = hashlib.md5(usedforsecurity=False), 0

    def passing(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self._whole.update(piece)
            view = memoryview(piece)
            while view:
                taken = view[: self.part - self._filled]
                self._part.update(taken)
                self._filled += len(taken)
                view = view[len(taken) :]
                if self._filled == self.part:
                    self._close()
            yield piece

    @property
    def whole(self) -> str:
        return self._whole.hexdigest()

    def are(self, tag: str) -> bool:
        if self._filled:
            self._close()
        parts = hashlib.md5(self._of_parts, usedforsecurity=False).hexdigest()
        return tag in (self.whole, f"{parts}-{len(self._of_parts) // 16}")

    def _close(self) -> None:
        self._of_parts += self._part.digest()
        self._part, self._filled = hashlib.md5(usedforsecurity=False), 0


def _tag(e_tag: str | None) -> str:
    return (e_tag or "").strip('"')


def _first_line(error: Exception) -> str:
    return printable(str(error).partition("\n")[0])[:300]

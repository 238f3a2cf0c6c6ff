"""Unpacking the code a user submitted: nothing lands outside of its folder, and what it may grow to is bounded."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import zipfile

from .storage import CHUNK, StoreError, printable

MOST_BYTES = 4 << 30
MOST_FILES = 100_000


def unpack(archive: str, folder: str, staging: str) -> None:
    """Replaces `folder` by the content of the zip file `archive`; `staging` is a folder of our own beside it.

    Everything is readable, writable and executable for all, as FfDL had it. Raises StoreError, permanent for a bad one.
    """
    fresh = f"{staging}/code"
    try:
        shutil.rmtree(staging, ignore_errors=True)
        os.makedirs(fresh)
        try:
            with zipfile.ZipFile(archive) as contents:
                _unpack(contents, fresh)
        except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
            raise _invalid(str(error)) from None
        _open_to_all(fresh)
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(fresh, folder)
    except OSError as error:
        raise StoreError(f"the code can't be unpacked into {folder}: {error.strerror}") from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _unpack(contents: zipfile.ZipFile, folder: str) -> None:
    entries = contents.infolist()
    if len(entries) > MOST_FILES:
        raise _invalid(f"it has {len(entries)} files; {MOST_FILES} is the limit")
    size = sum(entry.file_size for entry in entries)  # reading never yields more than what is declared
    if size > MOST_BYTES:
        raise _invalid(f"it unpacks to {size >> 20} MB; {MOST_BYTES >> 20} MB is the limit")
    free = shutil.disk_usage(folder).free
    if size > free:
        raise StoreError(f"the code needs {size >> 20} MB and the job's volume has {free >> 20} MB left")
    links = []
    for entry in entries:
        name = entry.filename.rstrip("/")
        if entry.filename == "./" or not name:
            continue
        name = name.removeprefix("./")
        if "\\" in name or any(part in ("", ".", "..") for part in name.split("/")):
            raise _invalid(f"{printable(entry.filename)!r} would land outside of the code's folder")
        target, mode = f"{folder}/{name}", entry.external_attr >> 16
        try:
            if entry.is_dir():
                os.makedirs(target, exist_ok=True)
                continue
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if stat.S_ISLNK(mode):
                links.append((target, contents.read(entry), name))
                continue
            with contents.open(entry) as source, open(target, "wb") as stream:
                shutil.copyfileobj(source, stream, CHUNK)
            os.chmod(target, stat.S_IMODE(mode) & 0o777 or 0o644)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            raise _invalid(f"{printable(name)!r} is both a file and a folder") from None
    # Links come last, so that no file is written through one, and are judged when all of them are there.
    for target, text, name in links:
        if len(text) > 4096 or b"\0" in text:
            raise _invalid(f"{printable(name)!r} is no valid link")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(target)
        os.symlink(os.fsdecode(text), target)
    home = os.path.realpath(folder)
    for target, text, name in links:
        if os.path.isabs(text) or not os.path.realpath(target).startswith(home + "/"):
            raise _invalid(f"the link {printable(name)!r} leads outside of the code's folder")


def _open_to_all(folder: str) -> None:
    os.chmod(folder, 0o777)
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            if not os.path.islink(f"{place}/{name}"):
                os.chmod(f"{place}/{name}", os.stat(f"{place}/{name}").st_mode & 0o7000 | 0o777)


def _invalid(why: str) -> StoreError:
    return StoreError(f"Model zip is invalid: {why}", permanent=True)

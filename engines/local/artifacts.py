"""Artifacts on disk: a file or folder made into what is stored, and back. As Argo's executor does both.

What reads and writes archives is imported where it is needed: every supervisor has this module.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import zlib
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import tarfile

NONE, TAR, ZIP, AUTO = "none", "tar", "zip", "auto"
KINDS = (NONE, TAR, ZIP)
SUFFIX = {TAR: ".tgz", ZIP: ".zip"}


class ArtifactError(Exception):
    """An artifact that can't be packed or unpacked. The text is for people."""


def file_name(name: str, path: str, archive: str) -> str:
    """What the artifact `name`, at `path`, is called in the store."""
    return os.path.basename(os.path.normpath(path)) if archive == NONE else name + SUFFIX[archive]


def pack(source: str, target: str, archive: str, level: int) -> None:
    """Makes `target`, which does not exist, of the file or folder `source`. Raises OSError, ArtifactError."""
    source = os.path.realpath(source)
    kind = os.stat(source).st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        raise ArtifactError(f"{source} is not a regular file or directory")
    if archive == NONE:
        _copy(source, target)
    elif archive == ZIP:
        import zipfile

        with zipfile.ZipFile(target, "x", zipfile.ZIP_DEFLATED, strict_timestamps=False) as packed:
            for path, name in _walk(source):
                if os.path.isfile(path):
                    packed.write(path, name)
    else:
        import gzip
        import tarfile

        with (
            open(target, "xb") as raw,
            gzip.GzipFile("", "wb", level if level >= 0 else 6, raw, mtime=0) as stream,
            tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as packed,
        ):
            for path, name in _walk(source):
                _add(packed, path, name)


def unpack(source: str, target: str, archive: str) -> None:
    """Makes `target`, which does not exist, of what is stored at `source`. Raises OSError, ArtifactError.

    The one entry of an archive becomes `target` itself; several go into it, a folder.
    """
    if archive == NONE or (archive == AUTO and not _is_tar(source)):
        return _copy(source, target)
    import tarfile
    import zipfile

    scratch = f"{target}.tmpdir"
    os.makedirs(scratch)
    try:
        if archive == ZIP:
            _unzip(source, scratch)
        else:
            _untar(source, scratch)
        entries = os.listdir(scratch)
        os.rename(os.path.join(scratch, entries[0]) if len(entries) == 1 else scratch, target)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ArtifactError(f"{source} can't be unpacked: {error}") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return None


def set_mode(path: str, mode: int, recurse: bool) -> None:
    """Sets the mode of a file or folder, with `recurse` of all that is in it."""
    for folder, _, names in os.walk(path, topdown=False) if recurse else ():
        for name in names:
            os.chmod(os.path.join(folder, name), mode)
        os.chmod(folder, mode)
    os.chmod(path, mode)


def _copy(source: str, target: str) -> None:
    if os.path.isdir(source):
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target)


def _walk(source: str) -> list[tuple[str, str]]:
    """(path, name in the archive) of all that is in `source`, itself first."""
    base = os.path.basename(source)
    found = [(source, base)]
    for folder, folders, files in os.walk(source):
        folders.sort()
        inside = os.path.relpath(folder, source)
        names = sorted([*files, *folders])
        found += [(os.path.join(folder, name), os.path.normpath(os.path.join(base, inside, name))) for name in names]
    return found


def _add(packed: tarfile.TarFile, path: str, name: str) -> None:
    packed.inodes = {}  # type: ignore[attr-defined]  # a second name of a file is a file of its own
    info = packed.gettarinfo(path, name)
    if info is None:  # a socket
        return
    if info.isreg():
        with open(path, "rb") as stream:
            packed.addfile(info, stream)
    else:
        packed.addfile(info)


def _is_tar(path: str) -> bool:
    import tarfile

    if os.path.isdir(path):
        return False
    with contextlib.suppress(OSError, EOFError, tarfile.TarError), tarfile.open(path, "r:gz") as packed:
        return packed.next() is not None
    return False


def _untar(source: str, target: str) -> None:
    import tarfile

    with tarfile.open(source, "r:*") as packed:
        for info in packed:
            where = _inside(target, info.name)
            if info.isdir():
                os.makedirs(where, 0o755, exist_ok=True)
            elif info.issym():
                _check(target, os.path.normpath(os.path.join(os.path.dirname(where), info.linkname)), info.name)
                os.makedirs(os.path.dirname(where), 0o755, exist_ok=True)
                os.symlink(info.linkname, where)
            elif info.isreg() and (stream := packed.extractfile(info)) is not None:
                _write(target, where, stream, info.mode)
                os.utime(where, (info.mtime, info.mtime))


def _unzip(source: str, target: str) -> None:
    import zipfile

    with zipfile.ZipFile(source) as packed:
        for info in packed.infolist():
            where = _inside(target, info.filename)
            if info.is_dir():
                os.makedirs(where, 0o755, exist_ok=True)
                continue
            with packed.open(info) as stream:
                _write(target, where, stream, (info.external_attr >> 16) & 0o777 or 0o644)


def _inside(target: str, name: str) -> str:
    where = os.path.normpath(os.path.join(target, name.lstrip("/")))
    _check(target, where, name)
    return where


def _check(target: str, where: str, name: str) -> None:
    if where != target and not where.startswith(target + os.sep):
        raise ArtifactError(f"illegal file path: {name}")


def _write(target: str, where: str, stream: IO[bytes], mode: int) -> None:
    folder = os.path.dirname(where)
    os.makedirs(folder, 0o755, exist_ok=True)
    _check(os.path.realpath(target), os.path.realpath(folder), where)  # by no link that an entry before it has made
    with contextlib.suppress(FileNotFoundError):
        os.unlink(where)
    with open(where, "xb") as made:
        shutil.copyfileobj(stream, made)
    Path(where).chmod(mode & 0o777)

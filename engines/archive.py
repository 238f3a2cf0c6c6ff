"""A folder of code -> the zip that travels with a job. Same files, same bytes; `.ffdlignore` leaves files out."""

from __future__ import annotations

import io
import os
import re
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path

IGNORE_FILE = ".ffdlignore"
ALWAYS_IGNORED = (".git/", ".hg/", ".svn/", "__pycache__/", ".venv/", ".ipynb_checkpoints/", ".DS_Store", IGNORE_FILE)
MOST = 512 * 2**20  # bytes of code, unpacked: more is data, or the wrong folder
DATE = (1980, 1, 1, 0, 0, 0)  # the earliest a zip can say


class CodeError(ValueError):
    """The code can't be packed as it is; its text names the file and says what to do."""


class Ignore:
    """gitignore's patterns: names, globs (`*` within a name, `**` over folders), `dir/`, `/anchored`, `!again`, `#`."""

    def __init__(self, lines: list[str]) -> None:
        self._rules = [rule for rule in map(_rule, lines) if rule is not None]

    def __call__(self, path: str, is_folder: bool) -> bool:
        """Whether `path` (relative, with slashes) is left out; the last pattern that matches decides."""
        ignored = False
        for pattern, folders_only, negated in self._rules:
            if (is_folder or not folders_only) and pattern.fullmatch(path):
                ignored = not negated
        return ignored


def _rule(line: str) -> tuple[re.Pattern[str], bool, bool] | None:
    text = re.sub(r"(?<!\\)\s+$", "", line.rstrip("\r\n"))
    if not text or text.startswith("#"):
        return None
    negated = text.startswith("!")
    text = text[1:] if negated else text
    folders_only = text.endswith("/")
    text = text.rstrip("/")
    anchored = "/" in text
    text = text.lstrip("/")
    if not text:
        return None
    return re.compile(("" if anchored else "(?:.*/)?") + _expression(text), re.DOTALL), folders_only, negated


def _expression(glob: str) -> str:
    expression, position = "", 0
    while position < len(glob):
        rest = glob[position:]
        if match := re.match(r"\*\*/|/\*\*$|\*+|\?|\[[!^]?\]?[^\]]*\]|\\.|.", rest, re.DOTALL):
            expression += _piece(match.group())
            position += match.end()
    return expression


def _piece(piece: str) -> str:
    if piece in ("**/", "/**", "?"):
        return {"**/": "(?:.*/)?", "/**": "/.+", "?": "[^/]"}[piece]
    if piece.startswith("*"):
        return "[^/]*"
    if piece.startswith("[") and len(piece) > 1:
        negated = piece[1] in "!^"
        inside = piece[2 if negated else 1 : -1].replace("\\", r"\\").replace("[", r"\[").replace("]", r"\]")
        return f"(?!/)[{'^' if negated else ''}{inside}]"
    return re.escape(piece[1:] if piece.startswith("\\") and len(piece) > 1 else piece)


def pack_code(source: Path, manifest: bytes | None = None) -> bytes:
    """The zip of a folder of code, or of an existing zip as it is. Raises CodeError, OSError for unreadable files.

    The code is read by learners: where `manifest` lies in the folder, the credentials written in it are left out.
    """
    if source.is_dir():
        return _zip(source, manifest)
    if not source.exists():
        raise CodeError(f"{source}: no such folder or zip file")
    data = source.read_bytes()
    _check_zip(source, data)
    return data


def no_code() -> bytes:
    """The zip of an empty folder, for a command that needs no files."""
    target = io.BytesIO()
    zipfile.ZipFile(target, "w").close()
    return target.getvalue()


def _check_zip(source: Path, data: bytes) -> None:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, ValueError, OSError):
        raise CodeError(f"{source}: not a zip file; give a folder of code or a zip of it") from None
    for entry in entries:
        name = entry.filename
        if name.startswith("/") or "\\" in name or ".." in name.split("/"):
            raise CodeError(f"{source}: has the entry {name!r}, which leads out of the folder; make the zip anew")
        if stat.S_ISLNK(entry.external_attr >> 16):
            raise CodeError(f"{source}: has the symbolic link {name!r}; put the file itself there, or give the folder")
    if sum(entry.file_size for entry in entries) > MOST:
        raise CodeError(f"{source}: unpacks to more than {MOST >> 20} MiB; put data into a data store")


def _zip(folder: Path, manifest: bytes | None) -> bytes:
    root = os.path.realpath(folder)
    ignore = Ignore([*ALWAYS_IGNORED, *_ignore_lines(folder)])
    target, size = io.BytesIO(), 0
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name, path, mode in _files(root, "", root, ignore, ()):
            try:
                name.encode()
            except UnicodeEncodeError:
                raise CodeError(
                    f"{folder}: the name {name!r} is not UTF-8; rename it or list it in {IGNORE_FILE}"
                ) from None
            entry = zipfile.ZipInfo(name, DATE)
            entry.create_system = 3  # Unix: the upper half of external_attr is the mode
            entry.external_attr = mode << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            data = b"" if stat.S_ISDIR(mode) else Path(path).read_bytes()
            if manifest is not None and data == manifest:
                data = _without_credentials(manifest)
            size += len(data)
            if size > MOST:
                raise CodeError(
                    f"{folder}: more than {MOST >> 20} MiB of code; is it the right folder? "
                    f"List data and results in {IGNORE_FILE}"
                )
            archive.writestr(entry, data)
    return target.getvalue()


def _without_credentials(manifest: bytes) -> bytes:
    from ..workflows.redaction import without_credentials

    return without_credentials(manifest)


def _ignore_lines(folder: Path) -> list[str]:
    try:
        return (folder / IGNORE_FILE).read_text("utf-8").splitlines()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError:
        raise CodeError(f"{folder / IGNORE_FILE}: not UTF-8 text") from None


def _files(
    root: str, prefix: str, folder: str, ignore: Ignore, above: tuple[str, ...]
) -> Iterator[tuple[str, str, int]]:
    """(name in the zip, path, mode) of all files below `folder`, sorted; a folder only where it is empty."""
    above = (*above, os.path.realpath(folder))
    entries = sorted(os.listdir(folder))
    if not entries and prefix:
        yield prefix, folder, stat.S_IFDIR | 0o755
    for entry in entries:
        path, name = os.path.join(folder, entry), prefix + entry
        if ignore(name, os.path.isdir(path)):
            continue
        _check_link(root, name, path, above)
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            yield from _files(root, f"{name}/", path, ignore, above)
        elif stat.S_ISREG(mode):
            yield name, path, stat.S_IFREG | stat.S_IMODE(mode)
        else:
            raise CodeError(f"{name!r} is neither a file nor a folder; list it in {IGNORE_FILE}")


def _check_link(root: str, name: str, path: str, above: tuple[str, ...]) -> None:
    """A link is stored as what it points to, which must be part of the code."""
    if not os.path.islink(path):
        return
    target = os.path.realpath(path)
    advice = f"copy what it points to, or list it in {IGNORE_FILE}"
    if not os.path.exists(target):
        raise CodeError(f"{name!r} is a symbolic link to nothing ({os.readlink(path)}); {advice}")
    if os.path.commonpath((root, target)) != root:
        raise CodeError(f"{name!r} is a symbolic link out of the code's folder ({target}); {advice}")
    if target in above:
        raise CodeError(f"{name!r} is a symbolic link to a folder that it lies in; {advice}")

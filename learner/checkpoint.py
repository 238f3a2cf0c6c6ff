"""Committed checkpoints in a folder: `step-<n>/` with its files and, written last, the marker COMMITTED.

A checkpoint exists once its marker does: everything else is durable by then, and the marker appears by a rename. It
names the files with size and digest, so one that was damaged later is told apart too. Importing this needs no NumPy.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import zlib
from dataclasses import dataclass
from typing import Any, BinaryIO, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

COMMITTED = "COMMITTED"
UNFINISHED = COMMITTED + ".tmp"  # from the first moment of writing on: tells what a crash left from a user's own folder
PREFIX = "step-"
FORMAT = 1
LARGEST_MARKER = 1 << 20  # bytes
CHUNK = 1 << 22  # bytes
# Two sets of names: a step that is written again becomes the new one by the rename of the marker alone.
NAMES = (("state.json", "arrays.bin"), ("state-2.json", "arrays-2.bin"))
OURS = frozenset(name for pair in NAMES for name in pair)


class DamagedError(ValueError):
    """A checkpoint's files are not what its marker says."""


@dataclass(frozen=True)
class Checkpoint:
    """A committed checkpoint: `path` is its folder, `marker` what its COMMITTED says."""

    step: int
    path: str
    marker: Dict[str, Any]

    @property
    def identity(self) -> Tuple[int, int]:
        return identity(self.step, self.marker)


def identity(step: int, marker: Dict[str, Any]) -> Tuple[int, int]:
    """Step and generation: what a world saved of a step is another state than what one before it had saved of it."""
    generation = marker.get("generation")
    return step, generation if type(generation) is int else 0


def committed(folder: str) -> List[Checkpoint]:
    """The committed checkpoints of a folder, the last one first. Reads only markers, and follows no symlinks in it."""
    found = []
    for step, path in _step_folders(folder):
        marker = _read_marker(path)
        if marker is not None and marker.get("format") == FORMAT and marker["step"] == step:
            found.append(Checkpoint(step, path, marker))
    found.sort(key=lambda checkpoint: (checkpoint.marker["sequence"], checkpoint.step), reverse=True)
    return found


def verify(path: str) -> bool:
    """Whether the folder `path` is a committed checkpoint whose files have the sizes and digests its marker names."""
    marker = _read_marker(path)
    if marker is None or marker.get("format") != FORMAT:
        return False
    try:
        with _opened_folder(path) as folder:
            for name, expected in marker["files"].items():
                with _opened_file(folder, name) as stream:
                    for _ in _checked(name, expected, stream, _chunks(stream)):
                        pass
    except (OSError, DamagedError):
        return False
    return True


def load(checkpoint: Checkpoint) -> Any:
    """The state in a checkpoint. Raises DamagedError, or OSError where it can't be read."""
    from . import encoding

    files = checkpoint.marker["files"]
    names = next((pair for pair in NAMES if set(pair) == set(files)), None)
    if names is None:
        raise DamagedError(f"names unknown files: {', '.join(sorted(files))}")
    with _opened_folder(checkpoint.path) as folder:
        with _opened_file(folder, names[0]) as stream:
            document = json.loads(b"".join(_checked(names[0], files[names[0]], stream, _chunks(stream))))
        if document["format"] != encoding.FORMAT:
            raise DamagedError(
                f"its state has format {document['format']}; this version reads format {encoding.FORMAT}"
            )
        contents = encoding.allocate(document)
        with _opened_file(folder, names[1]) as stream:
            pieces = _read_into(stream, [encoding.writable(content) for content in contents], encoding.ALIGNMENT)
            for _ in _checked(names[1], files[names[1]], stream, pieces):
                pass
    return encoding.decode(document, contents)


def restore(folder: str, warn: Callable[[str], None]) -> Optional[Tuple[Checkpoint, Any]]:
    """The newest checkpoint that is whole, with its state; None where there is none.

    Damaged ones are passed over with a word. Raises OSError if checkpoints exist and the storage lets none be read:
    starting over would then throw away what is still there.
    """
    unreadable: Optional[OSError] = None
    for checkpoint in committed(folder):
        try:
            return checkpoint, load(checkpoint)
        except DamagedError as error:
            warn(f"checkpoint {checkpoint.path} is damaged ({error}); going back to the one before it")
        except FileNotFoundError as error:
            warn(f"checkpoint {checkpoint.path} is incomplete ({error}); going back to the one before it")
        except OSError as error:
            warn(f"checkpoint {checkpoint.path} can't be read ({error}); going back to the one before it")
            unreadable = error
    if unreadable is not None:
        raise unreadable
    return None


def restore_at(folder: str, step: int) -> Optional[Tuple[Checkpoint, Any]]:
    """The checkpoint of `step`, with its state; None for a negative step, which is the beginning.

    Those of later steps stay until newer ones take their place. Raises OSError, DamagedError, and FileNotFoundError
    for none.
    """
    if step < 0:
        return None
    found = next((checkpoint for checkpoint in committed(folder) if checkpoint.step == step), None)
    if found is None:
        raise FileNotFoundError(f"there is no checkpoint of step {step} in {folder}, from which the others go on")
    return found, load(found)


def write(folder: str, step: int, document: bytes, contents: Sequence[Any], **about: Any) -> Checkpoint:
    """Commits a checkpoint; it is durable on return. `about` goes into the marker (generation, epoch, world_size).

    Raises OSError; what was written is then removed. A checkpoint of the same step stays until the new one is there.
    """
    from . import encoding

    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{PREFIX}{step}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
    known = committed(folder)
    current: Dict[str, Any] = next((other.marker["files"] for other in known if other.step == step), {})
    names = next(pair for pair in NAMES if current.keys().isdisjoint(pair))
    with _opened_folder(path) as descriptor:
        try:
            # OR, not set: the group and setgid bits of a shared volume stay. A restored one may be another user's.
            mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
            if mode | 0o755 != mode:
                os.fchmod(descriptor, mode | 0o755)
            _unlink(descriptor, (*names, UNFINISHED))
            with _created_file(descriptor, UNFINISHED) as marker_stream:
                files = {}
                with _created_file(descriptor, names[0]) as stream:
                    files[names[0]] = _write(stream, [memoryview(document)], 1)
                with _created_file(descriptor, names[1]) as stream:
                    files[names[1]] = _write(stream, map(encoding.writable, contents), encoding.ALIGNMENT)
                sequence = 1 + max((other.marker["sequence"] for other in known), default=0)
                marker = {"format": FORMAT, "step": step, "sequence": sequence, **about, "files": files}
                marker["check"] = _checksum(marker)
                text = json.dumps(marker, indent=1, sort_keys=True) + "\n"
                _write(marker_stream, [memoryview(text.encode("ascii"))], 1)
            _sync_folder(descriptor)
            os.rename(UNFINISHED, COMMITTED, src_dir_fd=descriptor, dst_dir_fd=descriptor)
        except BaseException:
            _unlink(descriptor, (*names, UNFINISHED))
            _remove_folder(path)
            raise
        _sync_folder(descriptor)
        with _opened_folder(folder) as parent:
            _sync_folder(parent)
        _unlink(descriptor, OURS.difference(names))
    return Checkpoint(step, path, marker)


def prune(folder: str, keep: int, spared_step: Optional[int] = None) -> None:
    """Removes all but the last `keep` (at least one) committed checkpoints, and what interrupted writers left.

    That of `spared_step` stays as well.
    """
    valid = committed(folder)
    spared = {checkpoint.path for checkpoint in valid[: max(keep, 1)]}
    spared |= {checkpoint.path for checkpoint in valid if checkpoint.step == spared_step}
    removable = {checkpoint.path for checkpoint in valid} - spared
    for _, path in _step_folders(folder):
        with contextlib.suppress(OSError):
            if path in removable or (path not in spared and _is_leftover(path)):
                _forget(path)


def _forget(path: str) -> None:
    with _opened_folder(path) as descriptor:
        with contextlib.suppress(FileNotFoundError):  # the marker first: a part is never committed
            os.rename(COMMITTED, UNFINISHED, src_dir_fd=descriptor, dst_dir_fd=descriptor)
        _unlink(descriptor, (*OURS, UNFINISHED))
    _remove_folder(path)


def _is_leftover(path: str) -> bool:
    if _read_marker(path) is not None:
        return False  # of a later format
    return any(os.path.lexists(os.path.join(path, name)) for name in (COMMITTED, UNFINISHED))


def _step_folders(folder: str) -> List[Tuple[int, str]]:
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                digits = entry.name[len(PREFIX) :]
                if not (entry.name.startswith(PREFIX) and digits.isascii() and digits.isdigit() and len(digits) < 20):
                    continue
                if str(int(digits)) == digits and entry.is_dir(follow_symlinks=False):
                    found.append((int(digits), os.path.join(folder, entry.name)))
    except FileNotFoundError:
        return []
    return found


def _read_marker(path: str) -> Optional[Dict[str, Any]]:
    """What the marker in `path` says; None where there is none, or not a whole one."""
    try:
        with _opened_folder(path) as folder, _opened_file(folder, COMMITTED) as stream:
            marker = json.loads(stream.read(LARGEST_MARKER))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(marker, dict) or marker.get("check") != _checksum(marker):
        return None
    return marker if marker.get("format") != FORMAT or is_sound(marker) else None


def is_sound(marker: Dict[str, Any]) -> bool:
    """Whether a marker has the fields that readers rely on: a script may have written it."""
    files = marker.get("files")
    return (
        all(type(marker.get(name)) is int for name in ("step", "sequence"))
        and isinstance(files, dict)
        and all(
            isinstance(about, dict) and type(about.get("size")) is int and type(about.get("digest")) is str
            for about in files.values()
        )
    )


def _checksum(marker: Dict[str, Any]) -> str:
    """CRC-32 of a marker but for its field `check`: markers are read often, and by programs that must stay small."""
    content = {key: value for key, value in marker.items() if key != "check"}
    return f"{zlib.crc32(json.dumps(content, sort_keys=True).encode('ascii')):08x}"


def _checked(name: str, expected: Dict[str, Any], stream: BinaryIO, pieces: Iterator[Any]) -> Iterator[Any]:
    """Passes a file's pieces on. Raises DamagedError: at once for a wrong size, at the end for wrong content."""
    import hashlib

    size = os.fstat(stream.fileno()).st_size
    if size != expected["size"]:
        raise DamagedError(f"{name} has {size} bytes instead of {expected['size']}")
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
        yield piece
    if f"sha256:{digest.hexdigest()}" != expected["digest"]:
        raise DamagedError(f"the content of {name} has changed")


def _chunks(stream: BinaryIO) -> Iterator[bytes]:
    while chunk := stream.read(CHUNK):
        yield chunk


def _read_into(stream: BinaryIO, targets: Sequence[memoryview], alignment: int) -> Iterator[memoryview]:
    """Fills the targets one after the other, skipping the padding between them; yields all bytes as they come."""
    for target in targets:
        padding = memoryview(bytearray(-len(target) % alignment))
        for place in (target, padding):
            start = 0
            while start < len(place):
                count = stream.readinto(place[start : start + CHUNK])  # type: ignore[attr-defined]
                if not count:
                    raise DamagedError("it is shorter than its description")
                yield place[start : start + count]
                start += count


def _write(stream: BinaryIO, pieces: Any, alignment: int) -> Dict[str, Any]:
    """Writes the pieces, each padded to the alignment, and makes them durable. Returns their size and digest."""
    import hashlib

    digest = hashlib.sha256()
    size = 0
    for piece in pieces:
        for place in (piece, memoryview(bytes(-len(piece) % alignment))):
            start = 0
            while start < len(place):
                count = stream.write(place[start : start + CHUNK])
                digest.update(place[start : start + count])
                start += count
            size += start
    os.fsync(stream.fileno())
    return {"size": size, "digest": f"sha256:{digest.hexdigest()}"}


@contextlib.contextmanager
def _opened_folder(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _opened_file(folder: int, name: str) -> BinaryIO:
    """Opens a regular file of an opened folder for reading, unbuffered. Raises OSError for anything else."""
    if "/" in name or name in ("", ".", ".."):
        raise PermissionError(f"{name!r} is not the name of a file")
    # O_NONBLOCK: a FIFO put there must not hold us up.
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise PermissionError(f"{name} is not a regular file")
    return os.fdopen(descriptor, "rb", buffering=0)


def _created_file(folder: int, name: str) -> BinaryIO:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o644, dir_fd=folder)
    os.fchmod(descriptor, 0o644)  # whatever the umask: others of the job read it
    return os.fdopen(descriptor, "wb", buffering=0)


def _unlink(folder: int, names: Any) -> None:
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)


def _remove_folder(path: str) -> None:
    with contextlib.suppress(OSError):  # someone's own files in it keep it
        os.rmdir(path)


def _sync_folder(descriptor: int) -> None:
    with contextlib.suppress(OSError):  # some network file systems can't
        os.fsync(descriptor)

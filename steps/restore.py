"""The last committed checkpoint of a job, from its results store back onto a volume that has none as new."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..learner import checkpoint, contract
from . import safe_files
from .retrying import Patience, Stop
from .storage import CHUNK, Entry, Objects, StoreError, printable
from .transfer import run_all

FILES, FILES_AGAIN, FILES_MANIFEST = "files", "files-2", "files.json"
BOTH = (FILES, FILES_AGAIN)  # a changed file goes where the snapshot that is there has none
STAGING = ".ffdl-restore"  # in CHECKPOINT_DIR while a script's own files come back
_STEP = re.compile(re.escape(checkpoint.PREFIX) + r"\d+")


@dataclass(frozen=True)
class Remote:
    """A committed checkpoint in a store: `folder` is its key with a slash at its end, `marker` what COMMITTED says."""

    folder: str
    step: int
    marker: dict[str, Any]

    @property
    def order(self) -> tuple[int, int]:
        return int(self.marker.get("sequence", 0)), self.step

    @property
    def identity(self) -> tuple[int, int]:
        return checkpoint.identity(self.step, self.marker)


def folders(root: str) -> list[str]:
    """Where checkpoints of the library's lie in CHECKPOINT_DIR: "" and those of the job's members."""
    found = [""]
    with contextlib.suppress(OSError), os.scandir(root) as entries:
        found += sorted(
            entry.name for entry in entries if contract.is_member_name(entry.name) and _is_folder(entry.path)
        )
    return found


def own_files(root: str, skipped: Callable[[str, str], None] | None = None) -> list[tuple[str, int, int]]:
    """What a script wrote to CHECKPOINT_DIR by itself: all that lies in no checkpoint of the library's."""
    ours: dict[str, bool] = {}
    found = []
    for relative, size, mtime_ns in safe_files.walk(root, skipped):
        parts = relative.split("/")
        if parts[0] == STAGING:
            continue
        depth = 1 if contract.is_member_name(parts[0]) else 0
        if len(parts) > depth + 1 and _STEP.fullmatch(parts[depth]):
            folder = "/".join(parts[: depth + 1])
            if folder not in ours:
                ours[folder] = _is_ours(f"{root}/{folder}")
            if ours[folder]:
                continue
        found.append((relative, size, mtime_ns))
    return found


def committed(objects: Objects, entries: Iterable[Entry], prefix: str, patience: Patience) -> dict[str, list[Remote]]:
    """The committed checkpoints among `entries` (all beneath `prefix`), newest first, by folder ("" or a member's)."""
    found: dict[str, list[Remote]] = {}
    for entry in entries:
        parts = entry.key.removeprefix(prefix).split("/")
        if parts[-1] != checkpoint.COMMITTED or not 2 <= len(parts) <= 3 or not _STEP.fullmatch(parts[-2]):
            continue
        if entry.size > checkpoint.LARGEST_MARKER or (len(parts) == 3 and not contract.is_member_name(parts[0])):
            continue
        marker = _parsed(objects, entry.key, patience)
        if isinstance(marker, dict) and checkpoint.is_sound(marker) and _names_are_safe(marker["files"]):
            step = int(parts[-2].removeprefix(checkpoint.PREFIX))
            where = parts[0] if len(parts) == 3 else ""
            found.setdefault(where, []).append(Remote(entry.key.removesuffix(checkpoint.COMMITTED), step, marker))
    for remotes in found.values():
        remotes.sort(key=lambda remote: remote.order, reverse=True)
    return found


def restore(
    objects: Objects,
    prefix: str,
    root: str,
    patience: Patience,
    stop: Stop,
    say: Callable[[str], None],
    in_step: Sequence[str] = (),
) -> bool:
    """Brings the newest whole checkpoint beneath `prefix` to `root`, a folder at a time, and a script's own snapshot.

    Whether the store has any. Of the folders `in_step` it is the newest that all of them have. Raises StoreError if the
    store has some and lets none be read: starting over would throw away what is still there.
    """
    entries = patience.run(lambda: list(objects.list(prefix)))
    found = committed(objects, entries, prefix, patience)
    if not _restore_in_step(objects, found, root, patience, stop, say, in_step):
        for where, remotes in sorted(found.items()):
            here = [(int(one.marker["sequence"]), one.step) for one in _committed_here(root, where)]
            for remote in remotes:
                if here and max(here) >= remote.order:
                    break
                if _restore_one(objects, remote, where, root, patience, stop, say):
                    break
    begun = os.path.isdir(f"{root}/{STAGING}")
    own = any(entry.key == prefix + FILES_MANIFEST for entry in entries)
    if own and (begun or not own_files(root)):
        _restore_files(objects, prefix, root, patience, stop, say)
    return own or bool(found)


def is_there(root: str, in_step: Sequence[str]) -> bool:
    """Whether there is something to go on from in `root`: a step that all of `in_step` have, or, where these are none,
    any folder; or a script's own files."""
    if in_step:
        checkpoints = bool(_common([{one.identity for one in _committed_here(root, where)} for where in in_step]))
    else:
        checkpoints = any(_committed_here(root, where) for where in folders(root))
    return checkpoints or bool(own_files(root))


def common_steps(found: Mapping[str, Sequence[Remote]], folders: Sequence[str]) -> list[tuple[int, int]]:
    """The steps of which every one of `folders` has what one world has saved, with its generation, newest first."""
    return _common([{remote.identity for remote in found.get(where, ())} for where in folders])


def _common(steps: Sequence[set[tuple[int, int]]]) -> list[tuple[int, int]]:
    return sorted(set[tuple[int, int]]().union(*steps[:1]).intersection(*steps), reverse=True)


def _restore_in_step(
    objects: Objects,
    found: Mapping[str, Sequence[Remote]],
    root: str,
    patience: Patience,
    stop: Stop,
    say: Callable[[str], None],
    folders: Sequence[str],
) -> bool:
    """Whether all `folders` have a whole checkpoint of one step, from the store or as it was."""
    here = [{one.identity for one in _committed_here(root, where)} for where in folders]
    newest = max((step for step, _ in _common(here)), default=-1)
    for common in common_steps(found, folders):
        if common[0] <= newest:
            break
        wanted = [(where, one) for where in folders for one in found[where] if one.identity == common]
        if all(
            common in steps or _restore_one(objects, one, where, root, patience, stop, say)
            for steps, (where, one) in zip(here, wanted, strict=True)
        ):
            return True
    if newest < 0 and folders and found:
        say(f"{objects.where} has no step of which there is a whole checkpoint of every member")
    return newest >= 0


def member_folder(root: str, where: str) -> str:
    """Where a member's checkpoints lie below `root`; a job of one learner has them there itself: `where` is ''."""
    return f"{root}/{where}" if where else root


def _committed_here(root: str, where: str) -> list[checkpoint.Checkpoint]:
    folder = member_folder(root, where)
    return checkpoint.committed(folder) if _is_folder(folder) else []


def _restore_one(
    objects: Objects, remote: Remote, where: str, root: str, patience: Patience, stop: Stop, say: Callable[[str], None]
) -> bool:
    """Whether it is there now."""
    folder = member_folder(root, where)
    # As the library writes one: what a kill leaves is a folder without a marker.
    place = f"{folder}/{checkpoint.PREFIX}{remote.step}"
    with _volume(place):
        os.makedirs(place, exist_ok=True)
        for made in (folder, place):
            with contextlib.suppress(OSError):
                os.chmod(made, os.stat(made).st_mode | 0o777)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{place}/{checkpoint.COMMITTED}")
        _write_durably(f"{place}/{checkpoint.UNFINISHED}", json.dumps(remote.marker, indent=1, sort_keys=True) + "\n")
    tasks = [
        lambda name=name, about=about: _fetch(
            objects, remote.folder + name, f"{place}/{name}", about["size"], about["digest"], patience, stop
        )
        for name, about in remote.marker["files"].items()
    ]
    if not all(run_all(tasks, stop)):
        say(f"the checkpoint of step {remote.step} in {objects.where} is damaged; going back to the one before it")
        with contextlib.suppress(OSError):
            for name in (*remote.marker["files"], checkpoint.UNFINISHED):
                os.unlink(f"{place}/{name}")
            os.rmdir(place)
        return False
    with _volume(place):
        os.rename(f"{place}/{checkpoint.UNFINISHED}", f"{place}/{checkpoint.COMMITTED}")
        _sync_folder(place)
        _sync_folder(folder)
    if not checkpoint.verify(place):
        say(f"the marker of step {remote.step} in {objects.where} is damaged; going back to the one before it")
        with contextlib.suppress(OSError):
            os.unlink(f"{place}/{checkpoint.COMMITTED}")
        return False
    say(f"restored the checkpoint of step {remote.step}" + (f" of {where}" if where else ""))
    return True


def _restore_files(
    objects: Objects, prefix: str, root: str, patience: Patience, stop: Stop, say: Callable[[str], None]
) -> None:
    manifest = _parsed(objects, prefix + FILES_MANIFEST, patience)
    files = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(files, dict) or not all(_is_safe(name) and _is_told(about) for name, about in files.items()):
        say(f"the list of the script's own checkpoint files in {objects.where} is damaged; they are not restored")
        return
    staging = f"{root}/{STAGING}"
    placed = [(name, f"{staging}/{number}", about) for number, (name, about) in enumerate(sorted(files.items()))]
    with _volume(staging):
        os.makedirs(staging, exist_ok=True)
    tasks = [
        lambda part=part, about=about: _fetch(
            objects, prefix + about["key"], part, about["size"], about["digest"], patience, stop
        )
        for _, part, about in placed
    ]
    if not all(run_all(tasks, stop)):
        say(f"the script's own checkpoint files in {objects.where} are damaged; they are not restored")
    else:
        with _volume(root):
            # All are here by now. After a kill among these renames the staging folder says that they are not all done.
            for name, part, _ in placed:
                os.makedirs(os.path.dirname(f"{root}/{name}"), exist_ok=True)
                os.rename(part, f"{root}/{name}")
        say(f"restored {len(placed)} of the script's own checkpoint files")
    shutil.rmtree(staging, ignore_errors=True)


def _fetch(objects: Objects, key: str, target: str, size: int, digest: str, patience: Patience, stop: Stop) -> bool:
    """Whether the object is there and is what its marker says."""
    kind, _, expected = digest.partition(":")
    if kind not in ("sha256", "md5"):
        return False

    def attempt() -> bool:
        stop.check()
        entry = objects.find(key)
        if entry is None or entry.size != size:
            return False
        with _volume(target), open(target, "w+b", buffering=0) as stream:
            with contextlib.suppress(OSError):
                os.fchmod(stream.fileno(), 0o666)
            try:
                objects.fetch(entry, stream.fileno(), 0, size, lambda _: stop.check())
            except FileNotFoundError:
                return False
            os.fsync(stream.fileno())
            found = hashlib.new(kind, usedforsecurity=False)
            stream.seek(0)
            while piece := stream.read(CHUNK):
                found.update(piece)
            return found.hexdigest() == expected

    return patience.run(attempt) or patience.run(attempt)  # damaged on the way, or in the store?


def _parsed(objects: Objects, key: str, patience: Patience) -> Any:
    def attempt() -> Any:
        try:
            return json.loads(objects.read(key))
        except (FileNotFoundError, ValueError):
            return None

    return patience.run(attempt)


def _names_are_safe(files: Iterable[str]) -> bool:
    return all(_is_safe(name) and "/" not in name for name in files)


def _is_told(about: object) -> bool:
    """Whether it says where a file is and what it is."""
    kinds = {"key": str, "size": int, "digest": str}
    return isinstance(about, dict) and all(type(about.get(name)) is kind for name, kind in kinds.items())


def _is_safe(name: str) -> bool:
    return "\0" not in name and all(part not in ("", ".", "..") for part in name.split("/"))


def _is_ours(folder: str) -> bool:
    try:
        names = set(os.listdir(folder))
    except OSError:
        return False
    markers = {checkpoint.COMMITTED, checkpoint.UNFINISHED}
    return bool(names & markers) or names <= checkpoint.OURS


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


@contextlib.contextmanager
def _volume(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"{printable(path)} can't be written: {error.strerror}") from None


def _write_durably(name: str, text: str) -> None:
    with open(name, "w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

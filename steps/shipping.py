"""What goes to the results store while training goes on: committed checkpoints, a script's own snapshot, logs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from ..learner import checkpoint, contract
from . import restore, safe_files
from .retrying import Patience, Stop
from .storage import Entry, Objects, Source, SourceError, StoreError, printable, settled
from .transfer import Item, Memory, Outcome, Stored, upload

SHARED_LOGS = "_logs"  # in the results: what lies in LOG_DIR beside the learners' own folders
QUIET = 1.0  # seconds without a change before a script's own files are taken as one snapshot
QUIET_TRIES, QUIET_TRIES_AT_THE_END = 3, 30


@dataclass
class Shipment:
    """Where to and with what: `say` takes lines for people."""

    objects: Objects
    job_id: str
    memory: Memory
    patience: Patience
    stop: Stop
    say: Callable[[str], None]

    def skipped(self, folder: str) -> Callable[[str, str], None]:
        """For safe_files.walk: one line for each entry that is left out."""
        return lambda relative, reason: self.say(f"not stored: {printable(f'{folder}/{relative}')}: {reason}")

    def settled(self, folder: str, mount: str) -> str | None:
        """See storage.settled; what is no folder is said."""
        found = settled(folder, mount)
        if found is None and os.path.lexists(folder):
            self.say(f"not stored: {folder}: a link or not a folder")
        return found

    def upload(self, items: list[Item], folder: str) -> Outcome:
        return upload(self.objects, items, folder, self.memory, self.patience, self.stop)


def ship_logs(shipment: Shipment) -> Outcome:
    """LOG_DIR/learner-N/… to <id>/learner-N/…, and what they put beside it to <id>/_logs/…"""
    folder_of_logs, job = contract.path(contract.LOG_DIR), contract.path(contract.JOB_DIR)
    root = shipment.settled(folder_of_logs, job)
    if root is None:
        return Outcome()
    skipped = shipment.skipped(folder_of_logs)
    by_folder: dict[str, list[Item]] = {}
    for name, _, _ in safe_files.walk(root, skipped):
        first, slash, _ = name.partition("/")
        own = bool(slash) and contract.is_member_name(first)
        folder = f"{shipment.job_id}/{first if own else SHARED_LOGS}/"
        key = f"{shipment.job_id}/{name}" if own else f"{folder}{name}"
        by_folder.setdefault(folder, []).append(Item(key, root, name))
    whole = Outcome()
    for folder, items in by_folder.items():
        outcome = shipment.upload(items, folder)
        whole.stored |= outcome.stored
        whole.missing |= outcome.missing
    return whole


def ship_checkpoints(shipment: Shipment, keep: int, final: bool, in_step: Sequence[str] = ()) -> Outcome:
    """The last `keep` committed checkpoints and a script's own files. `final`: nobody writes any more.

    Each checkpoint's marker goes up last and is taken away first. The newest step that all folders `in_step` have in
    the store stays until there is a newer one. Raises StoreError.
    """
    root = shipment.settled(contract.path(contract.CHECKPOINT_DIR), contract.path(contract.JOB_DIR))
    if root is None:
        return Outcome()
    prefix = f"{shipment.job_id}/checkpoints/"
    objects, patience = shipment.objects, shipment.patience
    entries = patience.run(lambda: list(objects.list(prefix)))
    remote = restore.committed(objects, entries, prefix, patience)
    outcome = Outcome()
    folders = restore.folders(root)
    here = [
        (where, found) for where in folders for found in checkpoint.committed(restore.member_folder(root, where))[:keep]
    ]
    here.sort(key=lambda pair: -pair[1].step)  # what members have of one step together: it does not stay long
    for where, found in here:
        shipment.stop.check()
        known = {known.step: known for known in remote.get(where, [])}.get(found.step)
        if known is None or known.marker != found.marker:
            base = os.path.join(prefix, where, "")
            _ship_one(shipment, root, found, base, entries, outcome)
    _remove_old(shipment, prefix, folders, keep, in_step)
    _ship_own_files(shipment, root, prefix, final, outcome)
    shipment.memory.save()
    return outcome


def _ship_one(
    shipment: Shipment,
    root: str,
    found: checkpoint.Checkpoint,
    base: str,
    entries: list[Entry],
    outcome: Outcome,
) -> None:
    objects, patience = shipment.objects, shipment.patience
    folder = f"{base}{checkpoint.PREFIX}{found.step}/"
    marker_key = folder + checkpoint.COMMITTED
    if not checkpoint.verify(found.path):
        if os.path.isdir(found.path):
            shipment.say(f"the checkpoint of step {found.step} is damaged and is not stored")
        return
    if any(entry.key == marker_key for entry in entries):  # it belongs to files that are about to be replaced
        patience.run(lambda: objects.delete(marker_key))
    place = os.path.relpath(found.path, root)
    items = [Item(folder + name, root, f"{place}/{name}") for name in found.marker["files"]]
    done = shipment.upload(items, folder)
    if done.vanished:
        return  # the job has a newer one and has dropped this
    for name, about in found.marker["files"].items():
        stored = done.stored.get(folder + name)
        if stored is None or stored.size != about["size"]:
            outcome.missing[folder + name] = done.missing.get(folder + name, f"{name} has changed")
            return
    if not checkpoint.verify(found.path):  # what was read is what the marker names only if it names it still
        return
    with contextlib.suppress(SourceError, ValueError):
        with Source(root, f"{place}/{checkpoint.COMMITTED}") as source:
            text = b"".join(source.pieces())
        if json.loads(text) != found.marker:
            return
        patience.run(lambda: objects.write(marker_key, text))
        outcome.stored |= done.stored
        outcome.stored[marker_key] = _of_bytes(text)
        shipment.say(f"stored the checkpoint of step {found.step}")
        unused = checkpoint.OURS.difference(found.marker["files"])
        _remove(shipment, [entry.key for entry in entries if entry.key.removeprefix(folder) in unused])


def _remove_old(shipment: Shipment, prefix: str, folders: Iterable[str], keep: int, in_step: Sequence[str]) -> None:
    """Removes checkpoints beyond the `keep` newest, and what unfinished ones left that are older than the newest."""
    objects, patience = shipment.objects, shipment.patience
    entries = patience.run(lambda: list(objects.list(prefix)))
    found = restore.committed(objects, entries, prefix, patience)
    common = restore.common_steps(found, in_step)[:1]
    names = {*checkpoint.OURS, checkpoint.COMMITTED}
    entries.sort(key=lambda entry: not entry.key.endswith("/" + checkpoint.COMMITTED))
    for where in folders:
        base = os.path.join(prefix, where, "")
        kept = {
            one.folder for number, one in enumerate(found.get(where, ())) if number < keep or one.identity in common
        }
        for entry in entries if kept else ():
            place, _, name = entry.key.removeprefix(base).partition("/")
            ours = entry.key.startswith(base + checkpoint.PREFIX) and name in names
            if ours and f"{base}{place}/" not in kept:
                _remove(shipment, [entry.key])


def _remove(shipment: Shipment, keys: Iterable[str]) -> None:
    for key in keys:
        shipment.patience.run(partial(shipment.objects.delete, key))
        shipment.memory.forget(key)


def _ship_own_files(shipment: Shipment, root: str, prefix: str, final: bool, outcome: Outcome) -> None:
    files = _quiet_snapshot(shipment, root, QUIET_TRIES_AT_THE_END if final else QUIET_TRIES)
    if files is None:
        if final:
            outcome.missing[prefix + restore.FILES] = "CHECKPOINT_DIR has not stopped changing"
        return
    objects, patience = shipment.objects, shipment.patience
    listed = _manifest(shipment, prefix)
    if not files:
        return
    in_use = {about["key"] for about in listed.values()}
    items: dict[str, Item] = {}
    for name, _, _ in files:
        key = f"{restore.FILES}/{objects.key(name)}"
        about = listed.get(name)
        if about is not None and not _unchanged(shipment, prefix, about, root, name):
            # The snapshot that is there stays whole until this one is.
            key = f"{restore.FILES_AGAIN if about['key'] == key else restore.FILES}/{objects.key(name)}"
        elif about is not None:
            key = about["key"]
        elif key in in_use:
            key = f"{restore.FILES_AGAIN}/{objects.key(name)}"
        items[name] = Item(prefix + key, root, name)
    done = shipment.upload(list(items.values()), prefix)
    if done.vanished or _snapshot(shipment, root) != files:
        if final:
            outcome.missing[prefix + restore.FILES] = "CHECKPOINT_DIR changed while it was stored"
        return
    if done.missing:
        outcome.missing |= done.missing
        return
    described = {}
    for name, item in items.items():
        stored = done.stored[objects.key(item.key)]
        described[name] = {
            "key": objects.key(item.key).removeprefix(prefix),
            "size": stored.size,
            "digest": stored.digest,
        }
    if described != listed:
        text = json.dumps({"format": 1, "files": described}, indent=1, sort_keys=True).encode("ascii") + b"\n"
        patience.run(lambda: objects.write(prefix + restore.FILES_MANIFEST, text))
        shipment.say(f"stored {len(described)} of the script's own checkpoint files")
    # What no snapshot names any more: of the one before, and of any that a kill left unfinished.
    unused = in_use.union(f"{part}/{objects.key(name)}" for name in described for part in restore.BOTH)
    unused.difference_update(about["key"] for about in described.values())
    there = {entry.key for entry in patience.run(lambda: list(objects.list(prefix)))}
    _remove(shipment, there.intersection(prefix + key for key in unused))
    outcome.stored |= done.stored


def _manifest(shipment: Shipment, prefix: str) -> dict[str, dict[str, str]]:
    try:
        manifest = json.loads(shipment.patience.run(lambda: _read(shipment.objects, prefix + restore.FILES_MANIFEST)))
        files = manifest["files"]
        return {name: about for name, about in files.items() if isinstance(about["key"], str)}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _read(objects: Objects, key: str) -> bytes:
    try:
        return objects.read(key)
    except FileNotFoundError:
        return b""


def _unchanged(shipment: Shipment, prefix: str, about: dict[str, str], root: str, name: str) -> bool:
    entry = shipment.patience.run(lambda: shipment.objects.find(prefix + about["key"]))
    if entry is None:
        return False
    try:
        with Source(root, name) as source:
            digest = shipment.memory.recall(entry.key, source, entry.tag) or shipment.objects.same(entry, source)
    except SourceError:
        return False
    return f"md5:{digest}" == about["digest"]


def _quiet_snapshot(shipment: Shipment, root: str, tries: int) -> list[tuple[str, int, int]] | None:
    said: set[str] = set()

    def skipped(relative: str, reason: str) -> None:
        if relative not in said:
            said.add(relative)
            shipment.skipped(contract.path(contract.CHECKPOINT_DIR))(relative, reason)

    before = restore.own_files(root, skipped)
    for _ in range(tries):
        newest = max((mtime_ns for _, _, mtime_ns in before), default=0)
        if not before or abs(time.time_ns() - newest) > QUIET * 5e9:
            return before  # long untouched
        shipment.stop.wait(QUIET)
        after = restore.own_files(root, skipped)
        if after == before:
            return before
        before = after
    return None


def _snapshot(shipment: Shipment, root: str) -> list[tuple[str, int, int]]:
    return restore.own_files(root)


def _of_bytes(data: bytes) -> Stored:
    return Stored(len(data), f"md5:{hashlib.md5(data, usedforsecurity=False).hexdigest()}", "")


def forbid_missing(outcome: Outcome, objects: Objects) -> None:
    """Raises StoreError if something could not be stored."""
    if outcome.missing:
        first = next(iter(outcome.missing.values()))
        raise StoreError(f"{len(outcome.missing)} files are not in {objects.where}, the first: {first}", permanent=True)

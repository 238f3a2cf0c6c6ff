"""ConfigMaps and Secrets that pods refer to: the job's own, else those that the user has put into the home."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .state import Home, Job

CONFIG_MAP, SECRET = "configmap", "secret"


class CannotStartError(Exception):
    """A pod that waits for something that isn't there, as a pod on a cluster would. The text says what."""


class Objects:
    """Folders with a file a key."""

    def __init__(self, home: Home, job: Job) -> None:
        self._home, self._job = home, job

    def folder(self, kind: str, name: str, optional: bool) -> Path | None:
        """None only if `optional`. Raises CannotStartError."""
        own, users = self._job.objects / f"{kind}s" / name, self._home.path / f"{kind}s" / name
        found = next((folder for folder in (own, users) if folder.is_dir()), None)
        if found is None and not optional:
            raise CannotStartError(f'{kind} "{name}" not found; put its keys as files into {users}')
        return found

    def values(self, kind: str, reference: Mapping[str, Any]) -> dict[str, str]:
        """All of an object, text by key. Raises CannotStartError."""
        folder = self.folder(kind, reference["name"], bool(reference.get("optional")))
        if folder is None:
            return {}
        return {
            file.name: file.read_text(errors="surrogateescape") for file in sorted(folder.iterdir()) if file.is_file()
        }

    def value(self, kind: str, reference: Mapping[str, Any]) -> str | None:
        """One value; None if `optional` and not there. Raises CannotStartError."""
        found = self.values(kind, reference).get(reference["key"])
        if found is None and not reference.get("optional"):
            raise CannotStartError(f'couldn\'t find key {reference["key"]} in {kind} "{reference["name"]}"')
        return found

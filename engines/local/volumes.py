"""The volumes of a pod: what a template declares becomes folders of this machine, mounted where it says."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .environment import expand
from .objects import CONFIG_MAP, SECRET, CannotStartError, Objects
from .pod import Mount, Volume
from .state import Home, Job

_SHARED_MEMORY = "/dev/shm"
_FILES = ("File", "FileOrCreate", "Socket", "CharDevice", "BlockDevice")


class Volumes:
    """Those that the containers of one pod mount: `used`, by name. `overlay`: read-only host paths take writes."""

    def __init__(self, home: Home, job: Job, declared: list[Mapping[str, Any]], overlay: bool) -> None:
        self._home, self._job, self._overlay = home, job, overlay
        self._objects = Objects(home, job)
        self._declared = {volume["name"]: volume for volume in declared}
        self.used: dict[str, Volume] = {}

    def mount(self, mount: Mapping[str, Any], env: Mapping[str, str]) -> Mount | None:
        """None for what this machine has there already. Raises CannotStartError."""
        name, read_only = mount["name"], bool(mount.get("readOnly"))
        declared = self._declared.get(name)
        if declared is None:
            raise CannotStartError(f'volume "{name}" is not declared')
        if "emptyDir" in declared and os.path.normpath(mount["mountPath"]) == _SHARED_MEMORY:
            return None
        volume = self._volume(declared, read_only)
        key = f"{name}-overlay" if volume.kind == "overlay" else name
        self.used[key] = volume
        sub_path = mount.get("subPath") or expand(mount.get("subPathExpr") or "", env)
        if ".." in sub_path.split("/"):
            raise CannotStartError(f"subPath {sub_path} of volume {name} leads out of it")
        return Mount(key, mount["mountPath"], sub_path, read_only and volume.kind != "overlay")

    def add(self, name: str, volume: Volume, path: str, sub_path: str = "") -> Mount:
        """A volume of the engine's own."""
        self.used[name] = volume
        return Mount(name, path, sub_path)

    def _volume(self, declared: Mapping[str, Any], read_only: bool) -> Volume:
        if "persistentVolumeClaim" in declared:
            claim = declared["persistentVolumeClaim"]["claimName"]
            own = claim.removeprefix(f"{self._job.id}-")  # one of the Workflow's volumeClaimTemplates
            return _folder((self._home if own == claim else self._job).path / "claims" / own)
        if "configMap" in declared:
            source = declared["configMap"]
            return self._object(CONFIG_MAP, source["name"], source)
        if "secret" in declared:
            source = declared["secret"]
            return self._object(SECRET, source["secretName"], source)
        if "hostPath" in declared:
            return self._host_path(declared["hostPath"] or {}, read_only)
        return Volume("empty")

    def _object(self, kind: str, name: str, source: Mapping[str, Any]) -> Volume:
        folder = self._objects.folder(kind, name, bool(source.get("optional")))
        if folder is None:
            return Volume("empty")
        if not source.get("items"):
            return Volume("folder", str(folder))
        values = self._objects.values(kind, {"name": name})
        missing = next((item["key"] for item in source["items"] if item["key"] not in values), None)
        if missing is not None and not source.get("optional"):
            raise CannotStartError(f"references non-existent {kind} key: {missing}")
        chosen = {item["path"]: values[item["key"]] for item in source["items"] if item["key"] in values}
        return Volume("empty", files=chosen, mode=0o644)

    def _host_path(self, source: Mapping[str, Any], read_only: bool) -> Volume:
        path, kind = Path(source["path"]), source.get("type") or ""
        try:
            if kind == "DirectoryOrCreate":
                path.mkdir(parents=True, exist_ok=True)
            elif kind == "FileOrCreate":
                path.touch(exist_ok=True)
        except OSError as error:
            raise CannotStartError(f"host path {path} can't be made: {error.strerror}") from None
        if kind in _FILES or (not kind and path.exists() and not path.is_dir()):
            if not path.exists() or path.is_dir():
                raise CannotStartError(f"host path {path} is not a file on this machine")
            return Volume("folder", str(path))
        if not path.is_dir():
            raise CannotStartError(f"host path {path} is not a folder on this machine")
        return Volume("overlay" if read_only and self._overlay else "folder", str(path))


def _folder(path: Path) -> Volume:
    path.mkdir(parents=True, exist_ok=True, mode=0o777)
    return Volume("folder", str(path))

"""What a build gets to see: the recipes and the code of the ffdl that runs this, installed or a checkout alike."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from importlib.metadata import distribution
from pathlib import Path

IMAGES = ("steps", "agent", "learner-numpy", "learner-pytorch")
BY_DEFAULT = ("steps", "agent", "learner-numpy")
ROOMS = ("argo_config", "cli", "engines", "images", "learner", "steps", "workflows")
_RECIPES = (*(f"{name}.Containerfile" for name in IMAGES), "launcher.c", "pack.py")
_COMMAND = "#!/opt/ffdl/bin/python3\nfrom ffdl.cli import main\n\nmain()\n"
_NO_CODE = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")


def write_context(folder: Path) -> None:
    """Fills the empty `folder`. The same code makes the same files, times included: builders cache by that."""
    for name in _RECIPES:
        shutil.copyfile(Path(__file__).with_name(name), folder / name)
    package = folder / "code" / "ffdl"
    _copy("ffdl", package, *ROOMS)
    for room in ROOMS:
        _copy(f"ffdl.{room}", package / room)
    ours = distribution("ffdl")
    metadata = folder / "code" / f"ffdl-{ours.version}.dist-info"
    metadata.mkdir()
    # PKG-INFO: what a checkout's own metadata is called
    (metadata / "METADATA").write_text(ours.read_text("METADATA") or ours.read_text("PKG-INFO") or "")
    (metadata / "entry_points.txt").write_text(ours.read_text("entry_points.txt") or "")
    (folder / "requirements.txt").write_text(requirements(ours.requires or []))
    (folder / "ffdl").write_text(_COMMAND)
    for path in [folder, *folder.rglob("*")]:
        os.chmod(path, 0o755 if path.is_dir() or path == folder / "ffdl" else 0o644)
        os.utime(path, (0, 0))


def requirements(names: list[str]) -> str:
    """A distribution's own requirements, without those of its extras, a line each."""
    return "".join(sorted(f"{name}\n" for name in names if not re.search(r"\bextra\s*==", name)))


def _copy(package: str, target: Path, *ignored: str) -> None:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations
    source = spec.submodule_search_locations[0]

    def ignore(folder: str, names: list[str]) -> set[str]:
        return set(_NO_CODE(folder, names)) | (set(ignored) if folder == source else set())

    shutil.copytree(source, target, ignore=ignore, dirs_exist_ok=True)

"""What goes into the images: all of ffdl and nothing else, the same from a checkout and from an installed package."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tomllib
from pathlib import Path

from ffdl.images.context import IMAGES, ROOMS, requirements, write_context

ROOT = Path(__file__).parents[2]


def digest(folder: Path) -> str:
    seen = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        state = path.stat()
        seen.update(f"{path.relative_to(folder)} {state.st_mode:o} {state.st_mtime_ns}\n".encode())
        seen.update(path.read_bytes() if path.is_file() else b"")
    return seen.hexdigest()


def test_the_images_have_every_package_of_the_distribution(tmp_path: Path) -> None:
    """A step that lacks a module fails in the cluster, long after the job was submitted."""
    write_context(tmp_path)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    for package, folder in settings["package-dir"].items():
        there = {path.name for path in (tmp_path / "code" / package.replace(".", "/")).glob("*.py")}
        assert there == {path.name for path in (ROOT / folder).glob("*.py")}, package
    rooms = {package.split(".")[1] for package in settings["packages"] if "." in package}
    assert rooms == set(ROOMS)
    assert {f"{name}.Containerfile" for name in IMAGES} == {path.name for path in (ROOT / "images").glob("*file")}
    assert not list(tmp_path.rglob("__pycache__"))


def test_an_installed_ffdl_builds_the_same_images(tmp_path: Path) -> None:
    """Most people have no checkout. The code in an image is laid out as an installed package is."""
    write_context(tmp_path)
    again = tmp_path.with_name("again")
    again.mkdir()
    program = f"import sys; sys.path.insert(0, {str(tmp_path / 'code')!r}); from pathlib import Path\n"
    program += f"from ffdl.images.context import write_context; write_context(Path({str(again)!r}))"
    subprocess.run([sys.executable, "-I", "-S", "-B", "-c", program], check=True)
    assert digest(again) == digest(tmp_path)


def test_requirements_are_those_of_everyone() -> None:
    """Tools for tests have no business in an image."""
    names = ["numpy>=1.24", "click>=8", 'pytest>=8; extra == "test"', 'tomli; python_version < "3.11"']
    assert requirements(names) == 'click>=8\nnumpy>=1.24\ntomli; python_version < "3.11"\n'

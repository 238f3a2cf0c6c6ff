"""Copies CPython with its standard library, its shared libraries and their loader: `python3 pack.py FOLDER`.

Runs while the image ffdl-agent is built, on the Python that is to be copied.
"""

from __future__ import annotations

import compileall
import os
import py_compile
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

UNUSED = (
    "ensurepip", "idlelib", "lib2to3", "pydoc_data", "test", "tests", "tkinter", "turtledemo", "config-*",
    "dist-packages", "site-packages", "lib-dynload", "__pycache__",
)  # fmt: skip


def needed(binaries: list[Path]) -> tuple[dict[str, Path], Path]:
    """The shared libraries of `binaries`, by the name under which they are looked up, and their loader."""
    found: dict[str, Path] = {}
    loaders = set()
    for binary in binaries:
        said = subprocess.run(["ldd", binary], capture_output=True, text=True, check=True).stdout
        for name, path in re.findall(r"^\s*(\S+) => (/\S+)", said, re.MULTILINE):
            found[name] = Path(path)
        loaders.update(re.findall(r"^\s*(/\S+) \(", said, re.MULTILINE))
    (loader,) = loaders
    return found, Path(loader)


def pack(folder: Path) -> None:
    """Writes bin/python3, lib/loader, lib/*.so.*, lib/pythonXY.zip and lib/python3.X below `folder`."""
    standard = Path(sysconfig.get_path("stdlib"))
    library = folder / "lib"
    extensions = library / standard.name / "lib-dynload"
    shutil.copytree(standard / "lib-dynload", extensions, ignore=shutil.ignore_patterns("_test*", "__pycache__"))
    pack_modules(standard, library)
    interpreter = folder / "bin" / "python3"
    interpreter.parent.mkdir()
    shutil.copy(os.path.realpath(sys.executable), interpreter)
    libraries, loader = needed([interpreter, *sorted(extensions.glob("*.so"))])
    for name, path in libraries.items():
        shutil.copy(path.resolve(), library / name)
    shutil.copy(loader.resolve(), library / "loader")
    os.chmod(library / "loader", 0o755)
    # Debian's Python looks for packages in lib/python3/dist-packages, others in lib/python3.X/site-packages
    for packages in (library / "python3" / "dist-packages", library / standard.name / "site-packages"):
        packages.mkdir(parents=True)
        up = "../" * len(packages.relative_to(folder).parts)
        (packages / "ffdl.pth").write_text(f"{up}code\n")


def pack_modules(standard: Path, library: Path) -> None:
    """The standard library as one file, compiled: each start of a learner copies it, and a thousand files take long.

    By `os`, as a file, Python knows where its library is.
    """
    with tempfile.TemporaryDirectory() as work:
        copy = Path(work) / "copy"
        shutil.copytree(standard, copy, ignore=shutil.ignore_patterns(*UNUSED))
        unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
        if not compileall.compile_dir(copy, quiet=1, legacy=True, stripdir=work, invalidation_mode=unchecked):
            raise SystemExit("the standard library can't be compiled")
        shutil.copy(copy / "os.pyc", library / standard.name)
        with zipfile.ZipFile(library / "python{}{}.zip".format(*sys.version_info), "w") as archive:
            for path in sorted(copy.rglob("*.pyc")):
                archive.write(path, path.relative_to(copy))


if __name__ == "__main__":
    pack(Path(sys.argv[1]))

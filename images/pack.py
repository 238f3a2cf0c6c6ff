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
from pathlib import Path

UNUSED = ("ensurepip", "idlelib", "lib2to3", "pydoc_data", "test", "tkinter", "turtledemo", "config-*", "__pycache__")


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
    """Writes bin/python3, lib/loader, lib/*.so.* and lib/python3.X below `folder`."""
    standard = Path(sysconfig.get_path("stdlib"))
    target = folder / "lib" / standard.name
    shutil.copytree(standard, target, ignore=shutil.ignore_patterns(*UNUSED, "dist-packages", "site-packages"))
    interpreter = folder / "bin" / "python3"
    interpreter.parent.mkdir()
    shutil.copy(os.path.realpath(sys.executable), interpreter)
    extensions = sorted((target / "lib-dynload").glob("*.so"))
    libraries, loader = needed([interpreter, *extensions])
    for name, path in libraries.items():
        shutil.copy(path.resolve(), folder / "lib" / name)
    shutil.copy(loader.resolve(), folder / "lib" / "loader")
    os.chmod(folder / "lib" / "loader", 0o755)
    # Debian's Python looks for packages in lib/python3/dist-packages, others in lib/python3.X/site-packages
    for packages in (folder / "lib/python3/dist-packages", target / "site-packages"):
        packages.mkdir(parents=True)
        up = "../" * len(packages.relative_to(folder).parts)
        (packages / "ffdl.pth").write_text(f"{up}code\n")
    # files are copied without their times, so the compiled ones must not be judged by them
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    if not compileall.compile_dir(folder / "lib", quiet=1, invalidation_mode=unchecked):
        raise SystemExit("the standard library can't be compiled")


if __name__ == "__main__":
    pack(Path(sys.argv[1]))

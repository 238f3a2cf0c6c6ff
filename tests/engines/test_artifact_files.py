"""Artifacts on disk: packed and unpacked as Argo does, whatever is in them."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from ffdl.engines.local.artifacts import ArtifactError, pack, unpack


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with names, modes, links and an empty folder in it."""
    made = tmp_path / "made"
    (made / "in side" / "deep").mkdir(parents=True)
    (made / "empty").mkdir()
    (made / "in side" / "žluť\n").write_text("text")
    (made / "run").write_text("#!/bin/sh\n")
    (made / "run").chmod(0o755)
    (made / "link").symlink_to("in side/žluť\n")
    os.link(made / "run", made / "again")
    return made


def seen(folder: Path) -> dict[str, str]:
    """What is in a folder: contents, targets of links, and whether it can be executed."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        elif path.is_file():
            found[name] = f"{path.read_text()}{'*' if os.access(path, os.X_OK) and path.stat().st_mode & 0o111 else ''}"
        else:
            found[name] = "/"
    return found


@pytest.mark.parametrize("archive", ["tar", "none"])
def test_a_folder_comes_back_as_it_was(tree: Path, tmp_path: Path, archive: str) -> None:
    """The archive's one entry, the folder, becomes the target itself."""
    pack(str(tree), str(tmp_path / "stored"), archive, -1)
    unpack(str(tmp_path / "stored"), str(tmp_path / "back"), "auto" if archive == "tar" else archive)
    assert seen(tmp_path / "back") == seen(tree)


def test_a_file_that_happens_to_be_an_archive(tmp_path: Path) -> None:
    """Packed with `none` and taken with it, it stays one; else it is unpacked, as Argo does."""
    inner = tmp_path / "inner.tgz"
    with tarfile.open(inner, "w:gz") as made:
        for name in ("a", "b"):
            made.addfile(tarfile.TarInfo(name), io.BytesIO())
    unpack(str(inner), str(tmp_path / "kept"), "none")
    assert (tmp_path / "kept").read_bytes() == inner.read_bytes()
    unpack(str(inner), str(tmp_path / "opened"), "auto")
    assert sorted(os.listdir(tmp_path / "opened")) == ["a", "b"]


def test_a_plain_file_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("no archive")
    unpack(str(tmp_path / "plain"), str(tmp_path / "back"), "auto")
    assert (tmp_path / "back").read_text() == "no archive"


def entry(name: str, link: str = "", kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = (tarfile.SYMTYPE, link) if link else (kind, "")
    return info


@pytest.mark.parametrize(
    "entries",
    [
        [entry("../out")],
        [entry("a/../../out")],
        [entry("link", "/tmp")],
        [entry("link", "../..")],
        [entry("d", kind=tarfile.DIRTYPE), entry("d/link", "../../out")],
    ],
)
def test_nothing_is_written_outside(tmp_path: Path, entries: list[tarfile.TarInfo]) -> None:
    """What a step has made may be anybody's: its archive leads to no other place of this machine."""
    with tarfile.open(tmp_path / "bad.tgz", "w:gz") as made:
        for info in [entry("first"), *entries]:
            made.addfile(info, io.BytesIO())
    with pytest.raises(ArtifactError, match="illegal file path"):
        unpack(str(tmp_path / "bad.tgz"), str(tmp_path / "inside" / "back"), "tar")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "inside" / "back").exists()


def test_names_from_the_root_stay_inside(tmp_path: Path) -> None:
    """`/etc/x` of an archive is `etc/x` in the target."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as made:
        made.writestr("/etc/x", "mine")
        made.writestr("y", "mine")
    unpack(str(tmp_path / "a.zip"), str(tmp_path / "back"), "zip")
    assert seen(tmp_path / "back") == {"etc": "/", "etc/x": "mine", "y": "mine"}


@pytest.mark.parametrize(("data", "archive"), [(b"", "tar"), (b"\x1f\x8b\x08\0junk", "tar"), (b"PK", "zip")])
def test_what_is_no_archive(tmp_path: Path, data: bytes, archive: str) -> None:
    """A broken file is one clear line, and leaves nothing behind."""
    (tmp_path / "broken").write_bytes(data)
    with pytest.raises(ArtifactError, match="can't be unpacked"):
        unpack(str(tmp_path / "broken"), str(tmp_path / "back"), archive)
    assert os.listdir(tmp_path) == ["broken"]


def test_a_pipe_can_not_be_kept(tmp_path: Path) -> None:
    """Nor is it waited for."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ArtifactError, match="is not a regular file or directory"):
        pack(str(tmp_path / "pipe"), str(tmp_path / "stored"), "tar", -1)

"""Image archives are written without any tool for images; every tool must be able to read them."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.images import Image, archive


def read(file: Path) -> tuple[dict[str, bytes], tarfile.TarFile]:
    """The archive's files, and its only layer."""
    with tarfile.open(file) as tar:
        members = {entry.name: tar.extractfile(entry) for entry in tar if entry.isfile()}
        files = {name: data.read() for name, data in members.items() if data is not None}
    manifest = follow(files, json.loads(files["index.json"])["manifests"][0])
    (layer,) = json.loads(manifest)["layers"]
    follow(files, layer)
    digest = layer["digest"].replace(":", "/")
    layer_file = file.with_suffix(".layer")
    layer_file.write_bytes(files[f"blobs/{digest}"])
    return files, tarfile.open(layer_file)


def follow(files: dict[str, bytes], pointer: dict[str, Any]) -> bytes:
    """What a pointer of the archive points at, if size and digest are right."""
    blob = files[f"blobs/{pointer['digest'].replace(':', '/')}"]
    assert pointer["digest"] == f"sha256:{hashlib.sha256(blob).hexdigest()}"
    assert pointer["size"] == len(blob)
    return blob


def test_an_image_holds_its_programs(tmp_path: Path) -> None:
    """What the kubelet starts is the program that was built, executable, with room for temporary files."""
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF")
    program.chmod(0o755)
    config = {"Entrypoint": ["thing"], "User": "8737"}
    file = archive(Image("localhost/thing:2", {"bin/thing": program}, config=config), tmp_path / "images")
    files, layer = read(file)
    index = json.loads(files["index.json"])["manifests"][0]
    assert index["annotations"]["io.containerd.image.name"] == "localhost/thing:2"
    described = json.loads(follow(files, json.loads(follow(files, index))["config"]))
    assert described["config"] == config
    assert len(described["history"]) == len(described["rootfs"]["diff_ids"]) == 1
    with layer:
        assert layer.getmember("bin/thing").mode == 0o755
        assert layer.getmember("bin/thing").uid == 0
        assert layer.getmember("tmp").mode == 0o1777


def test_an_image_of_a_root_folder_holds_all_of_it(tmp_path: Path) -> None:
    """The Debian base keeps its links and modes."""
    root = tmp_path / "root"
    (root / "usr" / "bin").mkdir(parents=True)
    (root / "bin").symlink_to("usr/bin")
    (root / "usr" / "bin" / "sh").touch(mode=0o755)
    _, layer = read(archive(Image("localhost/base:1", root=root), tmp_path / "images"))
    with layer:
        assert layer.getmember("./bin").linkname == "usr/bin"
        assert layer.getmember("./usr/bin/sh").mode == 0o755


def test_an_archive_is_written_once_for_what_it_holds(tmp_path: Path) -> None:
    """Another build or another configuration is another archive; the same one costs nothing."""
    program = tmp_path / "program"
    program.touch()
    images = [Image("localhost/a:1", {"a": program}), Image("localhost/a:1", {"a": program}, config={"User": "1"})]
    files = [archive(image, tmp_path / "images") for image in images]
    times = [file.stat().st_mtime_ns for file in files]
    assert files[0] != files[1]
    assert [archive(image, tmp_path / "images").stat().st_mtime_ns for image in images] == times
    assert sorted((tmp_path / "images").iterdir()) == sorted(files)


def test_a_failed_archive_leaves_nothing(tmp_path: Path) -> None:
    """A full disk must not leave half an image that the next `up` takes for a whole one."""
    with pytest.raises(FileNotFoundError):
        archive(Image("localhost/a:1", {"a": tmp_path / "absent"}), tmp_path / "images")
    assert list((tmp_path / "images").iterdir()) == []

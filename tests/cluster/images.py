"""The images of the cluster's own pods, as OCI archives written without any registry or builder."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

DEBIAN = "localhost/debian:bookworm"
HISTORY = [{"created_by": "tests/cluster"}]  # buildah wants as many entries as there are layers
LAYER = "application/vnd.oci.image.layer.v1.tar"
MANIFEST, CONFIG = "application/vnd.oci.image.manifest.v1+json", "application/vnd.oci.image.config.v1+json"


@dataclass(frozen=True)
class Image:
    """An image of one layer: programs (path inside -> file here), or a whole root folder."""

    name: str
    programs: Mapping[str, Path] = field(default_factory=dict)
    root: Path | None = None
    config: Mapping[str, object] = field(default_factory=dict)


def own(builds: Mapping[str, Path], argo: str) -> list[Image]:
    """The images that the cluster itself needs, and Debian, the base of all others. `argo` is the version of Argo."""
    path = {"Env": ["PATH=/bin"]}
    return [
        Image("localhost/pause:1", {"pause": builds["pause"] / "pause"}, config={"Entrypoint": ["/pause"]}),
        Image("localhost/coredns:1", {"coredns": builds["coredns"] / "coredns"}, config={"Entrypoint": ["/coredns"]}),
        *(
            Image(
                f"localhost/{name}:{argo}",
                {f"bin/{file}": builds["argo"] / file},
                config=path | {"User": "8737", "Entrypoint": [file]},
            )
            for name, file in (("workflow-controller", "workflow-controller"), ("argocli", "argo"))
        ),
        Image(
            f"localhost/argoexec:{argo}",
            {"bin/argoexec": builds["argo"] / "argoexec"},
            config=path | {"Entrypoint": ["argoexec"]},
        ),
        Image(DEBIAN, root=builds["debian"] / "rootfs", config={"Cmd": ["/bin/bash"]}),
    ]


def archive(image: Image, folder: Path) -> Path:
    """The image as an OCI archive in a folder, written now if it was not there. Its name tells its content."""
    sources = sorted(map(str, [*image.programs.values(), image.root]))  # keyed by their recipes
    key = hashlib.sha256(json.dumps([image.name, sources, dict(image.config), HISTORY]).encode()).hexdigest()[:12]
    done = folder / f"{image.name.rpartition('/')[2].replace(':', '-')}-{key}.tar"
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".", dir=folder) as work:
            layer = Path(work) / "layer"
            _write_layer(image, layer)
            _write_archive(image, layer, Path(work) / "archive")
            (Path(work) / "archive").rename(done)
    return done


def _write_layer(image: Image, layer: Path) -> None:
    if image.root is not None:
        subprocess.run(["tar", "--numeric-owner", "-C", str(image.root), "-cf", str(layer), "."], check=True)
        return
    with tarfile.open(layer, "w") as tar:
        for folder, mode in (("bin", 0o755), ("etc", 0o755), ("tmp", 0o1777)):  # argoexec writes to /tmp, whoever it is
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            tar.addfile(entry)
        _add(tar, "etc/passwd", b"root:x:0:0:root:/root:/sbin/nologin\n")
        for inside, program in image.programs.items():
            entry = tar.gettarinfo(program, inside)
            entry.uid = entry.gid = 0
            with program.open("rb") as file:
                tar.addfile(entry, file)


def _write_archive(image: Image, layer: Path, target: Path) -> None:
    with layer.open("rb") as file:
        digest = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    rootfs = {"type": "layers", "diff_ids": [digest]}
    described = {"architecture": "amd64", "os": "linux", "config": image.config, "rootfs": rootfs, "history": HISTORY}
    config = _json(described)
    layers = [{"mediaType": LAYER, "digest": digest, "size": layer.stat().st_size}]
    pointer = {"mediaType": CONFIG, "digest": _digest(config), "size": len(config)}
    manifest = _json({"schemaVersion": 2, "mediaType": MANIFEST, "config": pointer, "layers": layers})
    names = {"io.containerd.image.name": image.name, "org.opencontainers.image.ref.name": image.name}
    entry = {"mediaType": MANIFEST, "digest": _digest(manifest), "size": len(manifest), "annotations": names}
    with tarfile.open(target, "w") as tar:
        _add(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add(tar, "index.json", _json({"schemaVersion": 2, "manifests": [entry]}))
        for blob in (config, manifest):
            _add(tar, f"blobs/{_digest(blob).replace(':', '/')}", blob)
        tar.add(layer, f"blobs/{digest.replace(':', '/')}")


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    tar.addfile(entry, io.BytesIO(data))

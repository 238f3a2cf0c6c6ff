"""buildah or docker, whichever works here: builds, pushes and archives images."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

BUILDERS = ("buildah", "docker")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY")
_NO_BASE = re.compile(
    r"creating build container|initializing source docker://|resolve source metadata|pull access denied|manifest unknown"
)
_TELLING = re.compile(r"error|^E: |fatal|denied|unable|could not|cannot|can't", re.IGNORECASE)


class BuildError(Exception):
    """An image could not be made or sent. Its text is one line; `log` is what the builder said."""

    exit_code = 4

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


@dataclass(frozen=True)
class Builder:
    """The program `name`. `verbose` lets it write to this process's standard error."""

    name: str
    verbose: bool = False

    def build(self, recipe: Path, image: str, base: str, secrets: Mapping[str, Path]) -> None:
        """Builds `image` from `recipe`, which lies in its context. Raises BuildError."""
        command = self.build_command(recipe, image, base, secrets, os.environ)
        try:
            self._run(command)
        except BuildError as error:
            if _NO_BASE.search(str(error)):
                raise BuildError(f"the base image {base} can't be had ({error}); name one with --base") from None
            raise BuildError(f"{image} can't be built: {error}; -v shows all that {self.name} says", error.log) from None

    def build_command(
        self, recipe: Path, image: str, base: str, secrets: Mapping[str, Path], environment: Mapping[str, str]
    ) -> list[str]:
        """The command that builds."""
        command = [self.name, "build", "-f", str(recipe), "-t", image, "--build-arg", f"BASE={base}"]
        command += ["--layers"] if self.name == "buildah" else []
        for secret, path in sorted(secrets.items()):
            command += ["--secret", f"id={secret},src={path}"]
        for name in (*_PROXIES, *(proxy.lower() for proxy in _PROXIES)):
            command += ["--build-arg", name] if environment.get(name) else []  # its value is taken from the environment
        return [*command, str(recipe.parent)]

    def push(self, image: str) -> None:
        """Sends `image` to its registry. Raises BuildError."""
        try:
            self._run([self.name, "push", image])
        except BuildError as error:
            login = f"`{self.name} login {image.partition('/')[0]}`"
            raise BuildError(f"{image} was not taken: {error}; {login} if it wants to know who you are") from None

    def archive(self, image: str, file: Path) -> None:
        """Writes `image` to `file`, which `ctr images import` and `docker load` read. Raises BuildError."""
        partial = file.with_name(f"{file.name}.partial")
        partial.unlink(missing_ok=True)
        if self.name == "buildah":
            # this form leaves the layers as they are; an OCI archive compresses them, which takes five times as long
            self._run(["buildah", "push", image, f"docker-archive:{partial}:{image}"])
        else:
            self._run(["docker", "save", "-o", str(partial), image])
        partial.replace(file)

    def size(self, image: str) -> str:
        """Of its files, for people."""
        return self._run([self.name, "images", "--format", "{{.Size}}", image], quiet=True).strip()

    def _run(self, command: Sequence[str], quiet: bool = False) -> str:
        """All that it said. Raises BuildError with the most telling line of that."""
        environment = {**os.environ, "DOCKER_BUILDKIT": "1", "BUILDKIT_PROGRESS": "plain"}
        lines = []
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                if self.verbose and not quiet:
                    sys.stderr.write(line)
        log = "".join(lines)
        if process.returncode:
            raise BuildError(telling_line(log) or f"{command[0]} ended with exit code {process.returncode}", log)
        return log


def find_builder(wanted: str | None = None, verbose: bool = False) -> Builder:
    """The first of BUILDERS that works here, or `wanted`. Raises BuildError."""
    broken: list[str] = []
    for name in (wanted,) if wanted else BUILDERS:
        if shutil.which(name):
            # docker is often there without the engine that does the work
            answer = subprocess.run([name, "info"], capture_output=True, text=True, check=False)
            if answer.returncode == 0:
                return Builder(name, verbose)
            broken.append(f"{name} does not work here: {telling_line(answer.stdout + answer.stderr)}")
    raise BuildError("; ".join([*broken, "install buildah (Debian, Ubuntu: apt install buildah) or Docker"]))


def telling_line(log: str) -> str:
    """The last line of `log` that speaks of an error, else its last one."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    telling = [line for line in lines if _TELLING.search(line)]
    return (telling or lines or [""])[-1]

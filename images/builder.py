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
    r"creating build container|initializing source \S+://|source metadata|pull access denied|manifest unknown"
)
_NO_NETWORK = re.compile(
    r"temporary failure|could not resolve|name or service not known|network is unreachable|no route to host"
    r"|could not connect|connection (refused|timed out)|failed to establish a new connection",
    re.IGNORECASE,
)
_TELLING = re.compile(r"error|^[EW]: |fatal|denied|unable|could not|cannot|can't", re.IGNORECASE)
_WRAPPED = re.compile(r"building at STEP|exit status|exit code|did not complete")  # that it failed, not why


class BuildError(Exception):
    """An image could not be made or sent. Its text is one line."""

    exit_code = 4


class _Failed(Exception):  # noqa: N818
    """A program ended badly; the text is all that it said."""


@dataclass(frozen=True)
class Builder:
    """The program `name`; `verbose` passes what it says on to standard error."""

    name: str
    verbose: bool = False

    def build(self, recipe: Path, image: str, base: str, secrets: Mapping[str, Path]) -> None:
        """Builds `image` from `recipe`, which lies in its context. Raises BuildError."""
        command = self.build_command(recipe, image, base, secrets, os.environ)
        try:
            self._run(command)
        except _Failed as failed:
            raise BuildError(self.why(str(failed), image, base)) from None

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

    def why(self, log: str, image: str, base: str) -> str:
        """What a person is told of a build that failed with `log`."""
        line = telling_line(log)
        if _NO_BASE.search(line):
            return f"the base image {base} can't be had: {line}; --base names another"
        network = [line.strip() for line in log.splitlines() if _NO_NETWORK.search(line)]
        if network:
            return f"{image} can't be built: no way to a server of packages: {network[-1]} (HTTP_PROXY is heeded)"
        return f"{image} can't be built: {line}; -v shows all that {self.name} says"

    def push(self, image: str, insecure: bool = False) -> None:
        """Sends `image` to its registry, by plain HTTP too where `insecure`. Raises BuildError."""
        heedless = ["--tls-verify=false"] if insecure and self.name == "buildah" else []
        try:
            self._run([self.name, "push", *heedless, image])
        except _Failed as failed:
            registry, line = image.partition("/")[0], telling_line(str(failed))
            help_ = f"`{self.name} login {registry}` if it wants to know who you are"
            if "HTTP response to HTTPS client" in line:
                help_ = "--insecure" if self.name == "buildah" else "allow it in docker's `insecure-registries`"
            raise BuildError(f"{image} was not taken by {registry}: {line}; {help_}") from None

    def archive(self, image: str, file: Path) -> None:
        """Writes `image` to `file`, which `ctr images import` and `docker load` read. Raises BuildError."""
        partial = file.with_name(f"{file.name}.partial")
        partial.unlink(missing_ok=True)
        try:
            if self.name == "buildah":
                # this form leaves the layers as they are; an OCI archive compresses them: five times the time
                self._run(["buildah", "push", image, f"docker-archive:{partial}:{image}"])
            else:
                self._run(["docker", "save", "-o", str(partial), image])
        except _Failed as failed:
            raise BuildError(f"{file} can't be written: {telling_line(str(failed))}") from None
        partial.replace(file)

    def size(self, image: str) -> str:
        """Of its files, for people."""
        try:
            return self._run([self.name, "images", "--format", "{{.Size}}", image], quiet=True).split("\n")[0]
        except _Failed:
            return "of unknown size"

    def _run(self, command: Sequence[str], quiet: bool = False) -> str:
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
            raise _Failed(log or f"{command[0]} ended with exit code {process.returncode}")
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
    missing = f"no {wanted} here" if wanted else "nothing here builds images"
    raise BuildError(
        "; ".join([*(broken or [missing]), "install buildah (Debian, Ubuntu: apt install buildah) or Docker"])
    )


def telling_line(log: str) -> str:
    """The line of `log` that tells best why something failed: the last of an error, else the last."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    telling = [line for line in lines if _TELLING.search(line)]
    reasons = [line for line in telling if not _WRAPPED.search(line)]
    return (reasons or telling or lines or [""])[-1].removeprefix("Error: ").removeprefix("ERROR: ")

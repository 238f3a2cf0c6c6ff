"""How this machine's pip reaches its index, for a pip in a container: secrets of the build, never part of an image."""

from __future__ import annotations

import configparser
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

CERTIFICATES = "/run/secrets/certificates"  # where a build sees them
_PASSED = ("index-url", "extra-index-url", "find-links", "no-index", "trusted-host", "proxy", "timeout", "retries")
_LISTS = ("extra-index-url", "find-links", "trusted-host")
_CERTIFICATE_ENVS = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")


def config_files(environment: Mapping[str, str]) -> list[Path]:
    """Where pip looks for its configuration, in its order."""
    home = Path(environment.get("HOME") or os.path.expanduser("~"))
    config = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    files = [Path(folder) / "pip/pip.conf" for folder in (environment.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")]
    files += [Path("/etc/pip.conf"), home / ".pip/pip.conf", config / "pip/pip.conf"]
    files += [home / "Library/Application Support/pip/pip.conf", Path(sys.prefix) / "pip.conf"]
    if environment.get("PIP_CONFIG_FILE"):
        files.append(Path(environment["PIP_CONFIG_FILE"]))
    return files


def settings(environment: Mapping[str, str], files: Iterable[Path]) -> dict[str, str]:
    """What pip would go by: later files before earlier ones, PIP_ variables before all. Folders here are left out."""
    found: dict[str, str] = {}
    parser = configparser.RawConfigParser()
    parser.read(files, encoding="utf-8")
    for section in ("global", "install"):
        if parser.has_section(section):
            found |= {name.replace("_", "-"): value for name, value in parser.items(section)}
    for name, value in environment.items():
        if name.startswith("PIP_"):
            found[name[4:].lower().replace("_", "-")] = value
    if "default-timeout" in found:
        found.setdefault("timeout", found["default-timeout"])
    for name in _LISTS:
        words = [word for word in found.get(name, "").split() if name != "find-links" or "://" in word]
        found[name] = "\n  ".join(words)
    return {name: value for name, value in found.items() if value and (name in _PASSED or name == "cert")}


def certificates(environment: Mapping[str, str], found: Mapping[str, str]) -> Path | None:
    """The file of certificate authorities that this machine's Python programs are told to trust, if any."""
    told = [found.get("cert"), *(environment.get(name) for name in _CERTIFICATE_ENVS)]
    return next((Path(path) for path in told if path and os.path.isfile(path)), None)


def write_secrets(folder: Path, environment: Mapping[str, str]) -> dict[str, Path]:
    """The secrets of a build, by id; files that had to be made lie in `folder`."""
    found = settings(environment, config_files(environment))
    trusted = certificates(environment, found)
    passed = {name: value for name, value in found.items() if name in _PASSED}
    secrets = {}
    if trusted is not None:
        passed["cert"] = CERTIFICATES
        secrets["certificates"] = trusted
    secrets["pip"] = folder / "pip"
    with open(os.open(secrets["pip"], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
        stream.write("[global]\n" + "".join(f"{name} = {value}\n" for name, value in sorted(passed.items())))
    return secrets

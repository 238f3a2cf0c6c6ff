"""A site whose packages come from its own index: the builds use it, the images don't tell of it."""

from __future__ import annotations

import configparser
import stat
from pathlib import Path

from ffdl.images.pip_settings import CERTIFICATES, config_files, settings, write_secrets


def read(file: Path) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    parser.read(file)
    return dict(parser.items("global"))


def test_a_build_goes_by_what_pip_is_told_here(tmp_path: Path) -> None:
    """Files and variables, in pip's own order; folders of this machine mean nothing in a container."""
    file = tmp_path / ".config" / "pip" / "pip.conf"
    file.parent.mkdir(parents=True)
    file.write_text(
        "[global]\nindex-url = https://one.example/simple\nextra-index-url =\n  https://a.example/\n  https://b.example/\n"
        "find-links = /wheels https://wheels.example/\ncache-dir = /cache\n[install]\ntrusted-host = one.example\n"
    )
    authorities = tmp_path / "authorities.pem"
    authorities.write_text("certificates")
    environment = {
        "HOME": str(tmp_path),
        "PIP_INDEX_URL": "https://user:secret@two.example/simple",
        "PIP_DEFAULT_TIMEOUT": "99",
        "PIP_CERT": str(authorities),
    }
    private = tmp_path / "private"
    private.mkdir()
    secrets = write_secrets(private, environment)
    assert secrets["certificates"] == authorities
    assert stat.S_IMODE(secrets["pip"].stat().st_mode) == 0o600
    passed = read(secrets["pip"])
    assert passed.pop("extra-index-url").split() == ["https://a.example/", "https://b.example/"]
    assert passed == {
        "index-url": "https://user:secret@two.example/simple",
        "find-links": "https://wheels.example/",
        "trusted-host": "one.example",
        "timeout": "99",
        "cert": CERTIFICATES,
    }


def test_no_settings_are_none(tmp_path: Path) -> None:
    """Where nobody said anything, the container's pip does as it does."""
    assert settings({}, [tmp_path / "pip.conf"]) == {}
    assert tmp_path / "mine" in config_files({"HOME": "/nowhere", "PIP_CONFIG_FILE": str(tmp_path / "mine")})

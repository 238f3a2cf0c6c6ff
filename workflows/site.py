"""What a cluster's administrator decides for all jobs of a tenant: images, clean-up, what is allowed. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .errors import shown

CONFIG_NAME = "ffdl-tenant"
CONFIG_VERSION = 1  # of the files in argo-config/
VERSION = "0.1.0"
OUR_USER = 65532  # steps and helper; its group is that of a job's volume
OUR_IMAGES = ("ffdl-steps", "ffdl-agent", "ffdl-learner-numpy", "ffdl-learner-pytorch")
_DURATION = re.compile(r"(\d+)([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class SiteError(ValueError):
    """A tenant's configuration has a value that means nothing. Its text is one line."""


@dataclass(frozen=True)
class Site:
    """The ConfigMap `ffdl-tenant` of a namespace; the defaults hold where there is none. Times in seconds.

    `host_paths` are prefixes of paths that a `host_mount` may name. Workflows go `ttl` after their end, their pods
    `pod_ttl` and their records `record_ttl` after it.
    """

    registry: str = "localhost"
    tag: str = VERSION
    pull_policy: str = "IfNotPresent"
    host_paths: tuple[str, ...] = ()
    ttl: int = 7 * 86400
    pod_ttl: int = 300
    record_ttl: int = 90 * 86400
    learners_non_root: bool = False
    version: int = CONFIG_VERSION

    @classmethod
    def from_config(cls, config: Mapping[str, str]) -> Site:
        """Reads the ConfigMap's data; keys it does not know are a later version's. Raises SiteError."""
        values: dict[str, Any] = {}
        for name in ("registry", "tag", "pull_policy"):
            if config.get(_key(name), "").strip():
                values[name] = config[_key(name)].strip()
        for name in ("ttl", "pod_ttl", "record_ttl"):
            if _key(name) in config:
                values[name] = _seconds(_key(name), config[_key(name)])
        if "host-paths" in config:
            values["host_paths"] = tuple(line.strip() for line in config["host-paths"].splitlines() if line.strip())
        if "learners-non-root" in config:
            values["learners_non_root"] = _flag("learners-non-root", config["learners-non-root"])
        if "version" in config:
            values["version"] = _number("version", config["version"])
        return cls(**values)

    def image(self, name: str) -> str:
        """The whole name of an image: ours are the site's, with its tag; others are as they were written."""
        ours = name.partition(":")[0]
        return f"{self.registry}/{ours}:{self.tag}" if ours in OUR_IMAGES else name

    def allows(self, host_path: str) -> bool:
        """Whether a job of this tenant may mount that (normal) path of the node."""
        return any(host_path == prefix or host_path.startswith(prefix.rstrip("/") + "/") for prefix in self.host_paths)


def _key(name: str) -> str:
    return name.replace("_", "-")


def _seconds(key: str, text: str) -> int:
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise SiteError(f"{CONFIG_NAME}: {key} is {shown(text)}, not a duration; write one such as 7d or 5m")
    return int(match[1]) * _UNITS[match[2]]


def _number(key: str, text: str) -> int:
    if not text.strip().isdecimal():
        raise SiteError(f"{CONFIG_NAME}: {key} is {shown(text)}, not a number; apply argo-config/tenant again")
    return int(text)


def _flag(key: str, text: str) -> bool:
    if text.strip() not in ("true", "false"):
        raise SiteError(f"{CONFIG_NAME}: {key} is {shown(text)}; write true or false")
    return text.strip() == "true"

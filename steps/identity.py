"""Which member of which job a pod is, what it was given, and where its things lie."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass, field, replace

from ..learner import contract


@dataclass(frozen=True)
class Identity:
    """Attempt `attempt` of member `index` in its role. `secret` are variables of its command."""

    spec: contract.JobSpec
    job_id: str
    role: str
    index: int
    attempt: int = 0
    secret: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        return contract.member_name(self.role, self.index)

    @property
    def run_dir(self) -> str:
        return contract.path(contract.RUN_DIR)

    @property
    def checkpoint_dir(self) -> str:
        folder = self.spec.checkpoint_folder(self.role, self.index)
        return os.path.join(contract.path(contract.CHECKPOINT_DIR), folder).rstrip("/")

    @property
    def together(self) -> bool:
        """It trains with others."""
        return self.spec.distribution != "none"

    @property
    def serves(self) -> bool:
        """It runs what another learner's command starts here."""
        return self.spec.distribution == contract.MPI and self.index > 0

    @property
    def address(self) -> str:
        """At which others reach this pod."""
        return os.environ.get(contract.POD_IP_ENV) or "127.0.0.1"


def load() -> tuple[Identity, str]:
    """What this pod's files and environment say, and the job's token. Raises OSError, ValueError, KeyError."""
    spec = contract.JobSpec.from_json(_read(contract.CONFIG_DIR, contract.JOB_FILE))
    token = _read(contract.TOKEN_DIR, contract.TOKEN_FILE).strip()
    secret: dict[str, str] = {}
    with contextlib.suppress(FileNotFoundError):
        secret = json.loads(_read(contract.TOKEN_DIR, contract.SECRET_ENV_FILE))
    index, attempt = int(os.environ[contract.INDEX_ENV]), int(os.environ.get(contract.ATTEMPT_ENV) or 0)
    role = os.environ.get(contract.ROLE_ENV) or contract.LEARNER
    if role == contract.PARAMETER_SERVER:
        spec = replace(spec, cpus=spec.server_cpus, metrics={}, gpus=0.0)
        if not spec.own_servers:
            spec, secret = replace(spec, env={}), {}
    return Identity(spec, os.environ[contract.JOB_ID_ENV], role, index, attempt, secret), token


def _read(folder: str, name: str) -> str:
    with open(os.path.join(contract.path(folder), name), encoding="utf-8") as stream:
        return stream.read()

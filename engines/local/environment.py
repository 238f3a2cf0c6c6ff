"""The environment of a pod's containers: what of the submitter's goes with the job, and what a template says."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Mapping
from typing import Any

from ...learner import contract
from .leases import quantity
from .objects import CONFIG_MAP, SECRET, Objects

NAMESPACE = "local"
OUR_IMAGES = ("ffdl-steps", "ffdl-agent")
PASSED_ON = re.compile(
    r"HOME|USER|LOGNAME|LANG|LC_.*|TZ|LD_LIBRARY_PATH|CUDA_HOME|CUDA_PATH|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE"
    r"|PIP_.*|(?i:https?_proxy|no_proxy|all_proxy)|FFDL_(ISOLATION|CGROUP|RETRY_SECONDS)"
)
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PROGRESS = f"{contract.RUN_DIR}/progress"
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


def store_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The submitter's own way to S3, for the steps of a job whose manifest names no credentials."""
    return {name: value for name, value in environ.items() if name.startswith("AWS_")}


def user_environment(python: str, environ: Mapping[str, str]) -> dict[str, str]:
    """What of the submitter's environment a learner's command gets, its Python's folder first on PATH."""
    kept = {name: value for name, value in environ.items() if PASSED_ON.fullmatch(name)}
    kept["PATH"] = f"{os.path.dirname(python)}:{environ.get('PATH') or SYSTEM_PATH}"
    kept[contract.PYTHON_ENV] = python
    if os.path.exists(os.path.join(os.path.dirname(python), os.pardir, "pyvenv.cfg")):
        kept["VIRTUAL_ENV"] = os.path.dirname(os.path.dirname(python))
    return kept


def is_ours(container: Mapping[str, Any]) -> bool:
    """Whether a container runs our own program, not the user's."""
    return (container.get("image") or "").split("/")[-1].split(":")[0] in OUR_IMAGES


def expand(text: str, env: Mapping[str, str]) -> str:
    """Kubernetes' own rewriting of `$(NAME)` and `$$` in env values, commands and arguments."""
    return _REFERENCE.sub(lambda m: "$" if m.group(0) == "$$" else env.get(m.group(1), m.group(0)), text)


class Environment:
    """What the containers of one pod have in their environment.

    `submitter` is the job's environment.json; `fields` are the pod's own values for `fieldRef`, by path.
    """

    def __init__(
        self,
        objects: Objects,
        submitter: Mapping[str, Any],
        fields: Mapping[str, str],
        metadata: Mapping[str, Any],
    ) -> None:
        self._objects, self._submitter, self._fields, self._metadata = objects, submitter, fields, metadata

    def of(self, name: str, container: Mapping[str, Any]) -> dict[str, str]:
        """The whole environment of the container `name`. Raises CannotStartError."""
        env = self._base(is_ours(container))
        env |= {"ARGO_CONTAINER_NAME": name, "ARGO_PROGRESS_FILE": contract.path(PROGRESS)}
        for source in container.get("envFrom") or []:
            for kind, key in ((CONFIG_MAP, "configMapRef"), (SECRET, "secretRef")):
                if source.get(key) is not None:
                    values = self._objects.values(kind, source[key])
                    env |= {(source.get("prefix") or "") + each: value for each, value in values.items()}
        for variable in container.get("env") or []:
            value = self._value(variable, env, container.get("resources") or {})
            if value is not None:
                env[variable["name"]] = value
        return env

    def _base(self, ours: bool) -> dict[str, str]:
        if not ours:
            return dict(self._submitter["env"])
        # the submitter's, whoever started the runner
        env = {name: value for name, value in self._submitter["env"].items() if PASSED_ON.fullmatch(name)}
        if (self._metadata.get("labels") or {}).get(contract.LABEL_ROLE) not in contract.MEMBERS:
            env.update(self._submitter.get("store", {}))
        return {**env, "PATH": f"{os.path.dirname(sys.executable)}:{SYSTEM_PATH}", "PYTHONUNBUFFERED": "1"}

    def _value(self, variable: Mapping[str, Any], env: Mapping[str, str], resources: Mapping[str, Any]) -> str | None:
        source = variable.get("valueFrom")
        if not source:
            return expand(str(variable.get("value") or ""), env)
        if "fieldRef" in source:
            return self._field(source["fieldRef"]["fieldPath"])
        if "resourceFieldRef" in source:
            return _amount(source["resourceFieldRef"], resources)
        if "configMapKeyRef" in source:
            return self._objects.value(CONFIG_MAP, source["configMapKeyRef"])
        return self._objects.value(SECRET, source["secretKeyRef"])

    def _field(self, path: str) -> str:
        if found := _SUBSCRIPT.fullmatch(path):
            return str((self._metadata.get(found.group(1)) or {}).get(found.group(2), ""))
        return self._fields.get(path, "")


def _amount(reference: Mapping[str, Any], resources: Mapping[str, Any]) -> str:
    """A resource as Kubernetes shows it: in units of the divisor, rounded up; the whole machine's where none is set."""
    kind, _, name = reference["resource"].partition(".")
    amount = (resources.get(kind) or {}).get(name)
    if amount is None and kind == "requests":
        amount = (resources.get("limits") or {}).get(name)
    if amount is None and kind == "limits":
        pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        amount = {"cpu": len(os.sched_getaffinity(0)), "memory": pages}.get(name, 0)
    divisor = quantity(reference.get("divisor") or 1)
    return str(math.ceil(quantity(amount or 0) / (divisor or 1)))

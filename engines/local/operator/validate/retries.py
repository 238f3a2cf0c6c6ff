"""Checks of retry strategies. Argo finds most of this when the first attempt has failed, which is late."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..durations import duration
from ..paths import Path
from .conditions import unreadable
from .problem import Problem

POLICIES = ("Always", "OnFailure", "OnError", "OnTransientError")
_KEYS = ("exitCode", "status", "duration", "message")
_KNOWN = {"retries": "", "lastRetry": dict.fromkeys(_KEYS, "")}


def strategy(strategy: Mapping[str, Any], where: str, path: Path) -> Iterator[Problem]:
    policy = str(strategy.get("retryPolicy") or "Always")
    if policy not in POLICIES:
        yield Problem((*path, "retryPolicy"), f"{policy} is not a valid RetryPolicy")
    where = f"{where}.retryStrategy"
    limit, backoff = str(strategy.get("limit", 0)), strategy.get("backoff") or {}
    if not re.fullmatch(r"-?\d+", limit) and "{{" not in limit:
        yield Problem((*path, "limit"), f"{where}.limit: value '{limit}' cannot be resolved to an int", ours=True)
    at = (*path, "backoff")
    if backoff and not backoff.get("duration"):
        yield Problem(at, f"{where}.backoff: no base duration specified for retryStrategy", ours=True)
    for key in ("duration", "maxDuration", "cap"):
        value = str(backoff.get(key) or 0)
        try:
            if "{{" not in value:
                duration(value)
        except ValueError as error:
            yield Problem((*at, key), f"{where}.backoff.{key}: {error}", ours=True)
    factor = str(backoff.get("factor") or 1)
    if not factor.isdigit() and "{{" not in factor:
        yield Problem(
            (*at, "factor"), f"{where}.backoff.factor: value '{factor}' cannot be resolved to an int", ours=True
        )
    expression = strategy.get("expression") or ""
    if expression and "{{" not in expression:
        yield from unreadable(expression, f"{where}.expression", (*path, "expression"), _KNOWN)

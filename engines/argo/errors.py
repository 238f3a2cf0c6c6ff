"""What an API server's refusals mean to the person at the terminal: one line each. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

from ..base import EngineError

_CANNOT = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]*)"'
    r'(?: in API group "(?P<group>[^"]*)")?(?: in the namespace "(?P<namespace>[^"]*)")?'
)
_MOST = 500  # characters of the server's own words


class ApiError(EngineError):
    """An answer of the cluster's that is an error. `status` is its HTTP code, `reason` Kubernetes' word for it.

    `retry_after` are seconds, `go_on` is where a list that took too long can be gone on with.
    """

    def __init__(
        self, line: str, status: int, reason: str = "", retry_after: float | None = None, go_on: str = ""
    ) -> None:
        super().__init__(line)
        self.status, self.reason, self.retry_after, self.go_on = status, reason, retry_after, go_on


class Unreachable(EngineError):  # noqa: N818 (reads as the sentence it is)
    """The cluster gave no answer. `dropped`: it was spoken to, and closed the connection."""

    dropped = False


def api_error(status: int, body: bytes, what: str, place: str, retry_after: str | None = None) -> ApiError:
    """`what` says what was asked for, such as `list workflows in namespace ffdl`; `place` which cluster it is."""
    answer = _answer(body)
    reason = str(answer.get("reason") or "")
    message = " ".join(str(answer.get("message") or body[:_MOST].decode("utf-8", "replace")).split())[:_MOST]
    seconds = float(retry_after) if retry_after and retry_after.isdecimal() else None
    go_on = str((answer.get("metadata") or {}).get("continue") or "")
    return ApiError(_words(status, reason, message, bool(answer), what, place), status, reason, seconds, go_on)


def _answer(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _words(status: int, reason: str, message: str, from_kubernetes: bool, what: str, place: str) -> str:
    if status == 401:
        return f"{place} does not accept your credentials; log in to the cluster again"
    if status == 403:
        return _forbidden(message, what, place)
    if status == 404 and (not from_kubernetes or "could not find the requested resource" in message):
        if "workflows" in what:
            return f"{place} has no Argo Workflows; `ffdl doctor` says what a cluster needs"
        return f"{place} knows no way to {what}; is it a Kubernetes API server?"
    if status == 404 and re.match(r'namespaces "[^"]*" not found', message):
        return f"{place} has no namespace {message.split(chr(34))[1]}; name another one with -n"
    if status == 409:
        return f"could not {what}: {message}"
    if status in (400, 422):
        return f"the cluster does not take it: could not {what}: {message}"
    if status == 429:
        return f"{place} is too busy to {what}; try again later"
    if status >= 500:
        return f"{place} has a fault (HTTP {status}) and could not {what}: {message or 'no reason given'}"
    return f"could not {what}: {message} (HTTP {status})"


def _forbidden(message: str, what: str, place: str) -> str:
    match = _CANNOT.search(message)
    if match is None:  # a quota, a policy: the server's own words say it best
        return f"the cluster forbids to {what}: {message or 'no reason given'}"
    where = f"in namespace {match['namespace']}" if match["namespace"] else "in the whole cluster"
    return (
        f"{match['user']} may not {match['verb']} {match['resource']} {where}; ask for the Role ffdl-user there, "
        "or name another namespace with -n"
    )


def unreachable(error: BaseException, place: str, timeout: float) -> Unreachable:
    """No answer at all: no route, no trust, no time."""
    text = " ".join(str(error).split())
    if "CERTIFICATE_VERIFY_FAILED" in text or "SSLError" in type(error).__name__ or "SSL:" in text:
        why = text.rpartition("] ")[2].partition(" (_ssl")[0] or text
        return Unreachable(f"{place} can't be trusted: TLS: {why}; check the kubeconfig's certificate-authority")
    if "timed out" in text or "Timeout" in type(error).__name__:
        return Unreachable(f"{place} did not answer within {timeout:g} s")
    if "Name or service not known" in text or "nodename nor servname" in text or "Temporary failure in name" in text:
        return Unreachable(f"{place} can't be reached: its name is not known")
    if "Connection aborted" in text or "Connection broken" in text:
        found = Unreachable(f"{place} closed the connection; does the cluster start or stop just now?")
        found.dropped = True
        return found
    for known in ("Connection refused", "No route to host", "Network is unreachable", "Connection reset"):
        if known in text:
            return Unreachable(f"{place} can't be reached: {known.lower()}; does the cluster run?")
    return Unreachable(f"{place} can't be reached: {text[:_MOST]}")

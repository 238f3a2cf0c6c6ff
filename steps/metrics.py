"""Metrics of a learner: records in FfDL's form, and finding them in the lines that a script prints."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

_LOOKAHEAD = 4  # lines, FfDL's default
_FLOAT = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)"
_PATTERNS = {  # what `%{NAME:group}` in a regex stands for
    "FLOAT": _FLOAT,
    "INT": r"[-+]?\d+",
    "INT_ANY": r"[-+]?(?:0[xX][0-9a-fA-F]+|\d+)",
    "HEX": r"(?:0[xX])?[0-9a-fA-F]+",
    "TIMESTAMP": r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[-+]\d\d:?\d\d)?",
    "GLOG_STAMP": r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+\s+\d+ [^\]]+\]",
}
_MACRO = re.compile(r"%\{(\w+)(?::(\w+))?\}")


@dataclass(frozen=True)
class Metrics:
    """One record: `etimes` say where in training it is from, `values` what was measured; each name -> (type, value)."""

    group: str
    etimes: dict[str, tuple[str, str]] = field(default_factory=dict)
    values: dict[str, tuple[str, str]] = field(default_factory=dict)

    def numbers(self) -> dict[str, float]:
        """The values that are numbers."""
        found = {}
        for name, (kind, value) in self.values.items():
            if kind in ("INT", "FLOAT"):
                try:
                    found[name] = float(value)
                except ValueError:
                    continue
        return found

    def step(self) -> int | None:
        """The iteration, where there is one."""
        kind, value = self.etimes.get("iteration", ("", ""))
        return int(value) if kind == "INT" and re.fullmatch(r"\d{1,15}", value) else None


def from_step(step: int, metrics: dict[str, Any]) -> Metrics:
    """What the learner library reports of one step."""
    values = {
        str(name): ("INT" if isinstance(value, int) else "FLOAT", repr(value))
        for name, value in metrics.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
    return Metrics("train", {"iteration": ("INT", str(step))}, values)


def to_json(metrics: Metrics, training_id: str, subid: str, rindex: int, unix_time: float) -> str:
    """One line of `evaluation-metrics.txt`, with its line end. `unix_time` in seconds; the record has milliseconds."""
    record = {
        "meta": {"training_id": training_id, "time": int(unix_time * 1000), "rindex": rindex, "subid": subid},
        "grouplabel": metrics.group,
        "etimes": {name: {"type": kind, "value": value} for name, (kind, value) in metrics.etimes.items()},
        "values": {name: {"type": kind, "value": value} for name, (kind, value) in metrics.values.items()},
    }
    return json.dumps(record, ensure_ascii=False) + "\n"


class Extractor:
    """Finds metrics in printed lines by the regexes of `evaluation_metrics` with type `regex_extractor`.

    A window of `line_lookahead` lines slides over the output; each group's regex is tried at the window's start, the
    first that matches makes a record, and the lines it used up leave the window.
    """

    def __init__(self, description: dict[str, Any]) -> None:
        """Raises ValueError for a regex that is none."""
        groups = description.get("groups") or {}
        self._groups = [_Group(str(label), body) for label, body in groups.items()] if isinstance(groups, dict) else []
        self._lookahead = max(1, int(description.get("line_lookahead") or _LOOKAHEAD))
        self._window: list[str] = []

    def feed(self, line: str) -> list[Metrics]:
        """The records that are certain now that `line` has come."""
        self._window.append(line)
        return self._scan(last=False)

    def flush(self) -> list[Metrics]:
        """The records among the last lines, when no more come."""
        return self._scan(last=True)

    def _scan(self, last: bool) -> list[Metrics]:
        found = []
        while self._window:
            text = "\n".join(self._window)
            hit = next((made for group in self._groups if (made := group.match(text))), None)
            if hit:
                found.append(hit[0])
                del self._window[: text.count("\n", 0, hit[1]) + 1]
            elif last or len(self._window) >= self._lookahead:
                del self._window[0]
            else:
                break
        return found


def extractor(wanted: dict[str, Any]) -> Extractor | None:
    """What a manifest's `evaluation_metrics` ask for."""
    return Extractor(wanted) if wanted.get("type") == "regex_extractor" else None


class _Group:
    def __init__(self, label: str, body: dict[str, Any]) -> None:
        self._label = label
        try:
            self._regex = re.compile(_MACRO.sub(_expand, str(body.get("regex", ""))), re.MULTILINE | re.DOTALL)
        except re.error as error:
            raise ValueError(f"evaluation_metrics: the regex of group {label} is none: {error}") from None
        self._etimes = body.get("etimes") or {}
        self._values = body.get("values") or body.get("scalars") or {}

    def match(self, text: str) -> tuple[Metrics, int] | None:
        match = self._regex.match(text)
        if match is None or match.end() == 0:
            return None
        return Metrics(self._label, _resolve(self._etimes, match), _resolve(self._values, match)), match.end()


def _expand(match: re.Match[str]) -> str:
    pattern = _PATTERNS.get(match[1])
    if pattern is None:
        raise ValueError(f"evaluation_metrics: no pattern is called {match[1]}; there are {', '.join(_PATTERNS)}")
    return f"(?P<{match[2]}>{pattern})" if match[2] else f"(?:{pattern})"


def _resolve(wanted: dict[str, Any], match: re.Match[str]) -> dict[str, tuple[str, str]]:
    found, groups = {}, match.groupdict()
    for name, body in wanted.items():
        body = body if isinstance(body, dict) else {"value": body}
        value = str(body.get("value", f"${name}"))
        if value.startswith("$") and value[1:] in groups:
            if groups[value[1:]] is None:
                continue
            value = groups[value[1:]]
        found[str(name)] = (str(body.get("type", "FLOAT")).upper(), value)
    return found

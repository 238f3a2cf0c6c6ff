"""Spans of time: as they are written in a Workflow, and as Argo's messages say them."""

from __future__ import annotations

import re

_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def duration(written: str) -> float:
    """Seconds of a Go duration (`1m30s`); a plain number is seconds. Raises ValueError."""
    if re.fullmatch(r"\d+", written):
        return float(written)
    parts = _DURATION.findall(written)
    if not parts or "".join(number + unit for number, unit in parts) != written:
        raise ValueError(f"unable to parse {written} as a duration")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def humanize(span: float) -> str:
    """Seconds as Argo's messages say them: `5 seconds`, `1 minute 30 seconds`."""
    whole = int(span)
    for size, unit, smaller, name in (
        (86400, "day", 3600, "hours"),
        (3600, "hour", 60, "minutes"),
        (60, "minute", 1, "seconds"),
    ):
        if whole >= size:
            return f"{_count(whole // size, unit)} {whole % size // smaller} {name}"
    return _count(whole, "second")


def _count(number: int, unit: str) -> str:
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"

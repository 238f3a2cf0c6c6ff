"""Sizes, durations and numbers as a manifest writes them. Each reader raises ValueError("is …; write …")."""

from __future__ import annotations

import math
import re
from fractions import Fraction

from .errors import shown

SIZES = {"MB": 10**6, "MiB": 2**20, "GB": 10**9, "GiB": 2**30}
SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
MOST_BYTES = 2**63 - 1
MOST_SECONDS = 10**9

_SIZE = re.compile(r"([0-9]{1,18}) *(mb|mib|gb|gib)", re.IGNORECASE | re.ASCII)
_DURATION = re.compile(r"(?=[0-9])(?:([0-9]{1,9})d)?(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s)?")
_NUMBER = re.compile(r"(?:[0-9]{1,18}\.?[0-9]{0,18}|\.[0-9]{1,18})(?:[eE][+-]?[0-9]{1,2})?")
_WHOLE = re.compile(r"(0|[1-9][0-9]{0,17})(?:\.0{0,18})?")
_AMOUNT_AND_WORD = re.compile(r"([0-9]{1,15}(?:\.[0-9]{0,9})?|\.[0-9]{1,9}) *([a-z]*)")
_LOOSE_SIZES = {"b": (1, False), "byte": (1, False), "bytes": (1, False)}
for _power, _letter in enumerate("kmgtp", 1):
    _LOOSE_SIZES |= dict.fromkeys((_letter, _letter + "b"), (1000**_power, False))
    _LOOSE_SIZES |= dict.fromkeys((_letter + "i", _letter + "ib"), (1024**_power, True))
_LOOSE_SECONDS = {
    **dict.fromkeys(("", "s", "sec", "secs", "second", "seconds"), Fraction(1)),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), Fraction(60)),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), Fraction(3600)),
    **dict.fromkeys(("d", "day", "days"), Fraction(86400)),
    **dict.fromkeys(("w", "week", "weeks"), Fraction(604800)),
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds"), Fraction(1, 1000)),
}


def size(text: str) -> int:
    """Bytes of `4GB`, `300 MiB`: exact, 1GB = 1000 MB = 10**9 bytes, 1GiB = 1024 MiB = 2**30 bytes; any case."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ValueError(f"is {shown(text)}, not a whole number with MB, MiB, GB or GiB; write {_nearest_size(text)}")
    unit = {name.lower(): factor for name, factor in SIZES.items()}[match[2].lower()]
    amount = int(match[1]) * unit
    if not 0 < amount <= MOST_BYTES:
        raise ValueError(
            f"is {shown(text)}, {'more than a machine can have' if amount else 'nothing'}; write a size such as 4GB"
        )
    return amount


def spell_size(amount: int) -> str:
    """The size as a manifest writes it: `4GB`, `512MiB`; bytes that no unit divides are rounded up to MB."""
    for unit in ("GB", "GiB", "MB", "MiB"):
        if amount % SIZES[unit] == 0:
            return f"{amount // SIZES[unit]}{unit}"
    return f"{-(-amount // SIZES['MB'])}MB"


def _nearest_size(text: str) -> str:
    match = _AMOUNT_AND_WORD.fullmatch(text.strip().lower())
    amount = Fraction(match[1]) if match else Fraction(0)
    if not match or not amount or match[2] not in {"", *_LOOSE_SIZES}:
        return "a size such as 4GB"
    if not match[2] and amount < SIZES["MiB"]:
        return f"{math.ceil(amount)}MB or {math.ceil(amount)}MiB"
    factor, binary = _LOOSE_SIZES[match[2] or "b"]
    large, small = ("GiB", "MiB") if binary else ("GB", "MB")
    wanted = amount * factor
    unit = large if wanted % SIZES[large] == 0 else small
    return f"{math.ceil(wanted / SIZES[unit])}{unit}"


def duration(text: str) -> float:
    """Seconds of `90s`, `10m`, `2h`, `1d`, `1h30m`."""
    match = _DURATION.fullmatch(text)
    if not match:
        raise ValueError(f"is {shown(text)}, not a duration; write {_nearest_duration(text)}")
    seconds = sum(int(amount or 0) * factor for amount, factor in zip(match.groups(), SECONDS.values(), strict=True))
    if seconds > MOST_SECONDS:
        raise ValueError(f"is {shown(text)}, more than thirty years; write a duration such as 12h")
    return float(seconds)


def spell_duration(seconds: float) -> str:
    """The duration as a manifest writes it, rounded up to whole seconds: 90 is `90s`, 5400 is `1h30m`."""
    left, words = math.ceil(seconds), ""
    if left < 600:
        return f"{left}s"
    for unit, factor in SECONDS.items():
        if left >= factor:
            words += f"{left // factor}{unit}"
            left %= factor
    return words


def _nearest_duration(text: str) -> str:
    low = text.strip().lower()
    parts = _AMOUNT_AND_WORD.findall(low[:60])
    rest = _AMOUNT_AND_WORD.sub("", low[:60]).strip(" ,")
    if not parts or rest or len(low) > 60 or any(word not in _LOOSE_SECONDS for _, word in parts):
        return "a duration such as 90s, 10m, 2h or 1h30m"
    return spell_duration(max(1, math.ceil(sum(Fraction(amount) * _LOOSE_SECONDS[word] for amount, word in parts))))


def number(text: str, most: float = 1e6, such_as: str = "") -> float:
    """A number >= 0, such as `0.5`, or what `such_as` says."""
    if not _NUMBER.fullmatch(text):
        milli = re.fullmatch(r"([0-9]{1,9})m", text)
        fix = f"{int(milli[1]) / 1000:g}" if milli and not such_as else f"a number such as {such_as or '0.5 or 4'}"
        raise ValueError(f"is {shown(text)}, not a number of 0 or more; write {fix}")
    value = float(text)
    if value > most:
        raise ValueError(f"is {shown(text)}, too much; write at most {most:g}")
    return value


def whole(text: str, least: int = 0, most: int = 10**6) -> int:
    """A whole number from `least` to `most`; `2.0` counts as one."""
    match = _WHOLE.fullmatch(text)
    if not match:
        raise ValueError(
            f"is {shown(text)}, not a whole number of {least} or more; write a number such as {max(least, 1)}"
        )
    value = int(match[1])
    if not least <= value <= most:
        raise ValueError(f"is {shown(text)}, too {'little' if value < least else 'much'}; write {least} to {most}")
    return value

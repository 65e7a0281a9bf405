"""Formats stored text for a terminal. Untrusted text must not control the terminal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

ELLIPSIS = "…"

AGE_UNITS_S = {"w": 604_800, "d": 86_400, "h": 3600, "m": 60, "s": 1}
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")

_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?(?:([kmgt])(?:i?b)?|b)?", re.IGNORECASE | re.ASCII)
_AGE = re.compile(r"(\d+(?:\.\d+)?)([smhdw])", re.ASCII)
_SUSPECT = re.compile(r"[^\x20-\x7e]")
_SUSPECT_BUT_LINES = re.compile(r"[^\x20-\x7e\n\t]")


def escape(text: str, *, keep_lines: bool = False) -> str:
    r"""Return text with every invisible character escaped, such as `\x1b`, `\u202e` or `\n`.

    Invisible characters include those that move the cursor, set colours, ring the bell or change the text direction.

    Args:
        text: any text, possibly untrusted.
        keep_lines: keep line breaks and tabs.
    """
    pattern = _SUSPECT_BUT_LINES if keep_lines else _SUSPECT
    return text if text.isprintable() else pattern.sub(_escape_one, text)


def _escape_one(match: re.Match[str]) -> str:
    character = match[0]
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")


def shorten(text: str, characters_max: int) -> str:
    """Return `text`, cut to at most `characters_max` characters. A cut text ends with an ellipsis."""
    return text if len(text) <= characters_max else text[: max(characters_max - 1, 0)] + ELLIPSIS


def format_time(time: datetime) -> str:
    """Return the exact time in UTC. `--at` accepts it and finds the checkpoint of that time."""
    return f"{time:%Y-%m-%d %H:%M:%S.%f}Z"


def format_age(time: datetime, now: datetime) -> str:
    """Return the age of a time in its largest unit, rounded down: `3m ago`. A future time is shown exactly.

    `--at` accepts an age and finds the newest checkpoint that has it.
    """
    age_s = int((now - time).total_seconds())
    if now < time:
        return format_time(time)
    unit, size_s = next(((name, size_s) for name, size_s in AGE_UNITS_S.items() if age_s >= size_s), ("s", 1))
    return f"{age_s // size_s}{unit} ago"


def parse_age(text: str) -> float | None:
    """Return the seconds of an age such as 90s, 15m, 12h, 30d or 8w. Return None for any other string."""
    found = _AGE.fullmatch(text)
    return None if found is None else float(found[1]) * AGE_UNITS_S[found[2]]


def format_size(size_bytes: float) -> str:
    """Return a size with three digits and a binary unit."""
    unit = 0
    while size_bytes >= 1000 and unit < len(_UNITS) - 1:
        size_bytes /= 1024
        unit += 1
    digits = f"{size_bytes:.0f}" if unit == 0 or size_bytes >= 100 else f"{size_bytes:.3g}"
    return f"{digits} {_UNITS[unit]}"


def parse_size(text: str) -> int | None:
    """Return the bytes of a size as `format_size` writes it, or such as 64M, 2g or 1048576; None for other strings."""
    found = _SIZE.fullmatch(text)
    if found is None:
        return None
    return int(float(found[1]) * 1024 ** "bkmgt".index((found[2] or "b").lower()))


def format_duration(duration_s: float) -> str:
    """Return a duration with a suitable unit."""
    if duration_s >= 1:
        return f"{duration_s:.1f} s"
    return f"{duration_s * 1e3:.1f} ms" if duration_s >= 1e-3 else f"{duration_s * 1e6:.0f} us"


def format_policy(policy: Mapping[str, Any]) -> str:
    """Describe what a retention policy keeps. Return an empty string for an empty policy."""
    if not policy:
        return ""
    kept = [] if policy["keep_last"] is None else [f"last {policy['keep_last']:,}"]
    kept += [] if policy["max_age_s"] is None else [f"{_age(policy['max_age_s'])} old"]
    return ", ".join([*kept, "tagged"] if policy["keep_tags"] else kept)


def _age(age_s: int) -> str:
    unit, size_s = next((name, size_s) for name, size_s in AGE_UNITS_S.items() if not age_s % size_s)
    return f"{age_s // size_s:,}{unit}"


def count(number: int, noun: str) -> str:
    """Return a number with its noun: `1 record`, `1,200 records`, `2 branches`, `2 entries`."""
    if number == 1:
        return f"1 {noun}"
    if noun.endswith("ry"):
        return f"{number:,} {noun[:-1]}ies"
    return f"{number:,} {noun}{'es' if noun.endswith('ch') else 's'}"

"""Plain values as a log stores them: canonical JSON, instants in UTC, texts that a database can store."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeAlias, TypeVar

Json: TypeAlias = Any  # None, bool, int, float, str, tuple or Mapping[str, Json]; lists become tuples
E = TypeVar("E", bound=StrEnum)


def now() -> datetime:
    return datetime.now(UTC)


def as_utc(time: datetime) -> datetime:
    """The same instant in UTC. A time without a zone is refused: two machines would read it differently."""
    if time.tzinfo is None:
        raise ValueError(f"time {time} has no time zone; use datetime.now(UTC)")
    return time.astimezone(UTC)


def freeze(value: Json) -> Json:
    """The JSON value with tuples for lists, so that what is stored equals what is read back.

    >>> freeze({"tile": [4, [1, 2]]})
    {'tile': (4, (1, 2))}
    """
    match value:
        case Mapping():
            return {_json_key(k): freeze(v) for k, v in value.items()}
        case list() | tuple():
            return tuple(freeze(v) for v in value)
        case None | bool() | int() | str():
            return value
        case float() if math.isfinite(value):
            return value
        case _:
            raise ValueError(
                f"{value!r} cannot be stored: JSON holds None, bool, int, finite float, str, list, dict"
            )


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical_json(value: Json) -> str:
    """The canonical text of a JSON value: sorted, compact, ASCII.

    >>> canonical_json({"b": (1, 2), "a": None})
    '{"a":null,"b":[1,2]}'
    """
    return _ENCODER.encode(value)


def printable(text: str) -> str:
    """The text with escapes for the characters that a database cannot hold (NUL, lone surrogates).

    >>> printable("a\\x00b\\udcff")
    'a\\\\x00b\\\\udcff'
    """
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")


def error_signature(error: str | None) -> str:
    """The text that two occurrences of one failure share: the first line, with # for numbers and addresses.

    >>> error_signature("kernel 'k' needs 66560 bytes at 0x7f3a\\nmore")
    "kernel 'k' needs # bytes at #"
    """
    line = next((s.strip() for s in (error or "").splitlines() if s.strip()), "")
    return re.sub(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?:e[-+]?\d+)?", "#", line)[:200]


def _json_key(key: object) -> str:
    if not isinstance(key, str):
        raise ValueError(f"{key!r} cannot be a JSON key: keys are strings")
    return key


def as_several(kind: type[E], asked: E | Collection[E] | None) -> tuple[E, ...] | None:
    """The members of an enumeration that an argument names: one, several, or None for any."""
    match asked:
        case None:
            return None
        case str():
            return (kind(asked),)
        case _:
            return tuple(kind(x) for x in asked)

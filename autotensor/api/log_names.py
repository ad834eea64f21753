"""Names that a reader of a log gives: each must be in the log, or a member of its set.

    log.history("nope")        ──▶ InputError: tuning log 'my.db' has no workload 'nope'. Known: …
    log.trials(status="ok")    ──▶ InputError: status 'ok' is unknown. Did you mean 'OK'? Known: …

Without these checks, a misspelt name would be answered by no rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TypeVar

from autotensor.base.errors import InputError
from autotensor.base.registry import MANY, nearest, suggest
from tuning_db import TrialStore

E = TypeVar("E", bound=StrEnum)

# for each kind of record: its keys in a log, each with its readable name, or with ""
_NAMES: Mapping[str, Callable[[TrialStore], dict[str, str]]] = {
    "workload": lambda s: {w.key: w.name for w in s.workloads()},
    "target": lambda s: {t.key: "" for t in s.targets()},
    "machine": lambda s: {m.fingerprint: m.cpu_model for m in s.machines()},
    "session": lambda s: dict.fromkeys((found.id for found in s.sessions()), ""),
    "model": lambda s: {r.model: "" for r in s.runs() if r.model},
}


def check_known(store: TrialStore, **asked: str | Sequence[str] | None) -> None:
    """Raises InputError with the nearest name for a key that is not in the log. None is not checked.

    `workload=KEY`, `machine=KEY` and so on are checked. Words that name no kind of record are not checked.
    """
    for kind, wanted in asked.items():
        if kind not in _NAMES or wanted is None:
            continue
        keys = _NAMES[kind](store)
        for key in [wanted] if isinstance(wanted, str) else wanted:
            if key not in keys:
                raise InputError(f"tuning log '{store.place}' has no {kind} {key!r}.", fix=_advice(key, keys))


def _advice(wrong: object, keys: Mapping[str, str]) -> str:
    """The key that was probably meant: it begins like this, or its readable name is this, or it is near."""
    text = str(wrong)
    meant = [key for key, name in keys.items() if text and (key.startswith(text) or name == text)]
    if 1 <= len(meant) <= MANY:
        return f"Did you mean {' or '.join(map(repr, meant))}?"
    shown = tuple(f"{key} ({name})" if name else key for key, name in keys.items())
    listed = f"Known: {', '.join(shown) or 'none'}." if len(keys) <= MANY else ""
    return f"{nearest(text, tuple(keys))}{listed}".rstrip()


def member(kind: str, of: type[E], given: E | str | None) -> E | None:
    """The member of `of` with that value; None stays None. Raises InputError with the nearest value."""
    values = tuple(m.value for m in of)
    if given is None or given in values:
        return None if given is None else of(given)
    raise InputError(f"{kind} {given!r} is unknown.", fix=suggest(str(given), values))


__all__ = ["check_known", "member"]

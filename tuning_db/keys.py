"""Translates keys to row ids and back, and remembers them while the store is open.

So a task is looked up only once, and not in every batch. Rows of these tables are never deleted or renumbered
while others may read them, so a remembered id stays right. When a transaction is rolled back, the ids that it
learned may be wrong. Then the store forgets all ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Connection, bindparam, select

from tuning_db import models as m
from tuning_db.errors import unknown
from tuning_db.records import SessionKind

CHUNK = 500  # values in one IN (…); old versions of SQLite allow 999
KEYS: dict[type[m.Base], Any] = {
    m.Workload: m.Workload.key,
    m.Target: m.Target.key,
    m.Machine: m.Machine.fingerprint,
    m.Environment: m.Environment.key,
    m.Host: m.Host.uuid,
    m.Code: m.Code.key,
    m.Run: m.Run.key,
    m.Session: m.Session.uuid,
}


@dataclass(frozen=True, slots=True)
class KnownSession:
    """The part of a session that never changes."""

    id: int
    kind: SessionKind
    started: datetime


@dataclass(frozen=True, slots=True)
class KnownSketch:
    id: int
    hash: str
    text: str | None


@dataclass(slots=True)
class Keys:
    """The row ids that one store has read. Threads may share them: each entry is written in one step, and all
    threads would write the same entry."""

    place: str
    _ids: dict[tuple[type[m.Base], str], int] = field(default_factory=dict)
    _keys: dict[tuple[type[m.Base], int], str] = field(default_factory=dict)
    _sessions: dict[str, KnownSession] = field(default_factory=dict)
    _sketches: dict[str, KnownSketch] = field(default_factory=dict)
    _sketches_by_id: dict[int, KnownSketch] = field(default_factory=dict)
    rounds: set[tuple[int, int, int, int]] = field(default_factory=set)  # session, workload, target, number

    def find(self, c: Connection, table: type[m.Base], key: str) -> int | None:
        """The id of a key; None if it is not stored."""
        known = self._ids.get((table, key))
        if known is None:
            known = c.execute(_id_of(table), {"wanted": key}).scalar()
            if known is not None:
                self._remember(table, known, key)
        return known

    def id(self, c: Connection, table: type[m.Base], key: str) -> int:
        """The id of a key. Raises StoreError, which names the key, if it is not stored."""
        found = self.find(c, table, key)
        if found is None:
            raise unknown(self.place, table.__tablename__, key)
        return found

    def maybe_id(self, c: Connection, table: type[m.Base], key: str | None) -> int | None:
        return None if key is None else self.id(c, table, key)

    def load(self, c: Connection, table: type[m.Base], ids: Iterable[int | None]) -> None:
        """Looks up the keys of these ids in one query, except those that are known."""
        missing = sorted({i for i in ids if i is not None and (table, i) not in self._keys})
        for part in chunks(missing):
            for id, key in c.execute(_keys_of(table), {"wanted": part}):
                self._remember(table, id, key)

    def key(self, table: type[m.Base], id: int) -> str:
        """The key of a loaded id. Raises LookupError for a row that refers to a missing row."""
        return self._keys[table, id]

    def maybe_key(self, table: type[m.Base], id: int | None) -> str | None:
        return None if id is None else self._keys[table, id]

    def _remember(self, table: type[m.Base], id: int, key: str) -> None:
        self._ids[table, key] = id
        self._keys[table, id] = key

    def session(self, c: Connection, uuid: str) -> KnownSession:
        """The part of a session that never changes. Raises StoreError if there is no such session."""
        known = self._sessions.get(uuid)
        if known is None:
            found = c.execute(_SESSION, {"wanted": uuid}).first()
            if found is None:
                raise unknown(self.place, "session", uuid)
            known = KnownSession(found.id, SessionKind(found.kind), found.started)
            self._sessions[uuid] = known
        return known

    def sketch(self, c: Connection, hash: str) -> KnownSketch | None:
        known = self._sketches.get(hash)
        if known is None:
            for row in c.execute(_SKETCH, {"wanted": hash}):
                known = self._remember_sketch(*row)
        return known

    def load_sketches(self, c: Connection, ids: Iterable[int | None]) -> None:
        without = KnownSketch(0, "", None)  # not remembered, because a text may be stored later
        wanted = {i for i in ids if i is not None}
        missing = sorted(i for i in wanted if self._sketches_by_id.get(i, without).text is None)
        for part in chunks(missing):
            for row in c.execute(_SKETCHES, {"wanted": part}):
                self._remember_sketch(*row)

    def sketch_of(self, id: int) -> KnownSketch:
        """The sketch of an id that was loaded."""
        return self._sketches_by_id[id]

    def _remember_sketch(self, id: int, hash: str, text: str | None) -> KnownSketch:
        known = KnownSketch(id, hash, text)
        if text is not None:
            self._sketches[hash] = known
        self._sketches_by_id[id] = known
        return known


def chunks(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (values[i : i + CHUNK] for i in range(0, len(values), CHUNK))


# --- statements: each is made once, because making one takes longer than executing it ---

_SESSION = select(m.Session.id, m.Session.kind, m.Session.started).where(
    m.Session.uuid == bindparam("wanted")
)
_SKETCH = select(m.Sketch.id, m.Sketch.hash, m.Sketch.text).where(m.Sketch.hash == bindparam("wanted"))
_SKETCHES = select(m.Sketch.id, m.Sketch.hash, m.Sketch.text).where(
    m.Sketch.id.in_(bindparam("wanted", expanding=True))
)


@cache
def _id_of(table: Any) -> Any:
    return select(table.id).where(KEYS[table] == bindparam("wanted"))


@cache
def _keys_of(table: Any) -> Any:
    return select(table.id, KEYS[table]).where(table.id.in_(bindparam("wanted", expanding=True)))

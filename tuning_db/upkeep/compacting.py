"""Returns the space of deleted rows to the system.

The file, or a server's tables, are written again without gaps. If this is killed, the log is unchanged. Other
processes wait until it is done.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, text

from tuning_db.engine import Opened
from tuning_db.models import Base

TABLES = tuple(table.name for table in Base.metadata.sorted_tables)


def compact(log: Opened) -> tuple[int, int]:
    """Compacts a log. Returns its bytes before and after. A file needs free space for its new size next to
    it."""
    return _file(log) if log.is_sqlite else _server(log)


def _file(log: Opened) -> tuple[int, int]:
    with log.read.connect() as c:
        raw: Any = c.connection.dbapi_connection  # without a transaction, because VACUUM makes its own
        before = _pages(raw)
        raw.execute("VACUUM")
        raw.execute("ANALYZE")
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # otherwise the file shrinks at the next checkpoint
        return before, _pages(raw)


def _pages(raw: Any) -> int:
    (count,), (size,) = (raw.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size"))
    return int(count * size)


def _server(log: Opened) -> tuple[int, int]:
    with log.write.connect().execution_options(isolation_level="AUTOCOMMIT") as c:
        before = _bytes(c)
        for name in TABLES:
            c.execute(text(f"VACUUM (FULL, ANALYZE) {name}"))
        return before, _bytes(c)


def _bytes(c: Connection) -> int:
    size = text("SELECT pg_total_relation_size(CAST(:name AS regclass))")
    return sum(int(c.execute(size, {"name": name}).scalar_one()) for name in TABLES)

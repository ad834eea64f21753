"""Earlier exports of a log: `autotensor db export` replaces these, and other files only with --force."""

from __future__ import annotations

from autotensor.cli.output_files import Kind, beginning
from tuning_db.exchange.frames import TABLES
from tuning_db.exchange.transfer import BEGINNING


def _is_of_a_table(head: bytes) -> bool:
    """Whether a CSV file has the columns of one of the log's tables in its first line."""
    line = head.partition(b"\n")[0].decode(errors="replace")
    names = {name.strip().strip('"') for name in line.split(",")}
    if any(names <= set(table.columns) for table in TABLES.values()):
        return True
    from autotensor.search.feature_frames import COLUMNS

    return names <= set(COLUMNS)


KINDS = {
    "jsonl": beginning("an exported log", BEGINNING.lower()),
    "csv": Kind("an exported table", _is_of_a_table),
    "parquet": beginning("a parquet file", b"par1"),
}


def kind_of(format: str) -> Kind:
    """The kind of an export in this format: "jsonl", "csv" or "parquet"."""
    return KINDS[format]


__all__ = ["kind_of"]

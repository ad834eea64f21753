"""Tables of a log for data frames. Each is one SELECT, whose rows come in batches as Arrow data.

    frame(store, "trials", where={"workload": key}, columns=["median_s", "made_by"]) ──▶ Frame
    pandas.DataFrame.from_arrow, polars.from_arrow, duckdb.sql("FROM frame") read it by `__arrow_c_stream__`

The frames have keys instead of the log's row numbers. This module needs pyarrow (extra `frame`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

from tuning_db.errors import StoreError
from tuning_db.records import Conditions, SessionKind, Status

if TYPE_CHECKING:
    import pyarrow as pa

    from tuning_db.contract import TrialStore

ROWS = 10_000  # rows of a batch
_TASK = """
JOIN workload w ON w.id = t.workload_id
JOIN target g ON g.id = t.target_id
JOIN machine m ON m.id = t.machine_id"""


@dataclass(frozen=True, slots=True)
class Column:
    """A selected column and its form: text, word (text with few different values), number, count, yes,
    instant, or a list from the column's JSON (seconds, references)."""

    sql: str
    kind: str = "text"
    values: type[StrEnum] | None = None  # all values that a row can have; None: any


@dataclass(frozen=True, slots=True)
class Table:
    columns: Mapping[str, Column]
    source: str


def _words(**columns: str | Column) -> dict[str, Column]:
    return {name: Column(c, "word") if isinstance(c, str) else c for name, c in columns.items()}


_KIND = Column("s.kind", "word", SessionKind)
_STATUS = Column("t.status", "word", Status)
_CONDITIONS = Column("t.conditions", "word", Conditions)


TABLES: Mapping[str, Table] = {
    "trials": Table(
        {
            "trial": Column("t.id", "count"),
            **_words(
                session="s.uuid", kind=_KIND, workload="w.key", name="w.name", target="g.key",
                machine="m.fingerprint", environment="e.key", host="h.name", code="c.key", sketch="k.hash",
            ),
            "round": Column("t.round", "count"),
            "decisions": Column("t.decisions"),
            "trace_hash": Column("t.trace_hash"),
            **_words(made_by="t.made_by"),
            "predicted": Column("t.predicted", "number"),
            **_words(status=_STATUS),
            "median_s": Column("t.median_s", "number"),
            **_words(residency="t.residency"),
            "samples_s": Column("t.samples", "seconds"),
            "references_s": Column("t.samples", "references"),
            "max_error": Column("t.max_error", "number"),
            "tolerance": Column("t.tolerance", "number"),
            "verdict": Column("t.verdict", "yes"),
            **_words(conditions=_CONDITIONS, note="t.note", numerics="t.numerics"),
            "build_s": Column("t.build_s", "number"),
            "error": Column("t.error"),
            "assembly": Column("t.assembly"),
            "source_sha": Column("t.source_sha"),
            "flops": Column("w.flops", "number"),
            "created": Column("t.created", "instant"),
        },
        f"""trial t {_TASK}
JOIN session s ON s.id = t.session_id
JOIN environment e ON e.id = t.environment_id
LEFT JOIN host h ON h.id = t.host_id
LEFT JOIN code c ON c.id = t.code_id
LEFT JOIN sketch k ON k.id = t.sketch_id""",
    ),
    "sessions": Table(
        {
            **_words(session="s.uuid", run="r.key", model="r.model", kind=_KIND, machine="m.fingerprint",
                     environment="e.key", stop_reason="s.stop_reason"),
            "seed": Column("s.seed"),
            "options": Column("s.options"),
            "started": Column("s.started", "instant"),
            "ended": Column("s.ended", "instant"),
        },
        """session s
JOIN run r ON r.id = s.run_id
JOIN machine m ON m.id = s.machine_id
JOIN environment e ON e.id = s.environment_id""",
    ),
    "standings": Table(
        {
            **_words(workload="w.key", name="w.name", target="g.key", machine="m.fingerprint", race="s.uuid"),
            "trial": Column("t.trial_id", "count"),
            "seconds": Column("t.seconds", "number"),
            "default_s": Column("t.default_s", "number"),
            "flops": Column("w.flops", "number"),
            "updated": Column("t.updated", "instant"),
        },
        f"standing t {_TASK} JOIN session s ON s.id = t.race_id",
    ),
    "counts": Table(
        {
            **_words(workload="w.key", name="w.name", target="g.key", machine="m.fingerprint",
                     status=_STATUS, signature="t.signature"),
            "count": Column("t.n", "count"),
            "example": Column("t.example", "count"),
        },
        f"task_count t {_TASK}",
    ),
    "parents": Table(
        {
            "trial": Column("p.child_id", "count"),
            **_words(workload="w.key", how="p.how", parent_workload="v.key"),
            "parent": Column("p.trace_hash"),
        },
        """parent p
JOIN trial t ON t.id = p.child_id
JOIN workload w ON w.id = t.workload_id
JOIN workload v ON v.id = COALESCE(p.workload_id, t.workload_id)""",
    ),
    "rates": Table(
        {
            **_words(machine="m.fingerprint", name="t.name", unit="t.unit"),
            "value": Column("t.value", "number"),
            "measured": Column("t.measured", "instant"),
        },
        "calibration t JOIN machine m ON m.id = t.machine_id",
    ),
}  # fmt: skip

Where = Mapping[str, Any]  # column → a value, or several values


@dataclass(frozen=True, slots=True, repr=False)
class Frame:
    """The rows as Arrow data. Each use reads them again; `batches` returns one batch after the other."""

    schema: pa.Schema
    batches: Callable[[], Iterator[pa.RecordBatch]]
    # rows of the log that the last use left out, by reason; empty for most tables
    left_out: Counter[str] = field(default_factory=Counter)

    def __repr__(self) -> str:
        return f"Frame({len(self.columns)} columns: {', '.join(self.columns)})"

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.schema.names)

    def reader(self) -> pa.RecordBatchReader:
        import pyarrow

        return pyarrow.RecordBatchReader.from_batches(self.schema, self.batches())

    def to_pandas(self) -> Any:
        """All rows as a pandas.DataFrame. Raises StoreError when pandas is not installed."""
        try:
            return self.reader().read_all().to_pandas()
        except ModuleNotFoundError as error:
            raise StoreError(
                "to_pandas needs pandas, which is not installed.", "pip install pandas"
            ) from error

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow C stream interface, by which other libraries read the rows."""
        return self.reader().__arrow_c_stream__(requested_schema)


def frame(
    store: TrialStore, table: str, where: Where | None = None, columns: Sequence[str] | None = None
) -> Frame:
    """A table of a log (`TABLES` has their names and columns), restricted to rows with these values.

    Raises StoreError for an unknown table or column, and when pyarrow is not installed.
    """
    known = _table(table)
    names = list(known.columns) if columns is None else list(columns)
    check_shapes(where, columns)
    _check(table, known, [*names, *(where or {})])
    check_values(known, where or {})
    import_pyarrow()
    chosen = {name: known.columns[name] for name in names}
    query, values = select(known, chosen, where or {})
    return Frame(schema_of(chosen), partial(_batches, store, query, values, chosen))


def import_pyarrow() -> Any:
    """Imports pyarrow. Raises StoreError when it is not installed."""
    try:
        import pyarrow
    except ImportError as error:
        raise StoreError(
            "data frames need pyarrow, which is not installed.", "pip install 'autotensor[frame]'"
        ) from error
    return pyarrow


def _table(name: str) -> Table:
    if name not in TABLES:
        raise StoreError(f"there is no table {name!r}.", f"Known: {', '.join(sorted(TABLES))}.")
    return TABLES[name]


def check_shapes(where: object, columns: object) -> None:
    """Raises StoreError for columns and conditions of a wrong shape, which would be read letter by letter."""
    if isinstance(columns, str) or not isinstance(where, Mapping | None):
        raise StoreError(
            "columns or conditions have a wrong shape.",
            'Write for example columns=["median_s"], where={"status": "OK"}.',
        )


def among(name: str, known: Iterable[str]) -> str:
    """Advice after a wrong name: the nearest name, and all names.

    >>> among("statuss", ["trial", "status"])
    "Did you mean 'status'? Known: trial, status."
    """
    known = list(known)
    plain = {k.casefold(): k for k in known}
    near = get_close_matches(name.casefold(), plain, n=1)
    return (f"Did you mean {plain[near[0]]!r}? " if near else "") + f"Known: {', '.join(known)}."


def _check(name: str, table: Table, asked: Sequence[str]) -> None:
    for column in asked:
        if column not in table.columns:
            raise StoreError(f"table {name!r} has no column {column!r}.", among(column, table.columns))


def check_values(table: Table, where: Where) -> None:
    """Raises StoreError for a value that no row can have."""
    for name, wanted in where.items():
        known = [str(v.value) for v in table.columns[name].values or ()]
        for value in _several(wanted) if known else ():
            if value not in known:
                raise StoreError(f"no row can have {name} {value!r}.", among(str(value), known))


def _several(wanted: Any) -> list[Any]:
    return [wanted] if isinstance(wanted, str) or not isinstance(wanted, Sequence) else list(wanted)


def select(table: Table, chosen: Mapping[str, Column], where: Where) -> tuple[str, dict[str, Any]]:
    """The statement and its parameters."""
    conditions: list[str] = []
    values: dict[str, Any] = {}
    for n, (name, wanted) in enumerate(where.items()):
        several = _several(wanted)
        places = [f"v{n}_{m}" for m in range(len(several))]
        values |= dict(zip(places, several, strict=True))
        conditions.append(f"{table.columns[name].sql} IN ({', '.join(f':{p}' for p in places) or 'NULL'})")
    sql = ", ".join(f"{column.sql} AS {name}" for name, column in chosen.items())
    restricted = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {sql} FROM {table.source}{restricted}", values


def schema_of(chosen: Mapping[str, Column]) -> pa.Schema:
    pa = import_pyarrow()
    kinds = {
        "text": pa.string(),
        "word": pa.dictionary(pa.int32(), pa.string()),
        "number": pa.float64(),
        "count": pa.int64(),
        "yes": pa.bool_(),
        "instant": pa.timestamp("us", tz="UTC"),
        "seconds": pa.list_(pa.float64()),
        "references": pa.list_(pa.float64()),
    }
    return pa.schema([(name, kinds[column.kind]) for name, column in chosen.items()])


def _batches(
    store: TrialStore, query: str, values: Mapping[str, Any], chosen: Mapping[str, Column]
) -> Iterator[pa.RecordBatch]:
    pa = import_pyarrow()
    schema = schema_of(chosen)
    for rows in store.rows(query, values, ROWS):
        columns = zip(*rows, strict=True)
        arrays = [
            _array(column, kind.kind, field.type)
            for column, kind, field in zip(columns, chosen.values(), schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: Sequence[Any], kind: str, type_: pa.DataType) -> pa.Array:
    pa = import_pyarrow()
    match kind:
        case "word":
            return pa.array(values, pa.string()).dictionary_encode()
        case "yes":
            return pa.array([None if v is None else bool(v) for v in values], type_)
        case "instant":
            import pyarrow.compute as pc

            return pc.cast(pa.array(values, pa.string()), type_)
        case "seconds" | "references":
            place = 0 if kind == "seconds" else 1
            return pa.array(
                [None if v is None else [entry[place] for entry in json.loads(v)] for v in values], type_
            )
        case _:
            return pa.array(values, type_)


def export_frame(found: Frame, file: BinaryIO, format: str) -> int:
    """Writes a frame to an open file, as "csv" or "parquet". Returns the number of rows. Lists become JSON in
    CSV. Raises OSError."""
    rows = 0
    with _writer(found, file, format) as writer:
        for batch in found.batches():
            writer.write_batch(_flat(batch) if format == "csv" else batch)
            rows += batch.num_rows
    return rows


def _writer(found: Frame, file: BinaryIO, format: str) -> Any:
    import_pyarrow()
    if format == "parquet":
        import pyarrow.parquet as parquet

        return parquet.ParquetWriter(file, found.schema, compression="zstd")
    import pyarrow.csv as csv

    return csv.CSVWriter(file, _flat_schema(found.schema))


def _flat_schema(schema: pa.Schema) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([(f.name, pa.string() if _nested(f.type) else f.type) for f in schema])


def _nested(type_: pa.DataType) -> bool:
    """Whether a CSV cell cannot hold values of this type."""
    import pyarrow as pa

    return bool(pa.types.is_list(type_) or pa.types.is_dictionary(type_))


def _flat(batch: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa

    arrays = []
    for array, column in zip(batch.columns, batch.schema, strict=True):
        if pa.types.is_list(column.type):
            array = pa.array([None if v is None else json.dumps(v) for v in array.to_pylist()], pa.string())
        elif pa.types.is_dictionary(column.type):
            array = array.dictionary_decode()
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=_flat_schema(batch.schema))


__all__ = ["TABLES", "Frame", "export_frame", "frame"]

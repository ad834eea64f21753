"""Move trials between logs: export to and import from JSON lines, merge two logs.

    log ──▶ {"format": "autotensor tuning log", "version": 1}
            {"kind": "workload", …}        what is referred to comes before what refers to it
            {"kind": "trial", …}           ──▶ log

Everything keeps its keys, sessions their uuids, so importing twice is importing once, and times keep the
fingerprint of the machine they were measured on. Built on the verbs of `TrialStore` alone. Intents stay
behind: what is in flight is in flight on one machine; so do the notes of what a trial was built into.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from tuning_db.contract import TrialStore
from tuning_db.errors import StoreError
from tuning_db.records import (
    Calibration,
    Environment,
    Json,
    Machine,
    Round,
    Sample,
    Session,
    TargetRecord,
    TrialRecord,
    Verification,
    Workload,
    canonical_json,
)

FORMAT = "autotensor tuning log"
VERSION = 1
BATCH = 500  # trials in one transaction

Record = (
    Workload | TargetRecord | Machine | Environment | Session | Round | TrialRecord | tuple[str, Calibration]
)
_KINDS: Mapping[str, type[Any]] = {
    "workload": Workload,
    "target": TargetRecord,
    "machine": Machine,
    "environment": Environment,
    "session": Session,
    "round": Round,
    "trial": TrialRecord,
}
_TIMES = ("started", "ended", "created", "measured")


@dataclass(frozen=True, slots=True)
class Transferred:
    """What a transfer brought: trials that were new, and those that were there already."""

    new: int
    known: int


def export_jsonl(store: TrialStore, path: str | os.PathLike[str], workload_key: str | None = None) -> int:
    """Write a log (or the trials of one workload) to a file of JSON lines; gives the number of trials.

    The file appears under its name when it is complete, never in part.
    """
    target = Path(path)
    part = target.with_name(target.name + ".part")
    trials = 0
    try:
        with part.open("w", encoding="utf-8", newline="\n") as stream:
            stream.write(canonical_json({"format": FORMAT, "version": VERSION}) + "\n")
            for record in _records(store, workload_key):
                stream.write(canonical_json(to_json(record)) + "\n")
                trials += isinstance(record, TrialRecord)
        os.replace(part, target)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise StoreError(
            f"cannot write '{target}': {error.strerror}.", "Check space and permissions."
        ) from error
    return trials


def import_jsonl(store: TrialStore, path: str | os.PathLike[str]) -> Transferred:
    """Add everything in a file of JSON lines to a log. The whole file is checked before anything is stored.

    Raises StoreError naming the line that is not understood, or the version that is newer than this program.
    """
    for _ in _parsed(Path(path)):
        pass
    return _store(store, _parsed(Path(path)))


def merge(into: TrialStore, source: TrialStore) -> Transferred:
    """Add everything in `source` to `into`. Trials of other machines stay trials of other machines."""
    return _store(into, _records(source, None))


def to_json(record: Record) -> Json:
    """The line of a record; `from_json` is its inverse."""
    if isinstance(record, tuple):
        return {"kind": "calibration", "machine": record[0], **_fields(record[1])}
    kind = next(name for name, cls in _KINDS.items() if type(record) is cls)
    line = {"kind": kind, **_fields(record)}
    if isinstance(record, TrialRecord):
        del line["id"]  # belongs to one log
        line["samples"] = [_fields(s) for s in record.samples]
        line["verification"] = None if record.verification is None else _fields(record.verification)
    return line


def from_json(line: Json) -> Record:
    """The record of a line; fields unknown here are ignored. Raises ValueError, TypeError or KeyError."""
    values: dict[str, Any] = {
        k: datetime.fromisoformat(v) if k in _TIMES and v is not None else v for k, v in line.items()
    }
    kind = values["kind"]
    if kind == "calibration":
        return str(values["machine"]), _make(Calibration, values)
    if kind == "trial":
        values["samples"] = tuple(_make(Sample, s) for s in values["samples"])
        check = values["verification"]
        values["verification"] = None if check is None else _make(Verification, check)
        values["id"] = None
    record: Record = _make(_KINDS[kind], values)
    return record


def _fields(record: Any) -> dict[str, Json]:
    values = {f.name: getattr(record, f.name) for f in fields(record)}
    return {k: v.isoformat() if isinstance(v, datetime) else v for k, v in values.items()}


def _make(cls: type[Any], values: Mapping[str, Any]) -> Any:
    return cls(**{f.name: values[f.name] for f in fields(cls) if f.name in values})


def _records(store: TrialStore, workload_key: str | None) -> Iterator[Record]:
    """Everything in a log, what is referred to first; trials are read in batches."""
    yield from store.workloads()
    yield from store.targets()
    yield from store.machines()
    yield from store.environments()
    for machine in store.machines():
        yield from ((machine.fingerprint, c) for c in store.calibrations(machine.fingerprint))
    for session in store.sessions():
        yield session
        yield from store.rounds(session.id)
    after = 0
    while batch := store.trials(workload_key, limit=BATCH, after=after):
        yield from batch
        after = batch[-1].id or 0


def _store(store: TrialStore, records: Iterable[Record]) -> Transferred:
    new = seen = 0
    rounds: list[Round] = []
    rates: dict[str, list[Calibration]] = {}
    waiting: list[TrialRecord] = []

    def flush() -> int:
        for fingerprint, values in rates.items():
            store.put_calibration(fingerprint, values)
        store.put_rounds(rounds)
        added = store.add_trials(waiting)
        rates.clear()
        rounds.clear()
        waiting.clear()
        return added

    for record in records:
        match record:
            case Workload():
                store.put_workload(record)
            case TargetRecord():
                store.put_target(record)
            case Machine():
                store.ensure_machine(record)
            case Environment():
                store.put_environment(record)
            case Session():
                store.put_session(record)
            case Round():
                rounds.append(record)
            case TrialRecord():
                waiting.append(record)
                seen += 1
            case (fingerprint, rate):
                rates.setdefault(fingerprint, []).append(rate)
        if len(waiting) >= BATCH:
            new += flush()
    new += flush()
    return Transferred(new, seen - new)


def _parsed(path: Path) -> Iterator[Record]:
    try:
        with path.open(encoding="utf-8") as stream:
            _check_format(path, stream.readline())
            for number, text in enumerate(stream, start=2):
                try:
                    record = from_json(json.loads(text))
                except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
                    raise StoreError(
                        f"line {number} of '{path}' is not a record of a tuning log: {error!r}.",
                        "Nothing was imported; export the log again, or delete that line.",
                    ) from error
                yield record
    except OSError as error:
        raise StoreError(f"cannot read '{path}': {error.strerror}.", "Check path and permissions.") from error
    except UnicodeDecodeError as error:
        raise _not_an_export(path) from error


def _check_format(path: Path, line: str) -> None:
    try:
        header = json.loads(line)
        name, version = header["format"], int(header["version"])
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise _not_an_export(path) from error
    if name != FORMAT:
        raise _not_an_export(path)
    if version > VERSION:
        raise StoreError(
            f"'{path}' has export format {version}; this program knows only {VERSION}.", "Upgrade autotensor."
        )


def _not_an_export(path: Path) -> StoreError:
    return StoreError(
        f"'{path}' is not an exported tuning log.", "Make one with `autotensor db export`, or export_jsonl."
    )

"""Moves trials between logs: exports and imports JSON lines, and merges two logs.

    log ──▶ {"format": "autotensor tuning log", "version": 2}
            {"kind": "workload", …}        a record comes before the records that refer to it
            {"kind": "trial", …}           ──▶ log

All records keep their keys, and sessions keep their uuids. So importing twice has the same result as
importing once, and times keep the fingerprint of their machine. The module uses only the verbs of
`TrialStore`. Intents and leases are not copied, because running work belongs to one machine. Files of version
1 are read, too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from tuning_db.contract import TrialStore
from tuning_db.errors import StoreError
from tuning_db.records import (
    Application,
    Calibration,
    Code,
    Environment,
    Host,
    Machine,
    Opening,
    Parent,
    Round,
    Run,
    Sample,
    Session,
    SessionKind,
    Sketch,
    Standing,
    TargetRecord,
    TrialRecord,
    Verification,
    Workload,
)
from tuning_db.values import Json, canonical_json

FORMAT = "autotensor tuning log"
VERSION = 2
BEGINNING = f'{{"format":"{FORMAT}"'.encode()  # the first bytes of an exported log
BATCH = 500  # trials in one transaction

Record = (
    Workload | TargetRecord | Machine | Host | Code | Environment | Sketch | Run | Session | Opening | Round
    | TrialRecord | Application | tuple[str, Calibration] | tuple[Standing, str | None]
)  # fmt: skip
_KINDS: Mapping[str, type[Any]] = {
    "workload": Workload,
    "target": TargetRecord,
    "machine": Machine,
    "host": Host,
    "code": Code,
    "environment": Environment,
    "sketch": Sketch,
    "run": Run,
    "session": Session,
    "opening": Opening,
    "round": Round,
    "trial": TrialRecord,
    "application": Application,
}
_TIMES = ("started", "ended", "created", "measured", "seen", "applied", "updated")
_RACE, _END, _MODEL = "race:", "race:end:", "race:model"  # beginnings of races' run keys in version 1


@dataclass(frozen=True, slots=True)
class Transferred:
    """The result of a transfer: the number of new trials, and of trials that the log had before."""

    new: int
    known: int


def export_jsonl(store: TrialStore, file: BinaryIO, workload_key: str | None = None) -> int:
    """Write a log (or the trials of one workload) to an open file, as JSON lines. Returns the number of
    trials. Raises OSError."""
    trials = 0
    file.write(_line({"format": FORMAT, "version": VERSION}))
    for record in _records(store, workload_key):
        file.write(_line(to_json(record)))
        trials += isinstance(record, TrialRecord)
    return trials


def _line(document: Any) -> bytes:
    return f"{canonical_json(document)}\n".encode()


def import_jsonl(store: TrialStore, path: str | os.PathLike[str]) -> Transferred:
    """Add everything in a file of JSON lines to a log. The whole file is checked before anything is stored.

    Raises StoreError, which names the line that is not understood, or the version if it is newer than this
    program.
    """
    for _ in _parsed(Path(path)):
        pass
    return _store(store, _parsed(Path(path)))


def merge(into: TrialStore, source: TrialStore) -> Transferred:
    """Add everything in `source` to `into`. Trials keep the machine on which they were measured.

    `known` counts the trials that were read and not new; trials that were merged before are not read again.
    """
    new, seen = into.merge(source)
    return Transferred(new, seen - new)


def to_json(record: Record) -> Json:
    """The line of a record; `from_json` is its inverse."""
    match record:
        case (Standing() as standing, trace_hash):
            line = {"kind": "standing", **_fields(standing), "trace_hash": trace_hash}
            del line["trial"]  # a trial's number belongs to one log
            return line
        case (str(fingerprint), Calibration() as rate):
            return {"kind": "calibration", "machine": fingerprint, **_fields(rate)}
    kind = next(name for name, cls in _KINDS.items() if type(record) is cls)
    line = {**_fields(record), "kind": kind}
    if isinstance(record, TrialRecord):
        del line["id"]  # belongs to one log
        line["samples"] = [_fields(s) for s in record.samples]
        line["verification"] = None if record.verification is None else _fields(record.verification)
        line["parents"] = [_fields(p) for p in record.parents]
    if isinstance(record, Session):
        del line["owner"], line["lease_until"]
        line["session_kind"] = record.kind
    return line


def from_json(line: Json) -> Record:
    """The record of a line. Unknown fields are ignored. Raises ValueError, TypeError or KeyError."""
    values: dict[str, Any] = {
        k: datetime.fromisoformat(v) if k in _TIMES and v is not None else v for k, v in line.items()
    }
    kind = values["kind"]
    if kind == "calibration":
        return str(values["machine"]), _make(Calibration, values)
    if kind == "standing":
        return _make(Standing, values), values["trace_hash"]
    if kind == "session":
        values["kind"] = values.get("session_kind", SessionKind.SEARCH)
    if kind == "trial":
        values["samples"] = tuple(_make(Sample, s) for s in values["samples"])
        check = values["verification"]
        values["verification"] = None if check is None else _make(Verification, check)
        values["parents"] = tuple(_make(Parent, p) for p in values["parents"])
        values["id"] = None
    record: Record = _make(_KINDS[kind], values)
    return record


def from_version_1(line: Json) -> Json:
    """The line of this version with the same meaning as a line of version 1."""
    match line["kind"]:
        case "session":
            key, of = line["run_key"], line["options"].get("of")
            return {
                **line,
                "run_key": key.removeprefix(_RACE),
                "session_kind": _kind_of_version_1(key),
                "of": of if isinstance(of, str) else None,
            }
        case "trial":
            return {**line, "parents": [{"trace_hash": hash} for hash in line["parents"]]}
        case _:
            return line


def _kind_of_version_1(run_key: str) -> SessionKind:
    if run_key == _MODEL:
        return SessionKind.MODEL
    if run_key.startswith(_END):
        return SessionKind.END
    return SessionKind.RACE if run_key.startswith(_RACE) else SessionKind.SEARCH


def _fields(record: Any) -> dict[str, Json]:
    values = {f.name: getattr(record, f.name) for f in fields(record)}
    return {k: v.isoformat() if isinstance(v, datetime) else v for k, v in values.items()}


def _make(cls: type[Any], values: Mapping[str, Any]) -> Any:
    return cls(**{f.name: values[f.name] for f in fields(cls) if f.name in values})


def _records(store: TrialStore, workload_key: str | None) -> Iterator[Record]:
    """All records of a log; a record comes before the records that refer to it. Trials are read in batches.

    Other processes may write meanwhile. So a record that refers to another one is read first, but returned
    after it.
    """
    applications, standings = store.all_applications(), _standings(store)
    newest = store.trials(newest=True, limit=1)
    openings, sessions = store.openings(), store.sessions()
    yield from store.workloads()
    yield from store.targets()
    yield from store.machines()
    yield from store.hosts()
    yield from store.codes()
    yield from store.environments()
    yield from store.sketches()
    yield from store.runs()
    for machine in store.machines():
        yield from ((machine.fingerprint, c) for c in store.calibrations(machine.fingerprint))
    for session in sorted(sessions, key=lambda s: s.of is not None):  # a race names its search
        yield session
        yield from store.rounds(session.id)
    yield from openings
    yield from _trials(store, workload_key, newest[0].id or 0 if newest else 0)
    for standing, trace_hash in standings:
        if workload_key in (None, standing.workload):
            yield standing, trace_hash
    for application in applications:
        if workload_key in (None, application.workload):
            yield application


def _standings(store: TrialStore) -> list[tuple[Standing, str | None]]:
    """The winner in use of each task, and its trace hash, by which every log can find it."""
    return [(s, None if s.trial is None else store.trial(s.trial).trace_hash) for s in store.standings()]


def _trials(store: TrialStore, workload_key: str | None, last: int) -> Iterator[TrialRecord]:
    after = 0
    while batch := store.trials(workload_key, limit=BATCH, after=after):
        for trial in batch:
            after = trial.id or 0
            if after > last:
                return
            yield trial


def _store(store: TrialStore, records: Iterable[Record]) -> Transferred:
    """Stores records one by one, by the store's verbs. Records that the log already has are not changed."""
    new = seen = 0
    runs = {run.key: run for run in store.runs()}
    known_rounds: dict[str, set[tuple[str, str, int]]] = {}  # of sessions that are known
    rounds: list[Round] = []
    rates: dict[str, list[Calibration]] = {}
    waiting: list[TrialRecord] = []
    applied: list[Application] = []
    standings: list[tuple[Standing, str | None]] = []

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
            case Host():
                store.put_host(record)
            case Code():
                store.put_code(record)
            case Environment():
                store.put_environment(record)
            case Sketch():
                store.put_sketches([record])
            case Run():
                store.put_run(_what_is_missing(record, runs.get(record.key)))
            case Session():
                if not store.put_session(record):
                    known_rounds[record.id] = set(map(_place, store.rounds(record.id)))
            case Opening():
                store.put_opening(record)
            case Round():
                if _place(record) not in known_rounds.get(record.session, ()):
                    rounds.append(record)
            case TrialRecord():
                waiting.append(record)
                seen += 1
            case Application():
                applied.append(record)
            case (Standing() as standing, trace_hash):
                standings.append((standing, trace_hash))
            case (str(fingerprint), Calibration() as rate):
                rates.setdefault(fingerprint, []).append(rate)
        if len(waiting) >= BATCH:
            new += flush()
    new += flush()
    for standing, trace_hash in standings:
        _put_standing(store, standing, trace_hash)
    store.put_applications(applied)
    return Transferred(new, seen - new)


def _place(r: Round) -> tuple[str, str, int]:
    return r.workload, r.target, r.index


def _what_is_missing(run: Run, known: Run | None) -> Run:
    """The run without the fields that this log knows, because `put_run` would replace them."""
    return run if known is None else replace(Run(run.key), **{
        f.name: getattr(run, f.name) for f in fields(Run) if not getattr(known, f.name)
    })  # fmt: skip


def _put_standing(store: TrialStore, s: Standing, trace_hash: str | None) -> None:
    """Stores the winner of a race, if it is the last race in this log, too."""
    trial = None if trace_hash is None else store.trial_id(s.race, s.workload, s.target, trace_hash)
    if trial is not None:
        store.put_standing(replace(s, trial=trial))


def _parsed(path: Path) -> Iterator[Record]:
    try:
        with path.open(encoding="utf-8") as stream:
            version = _version_of(path, stream.readline())
            for number, text in enumerate(stream, start=2):
                try:
                    line = json.loads(text)
                    record = from_json(line if version > 1 else from_version_1(line))
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


def _version_of(path: Path, line: str) -> int:
    """The version of an export, from its first line. Raises StoreError for another file, or a newer
    version."""
    try:
        header = json.loads(line)
        name, version = header["format"], int(header["version"])
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise _not_an_export(path) from error
    if name != FORMAT:
        raise _not_an_export(path)
    if version > VERSION:
        raise StoreError(
            f"'{path}' has export format {version}; this program reads only {VERSION}.", "Upgrade autotensor."
        )
    return version


def _not_an_export(path: Path) -> StoreError:
    return StoreError(
        f"'{path}' is not an exported tuning log.", "Make one with `autotensor db export`, or export_jsonl."
    )

"""Tuned schedules as text: one file for each class of machines, and one record on each line.

    {"format": "autotensor schedules", "version": 1, "machine": {…}, "targets": {key: {…}, …}}
    {"name": …, "workload": key, "text": {…}, "target": key, "trace": {…}, "seconds": …, "ratio": …, …}

Lines are sorted by name, workload and target. Merging keeps one record for each workload and target: the
record that gained more over the same default. Each gain comes from the record's own race, because times of
different days cannot be compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from autotensor.base.errors import InputError
from autotensor.base.machine import HostMachine
from autotensor.base.target import Target

FORMAT, VERSION = "autotensor schedules", 1
SCHEDULES = "schedules.jsonl"
DIGITS = 4  # significant digits that are kept of a time or an error


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedRecord:
    """One schedule that beat a default, and their race. Seconds are medians of this race."""

    name: str  # a name for people
    workload: str  # key, the hash of the text
    text: str  # the workload's text, which describes the computation
    target: str  # key
    trace: str  # JSON text in canonical names
    trace_hash: str
    default: str  # hash of the default trace that the schedule beat
    seconds: float
    default_s: float
    ratio: float  # median of the paired ratios of the race's samples, below 1
    samples: int  # samples of each of the two schedules
    residency: str  # the data's residency in the race: model, graph or hot
    max_error: float
    tolerance: float
    seeds: tuple[int, ...]  # the seeds of the inputs on which it was verified
    sketch: str = ""  # hash of the sketch; with the decisions, a search can start from it
    decisions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    made_by: str = ""
    date: str = ""  # the date of the race, in UTC
    versions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0.0 < self.ratio < 1.0:
            raise ValueError(f"ratio is {self.ratio}; a record must be faster than the default")
        if not self.max_error <= self.tolerance:
            raise ValueError(f"error {self.max_error} is above the tolerance {self.tolerance}")

    @property
    def order(self) -> tuple[str, str, str]:
        return (self.name, self.workload, self.target)


@dataclass(frozen=True, slots=True)
class TunedClass:
    """All records of one class of machines. `targets` are the targets of the records, by key."""

    machine: HostMachine
    targets: Mapping[str, Target]
    records: tuple[TunedRecord, ...]


def merged(old: TunedClass, new: Iterable[TunedRecord], targets: Mapping[str, Target]) -> TunedClass:
    """The old and the new records, with one record for each workload and target (see `better`)."""
    kept = {(r.workload, r.target): r for r in old.records}
    for r in new:
        known = kept.get((r.workload, r.target))
        kept[r.workload, r.target] = r if known is None else better(known, r)
    records = tuple(sorted(kept.values(), key=lambda r: r.order))
    used = {r.target for r in records}
    everything = {**old.targets, **targets}
    return TunedClass(old.machine, {k: everything[k] for k in sorted(used)}, records)


def better(known: TunedRecord, new: TunedRecord) -> TunedRecord:
    """The record to keep of two. If they beat different defaults, the older record is out of date."""
    if known.default != new.default:
        return max(known, new, key=lambda r: r.date)
    return new if new.ratio < known.ratio else known


# -- text ----------------------------------------------------------------------------------------------------


def to_text(shelf: TunedClass) -> str:
    """The text of a class's file. `from_text` is the inverse, except for rounded digits."""
    m = shelf.machine
    head = {
        "format": FORMAT,
        "version": VERSION,
        "machine": {"cpu": m.cpu_model, "cores": m.cores, "caches": m.caches, "features": m.features},
        "targets": {k: _target_to_json(t) for k, t in sorted(shelf.targets.items())},
    }
    lines = [head, *(_to_json(r) for r in sorted(shelf.records, key=lambda r: r.order))]
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


def read_header(path: Path) -> tuple[HostMachine, dict[str, Target]]:
    """The machine and targets of a file. Reads only one line. Raises the same InputErrors as `read_class`."""
    with path.open(encoding="utf-8") as stream:
        return _header(path, stream.readline())


def read_class(path: Path) -> TunedClass:
    """Reads a whole file. Raises InputError, which names the line, if a line is not understood."""
    first, *rest = path.read_text(encoding="utf-8").splitlines() or [""]
    machine, targets = _header(path, first)
    records = []
    for number, line in enumerate(rest, start=2):
        try:
            record = _from_json(json.loads(line))
            if record.target not in targets:
                raise ValueError(f"target {record.target!r} is not in the header")
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise InputError(
                f"line {number} of {path} is not a tuned schedule: {error!r}.",
                fix="Install autotensor again, or set AUTOTENSOR_NO_SHIPPED=1.",
            ) from error
        records.append(record)
    return TunedClass(machine, targets, tuple(records))


def _header(path: Path, line: str) -> tuple[HostMachine, dict[str, Target]]:
    try:
        head = json.loads(line)
        if head["format"] != FORMAT or head["version"] != VERSION:
            raise ValueError(f"it has format {head['format']!r}, version {head['version']!r}")
        m = head["machine"]
        machine = HostMachine(m["cpu"], tuple(m["features"]), int(m["cores"]), tuple(m["caches"]))
        return machine, {k: Target(**t) for k, t in head["targets"].items()}
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise InputError(
            f"{path} holds no tuned schedules that this version reads ({error!r}).",
            fix="Install autotensor again, or set AUTOTENSOR_NO_SHIPPED=1.",
        ) from error


_TARGET = ("kind", "arch", "num_cores", "vector_bytes", "vector_registers", "numerics")


def _target_to_json(t: Target) -> dict[str, Any]:
    """The fields of a target that the fingerprint rule compares; the other fields follow from the machine."""
    return {name: getattr(t, name) for name in _TARGET}


def _to_json(r: TunedRecord) -> dict[str, Any]:
    line = asdict(r)
    line["trace"], line["text"] = json.loads(r.trace), json.loads(r.text)
    return {k: float(f"{v:.{DIGITS}g}") if isinstance(v, float) else v for k, v in line.items()}


def _from_json(line: dict[str, Any]) -> TunedRecord:
    values = {f.name: line[f.name] for f in fields(TunedRecord) if f.name in line}
    values["trace"] = json.dumps(line["trace"], separators=(",", ":"))
    values["text"] = json.dumps(line["text"], separators=(",", ":"), sort_keys=True)
    values["seeds"] = tuple(line["seeds"])
    values["decisions"] = {k: tuple(v) for k, v in line.get("decisions", {}).items()}
    return TunedRecord(**values)

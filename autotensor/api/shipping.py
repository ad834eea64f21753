"""From a tuning log to the schedules that come with the package: the winners of races, as text.

    log ──last race of every workload──▶ winner, not the default ──▶ record ──merge──▶ <class>/schedules.jsonl
        ──every trial of one target────▶ cost model ──────────────────────────────▶ <class>/cost_model.json.gz

Schedules come from races only: a race takes its times side by side, and `resolve` needs the winner's margin.
Schedules are removed if they were measured again and lost, or if the rules now make them by default.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autotensor.base.errors import InputError, ScheduleError
from autotensor.base.machine import HostMachine
from autotensor.base.target import Target
from autotensor.resolve import race_order, relative_time, safe_default
from autotensor.runtime.files.atomic_write import replacing
from autotensor.schedule.trace import Trace
from autotensor.search.journal import retell
from autotensor.search.machine.calibration import rates_of
from autotensor.search.propose.policy import Policy
from autotensor.search.score.boosted.xgb_model import XGBModel
from autotensor.search.task import Task
from autotensor.te.workload import Workload
from schedules.machines import identity
from schedules.prior.rates import as_timed
from schedules.records import SCHEDULES, TunedClass, TunedRecord, merged, read_class, to_text
from schedules.shipped import COST_MODEL, classes
from tuning_db import TrialStore
from tuning_db.records import Status, TrialRecord

VERSIONS = ("autotensor", "llvmlite")  # packages whose versions affect the code


@dataclass(frozen=True, slots=True)
class Raced:
    """The result of the last race of one workload."""

    place: tuple[str, str]  # keys of workload and target
    default: str  # hash of today's default trace
    measured: frozenset[str]  # hashes of all traces that were tried for this task
    record: TunedRecord | None  # the winner's; None: the default stays


@dataclass(frozen=True, slots=True)
class Exported:
    """The changes to one class of machines."""

    path: Path
    new: int  # records that are new, or that have another trace than before
    kept: int
    dropped: int


def export_tuned(store: TrialStore, folder: Path) -> list[Exported]:
    """Adds the winners of a log's races to the classes of machines in a folder; gives the changes per class.

    Raises InputError when the folder does not exist.
    """
    if not folder.is_dir():
        raise InputError(f"there is no directory {folder} for the schedules.", fix="Create it first.")
    done = []
    for machine in store.machines():
        host = HostMachine(machine.cpu_model, machine.features, machine.cores, machine.caches)
        targets = {t.key: Target.from_json(t.text) for t in store.targets()}
        raced = list(races(store, machine.fingerprint, targets))
        if raced and (found := _add(folder, host, targets, raced)):
            done.append(found)
    return done


def export_cost_model(store: TrialStore, folder: Path, seed: int = 0) -> list[Path]:
    """Fits a cost model to a log's trials of each class of machines that is in the folder, and saves it.

    The model learns from trials of all targets of one kind, the kind with the most trials. Failed trials
    count too. An older model in the folder is replaced.
    """
    done = []
    targets = {t.key: Target.from_json(t.text) for t in store.targets()}
    workloads = {w.key: w for w in store.workloads()}
    for machine in store.machines():
        host = HostMachine(machine.cpu_model, machine.features, machine.cores, machine.caches)
        values = {name: c.value for name, c in store.calibration(machine.fingerprint).items()}
        rows = [r for r in store.trials(machine=machine.fingerprint) if _teaches(r)]
        path = _file_of(folder, host).with_name(COST_MODEL)
        if not rows or not values or not path.parent.is_dir():
            continue
        most, _ = Counter(targets[r.target].kind for r in rows).most_common(1)[0]
        of_tasks: dict[tuple[str, str], list[TrialRecord]] = {}
        for r in rows:
            if targets[r.target].kind == most:
                of_tasks.setdefault((r.workload, r.target), []).append(r)
        model = XGBModel(seed, most=len(rows))
        for (key, name), mine in of_tasks.items():
            w, target = workloads[key], targets[name]
            timed = as_timed(rates_of(values, target), (s.residency for r in mine for s in r.samples))
            retell(Policy(Task(Workload.from_text(w.text, w.name, w.key), target), model, timed), mine)
        if model.ensemble() is not None:
            model.save(path)
            done.append(path)
    return done


def _teaches(row: TrialRecord) -> bool:
    """Whether a cost model may learn from a trial: it comes from a search (races repeat known candidates),
    and its time is not doubtful."""
    return row.round is not None and (row.verified or row.status is not Status.OK)


def races(store: TrialStore, fingerprint: str, targets: dict[str, Target]) -> Iterable[Raced]:
    """The results of the last races on one machine, for every workload and target that was raced on it."""
    versions = {e.key: {k: v for k, v in e.versions.items() if k in VERSIONS} for e in store.environments()}
    for known in store.workloads():
        for key, target in targets.items():
            rows = store.last_race(known.key, key, fingerprint)
            if not rows:
                continue
            workload = Workload.from_text(known.text, known.name, known.key)
            default = safe_default(workload, target).hash
            winner, beaten = _outcome(rows, default)
            record = None
            if winner is not None and beaten is not None and _applies(winner, workload):
                record = _record(workload, winner, beaten, versions.get(winner.environment, {}))
            tried = frozenset(r.trace_hash for r in store.trials(known.key, key, fingerprint))
            yield Raced((known.key, key), default, tried, record)


def _outcome(rows: Sequence[TrialRecord], default_hash: str) -> tuple[TrialRecord | None, TrialRecord | None]:
    """The winner and the default of a race; without a winner if the default won or did not take part."""
    default = next((r for r in rows if r.verified and r.trace_hash == default_hash), None)
    order = race_order(rows, default_hash)
    won = bool(order) and default is not None and order[0].trace_hash != default_hash
    return (order[0] if won else None), default


def _applies(row: TrialRecord, workload: Workload) -> bool:
    try:
        Trace.from_json(row.trace).replay(workload.dag)
    except ScheduleError:
        return False
    return True


def _record(
    workload: Workload, winner: TrialRecord, default: TrialRecord, versions: dict[str, str]
) -> TunedRecord:
    check = winner.verification
    assert check is not None  # both are verified, so they have errors and times
    assert check.max_error is not None
    assert winner.median_s is not None
    assert default.median_s is not None
    return TunedRecord(
        name=workload.name,
        workload=workload.key,
        text=workload.text,
        target=winner.target,
        trace=winner.trace,
        trace_hash=winner.trace_hash,
        default=default.trace_hash,
        seconds=winner.median_s,
        default_s=default.median_s,
        ratio=relative_time(winner, default).middle,
        samples=len(winner.samples),
        residency=winner.samples[0].residency if winner.samples else "",
        max_error=check.max_error,
        tolerance=check.tolerance,
        seeds=check.seeds,
        sketch=winner.sketch_hash,
        decisions={str(k): tuple(int(x) for x in v) for k, v in winner.decisions.items()},
        made_by=winner.made_by,
        date=winner.created.date().isoformat(),
        versions=versions,
    )


def _add(
    folder: Path, machine: HostMachine, targets: dict[str, Target], raced: Sequence[Raced]
) -> Exported | None:
    """Writes the file of one class anew, with a log's results for it; gives None if the file would be new and
    empty."""
    path = _file_of(folder, machine)
    old = read_class(path) if path.is_file() else TunedClass(machine, {}, ())
    decided = {r.place: r for r in raced}
    still = tuple(r for r in old.records if _stands(r, decided.get((r.workload, r.target))))
    new = merged(replace(old, records=still), [r.record for r in raced if r.record is not None], targets)
    if not new.records and not path.is_file():
        return None
    path.parent.mkdir(exist_ok=True)
    with replacing(path) as file:
        file.write(to_text(new).encode())
    before = {(r.workload, r.target): r.trace_hash for r in old.records}
    after = {(r.workload, r.target): r.trace_hash for r in new.records}
    same = sum(before.get(place) == trace for place, trace in after.items())
    return Exported(path, len(after) - same, same, len(before.keys() - after.keys()))


def _stands(record: TunedRecord, race: Raced | None) -> bool:
    """Whether an existing record is kept, given a log's results for its workload."""
    if race is None:
        return True
    return record.trace_hash != race.default and record.trace_hash not in race.measured


def _file_of(folder: Path, machine: HostMachine) -> Path:
    """The file of a machine's class: an existing file, else a new one."""
    for known in classes(folder):
        if identity(read_class(known / SCHEDULES).machine) == identity(machine):
            return known / SCHEDULES
    return folder / class_name(machine) / SCHEDULES


def class_name(m: HostMachine) -> str:
    """A readable folder name for a class of machines; different classes have different names.

    >>> class_name(HostMachine("AMD EPYC (25/17/1)", ("avx2", "fma"), 2, (32768, 1048576)))
    'amd-epyc-25-17-2-cores-8ff9'
    """
    words = re.sub(r"/\d+\)$", "", m.cpu_model).lower()
    slug = "-".join(re.findall(r"[a-z0-9]+", words))
    digest = hashlib.sha256(json.dumps(identity(m)).encode()).hexdigest()[:4]
    return f"{slug}-{m.cores}-core{'s' * (m.cores != 1)}-{digest}"

"""The figures of a run: everything that its report shows, as the log has it. Start reading here.

    store, run ──run_rows──▶ rows ──task_figures, tally──▶ Figures ──┬─ findings.py  sentences ┐
                                                                    └─ charts.py    pictures  ┴─ page.py

Everything is frozen and plain, so `document` can turn the figures into JSON. The page contains that JSON, so
a test or a person can compare it with the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from functools import partial
from math import inf
from typing import Any

from autotensor.base.target import Target
from autotensor.insight.report.run_rows import RunRows, run_rows
from autotensor.insight.report.tally import GONE, Cell, Failure, Noise, failures, maker, noise, outcomes
from autotensor.insight.report.task_figures import Source, TaskFigures, task_figures
from autotensor.insight.search_history import Fall, Point, fall
from autotensor.runtime.kernel_times import without_clock
from autotensor.search.machine.calibration import known_rates
from schedules.prior.rates import Rates
from tuning_db import TrialStore
from tuning_db.exchange.tried import Tried
from tuning_db.records import Machine, Run

VERSION = 1  # of the document


@dataclass(frozen=True, slots=True)
class Roof:
    """The peak rates of a target's threads together on the run's machine."""

    target: str
    peak: float  # FLOP/s in float32
    bandwidths: tuple[float, ...]  # bytes/s from L2, L3, …, memory


@dataclass(frozen=True, slots=True)
class Origin:
    """One start of the command: everything that must be the same to repeat the run."""

    command: str
    user: str
    host: str
    started: str
    version: str
    commit: str
    dirty: bool


@dataclass(frozen=True, slots=True)
class Figures:
    """A run on one machine. Times are in seconds, and points in time are ISO 8601 in UTC."""

    run: str
    model: str
    machine: str  # fingerprint
    processor: str
    device: str
    cores: int
    elsewhere: tuple[str, ...]  # fingerprints of the other machines that the run used
    started: str
    ended: str  # "" while the run goes on, or if it was killed
    stopped: str  # the reason why the run ended
    seed: int
    options: Mapping[str, Any]
    versions: Mapping[str, str]
    origins: tuple[Origin, ...]
    tasks: tuple[TaskFigures, ...]  # the longest-running task first
    roofs: tuple[Roof, ...]
    # time of the whole untuned model, from the race that also timed the tuned one; None: no such race
    default_s: float | None
    tuned_s: float | None
    inside: Mapping[str, float]  # seconds of each workload in an inference of the tuned model, from that race
    makers: tuple[Cell, ...]
    rules: tuple[Cell, ...]
    failures: tuple[Failure, ...]
    noise: Noise

    @property
    def title(self) -> str:
        return self.model or (self.tasks[0].name if self.tasks else self.run[:12])

    @property
    def trials(self) -> int:
        return sum(len(t.history.points) for t in self.tasks)

    @property
    def untried(self) -> int:
        """The number of tasks without any measured trial."""
        return sum(not t.history.points for t in self.tasks)

    @property
    def lasted_s(self) -> float | None:
        """Seconds from the run's start to its end; None while the run goes on."""
        if not self.ended:
            return None
        return (datetime.fromisoformat(self.ended) - datetime.fromisoformat(self.started)).total_seconds()

    @property
    def kernels_s(self) -> float | None:
        """Seconds of all kernels in an inference of the tuned model; None if the model was not timed."""
        return sum(self.in_model.values()) if self.inside else None

    @property
    def in_model(self) -> Mapping[str, float]:
        """`inside` without the clock's own time."""
        calls = {t.workload: t.weight for t in self.tasks}
        return without_clock(self.inside, calls, self.tuned_s or inf)

    @property
    def fall(self) -> Fall | None:
        """How the time of all kernels together fell; None unless every task has a time."""
        return fall([t.history for t in self.tasks])

    def share(self, task: TaskFigures) -> float | None:
        """A task's share of the tuned model's time, from the race of the models; without one, of all tasks'
        times.
        """
        if task.workload in self.inside:
            return self.in_model[task.workload] / (self.kernels_s or inf)
        known = [t.after_s for t in self.tasks]
        if self.inside or task.after_s is None or None in known:
            return None
        return task.after_s / sum(s or 0.0 for s in known)


def figures(store: TrialStore, run: Run) -> Figures:
    rows = run_rows(store, run)
    source = _source(store, rows)
    tasks = [task_figures(entry, source) for entry in source.entries]
    first, last = rows.searches[0], rows.searches[-1]
    where = next((m for m in store.machines() if m.fingerprint == rows.machine), Machine(rows.machine))
    ended = None if rows.end is None else rows.end.options
    made_of = {k: v for t in tasks if t.limits is not None for k, v in t.limits.rules.items()}
    versions = {e.key: e.versions for e in store.environments()}
    return Figures(
        run.key, run.model, rows.machine, where.cpu_model, where.device, where.cores, rows.elsewhere,
        first.started.isoformat(), "" if last.ended is None else last.ended.isoformat(),
        last.stop_reason or "", last.seed, dict(last.options), dict(versions.get(last.environment, {})),
        _origins(store, rows),
        tuple(sorted(tasks, key=lambda t: -(t.after_s or 0.0))),
        tuple(Roof(key, *_roof(r, source.targets[key])) for key, r in source.rates.items()),
        None if ended is None else float(ended["default_s"]),
        None if ended is None else float(ended["tuned_s"]),
        {} if ended is None else {str(k): float(v) for k, v in ended["inside"].items()},
        outcomes(rows.tried, maker),
        outcomes(rows.tried, partial(_rule, made_of)),
        failures(rows.tried, source.names),
        noise(rows.tried),
    )  # fmt: skip


def document(found: Figures) -> dict[str, Any]:
    """The figures as JSON data. A task's trials are stored as columns, which takes half the bytes."""
    data = asdict(found)
    for task in data["tasks"]:
        points = task["history"]["points"]
        task["history"]["points"] = {f.name: [p[f.name] for p in points] for f in fields(Point)}
    return {"version": VERSION, **data}


def _source(store: TrialStore, rows: RunRows) -> Source:
    """The run's rows and its tasks: those that the run named or tried, if their workloads are stored."""
    stored = {w.key: w for w in store.workloads()}
    entries: dict[str, Mapping[str, Any]] = {
        t.workload: {"workload": t.workload, "target": t.target} for t in rows.tried
    }
    for named in rows.run.tasks:
        key = str(named["workload"])
        if key in stored:
            entries[key] = {**entries.get(key, {}), **named}
    by_task: dict[str, list[Tried]] = {}
    by_trace: dict[tuple[str, str], Tried] = {}
    for t in rows.tried:
        by_task.setdefault(t.workload, []).append(t)
        by_trace.setdefault((t.workload, t.trace_hash), t)
    targets = _targets(store, {str(e.get("target", "")) for e in entries.values()})
    rates = {key: known_rates(store, rows.machine, t) for key, t in targets.items()}
    names = {key: str(e.get("name") or stored[key].name or key[:12]) for key, e in entries.items()}
    return Source(
        rows, tuple(entries.values()), by_task, by_trace, stored, targets,
        {key: r for key, r in rates.items() if not r.guessed}, names,
    )  # fmt: skip


def _targets(store: TrialStore, wanted: set[str]) -> dict[str, Target]:
    found = {}
    for row in store.targets():
        if row.key in wanted:
            try:
                found[row.key] = Target.from_json(row.text)
            except (ValueError, KeyError, TypeError):  # of another version, so its limits are not shown
                continue
    return found


def _roof(rates: Rates, target: Target) -> tuple[float, tuple[float, ...]]:
    threads = target.num_cores
    levels = range(len(rates.bandwidths))
    return rates.peak(threads), tuple(rates.team_bandwidth(n, threads) for n in levels)


def _rule(made_of: Mapping[str, str], t: Tried) -> str:
    return made_of.get(t.sketch_hash, GONE)


def _origins(store: TrialStore, rows: RunRows) -> tuple[Origin, ...]:
    hosts = {h.uuid: h.name for h in store.hosts()}
    codes = {c.key: c for c in store.codes()}
    return tuple(
        Origin(
            o.command, o.user_name, hosts[o.host], o.started.isoformat(), codes[o.code].version,
            codes[o.code].commit_sha, codes[o.code].dirty,
        )
        for o in rows.openings
    )  # fmt: skip


__all__ = ["Figures", "Origin", "Roof", "document", "figures"]

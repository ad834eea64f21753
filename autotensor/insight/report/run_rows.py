"""The rows of a log that belong to one run: its sessions on one machine, their trials, the races, the end.

    find_run(store, "resnet50")      by key or session, by the beginning of either, or by model (latest run)
    run_rows(store, run) ──▶ RunRows

Races inside a model and between models are stored in sessions without the run's key. A run's races are those
on its machine, with its tasks, that began after the run did and before another run searched one of these
tasks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from autotensor.base.errors import InputError
from tuning_db import TrialStore
from tuning_db.exchange.tried import Tried, parents, tried
from tuning_db.records import Opening, Parent, Run, Session, SessionKind, TrialRecord


@dataclass(frozen=True, slots=True)
class RunRows:
    """A run on one machine."""

    run: Run
    machine: str  # fingerprint
    elsewhere: tuple[str, ...]  # the other machines that the run used
    searches: tuple[Session, ...]  # oldest first
    openings: tuple[Opening, ...]
    tried: tuple[Tried, ...]  # the trials of the searches, in order
    parents: Mapping[int, tuple[Parent, ...]]
    raced: Mapping[str, tuple[TrialRecord, ...]]  # by workload: the trials that took part in its last race
    # the race of the tuned model against the untuned one; the session's options hold the times
    end: Session | None


def find_run(store: TrialStore, name: str | None) -> Run:
    """The run whose key or session begins with this text, or the latest run of the model with this name.

    None: the latest run of all. Raises InputError when no run fits, and when several keys begin like this.
    """
    sessions = store.sessions()
    began = [s.run_key for s in sessions if s.kind is SessionKind.SEARCH]
    known = {r.key: r for r in store.runs()}
    order = [known[key] for key in dict.fromkeys(reversed(began))]  # the latest first
    if not order:
        raise InputError("the log has no runs.", fix="Tune first, or name another log.")
    if name is None:
        return order[0]
    of_model = [r for r in order if r.model == name or r.key == name]
    if of_model:
        return of_model[0]
    of_session = {s.run_key for s in sessions if s.id.startswith(name)}
    alike = [r for r in order if r.key.startswith(name)] or [r for r in order if r.key in of_session]
    if len(alike) == 1:
        return alike[0]
    said = (
        f"{len(alike)} runs have keys or sessions that begin"
        if alike
        else "no run has that model, or a key or session that begins"
    )
    raise InputError(f"{said} with {name!r}.", fix="`autotensor db runs` lists them.")


def sessions_of(store: TrialStore, run: Run, kind: SessionKind | None = None) -> tuple[Session, ...]:
    """A run's sessions of one kind, or of all kinds, oldest first."""
    return tuple(s for s in store.sessions(kind) if s.run_key == run.key)


def run_rows(store: TrialStore, run: Run) -> RunRows:
    """All rows of a run on the machine where it was begun last."""
    sessions = store.sessions()
    mine = [s for s in sessions if s.run_key == run.key]
    machine = next(s.machine for s in reversed(mine) if s.kind is SessionKind.SEARCH)
    elsewhere = tuple(dict.fromkeys(s.machine for s in mine if s.machine != machine))
    mine = [s for s in mine if s.machine == machine]
    searches = tuple(s for s in mine if s.kind is SessionKind.SEARCH)
    rows = tuple(t for s in searches for t in tried(store, s.id))
    made_from = {child: p for s in searches for child, p in parents(store, s.id).items()}
    tasks = {str(t["workload"]) for t in run.tasks} | {t.workload for t in rows}
    after = _followers(store, sessions, searches, tasks)
    races = [s for s in mine if s.kind is SessionKind.RACE]
    races += [s for s in after if s.kind is SessionKind.MODEL]
    raced: dict[str, tuple[TrialRecord, ...]] = {}
    for race in races:
        met = store.trials(session=race.id)
        for workload in dict.fromkeys(t.workload for t in met if t.workload in tasks):
            raced[workload] = tuple(t for t in met if t.workload == workload)
    ends = [s for s in after if s.kind is SessionKind.END and tasks >= set(s.options.get("inside", {}))]
    openings = tuple(o for s in searches for o in store.openings(s.id))
    end = ends[-1] if ends else None
    return RunRows(run, machine, elsewhere, searches, openings, rows, made_from, raced, end)


def _followers(
    store: TrialStore, sessions: Sequence[Session], searches: Sequence[Session], tasks: Collection[str]
) -> list[Session]:
    """Sessions on the run's machine since the run began, until another run searched one of its tasks."""
    began, machine = searches[0].started, searches[0].machine
    since = [s for s in sessions if s.machine == machine and s.started >= began]
    end = max(s.ended or s.started for s in searches)
    until = _next_search(store, [s for s in since if s.started > end and s not in searches], tasks)
    return [s for s in since if until is None or s.started < until]


def _next_search(store: TrialStore, later: Sequence[Session], tasks: Collection[str]) -> datetime | None:
    """The time when another run first searched one of the tasks, among these sessions; None if none did."""
    known = {r.key: {str(t["workload"]) for t in r.tasks} for r in store.runs()}
    for s in later:
        if s.kind is SessionKind.SEARCH and known[s.run_key] & set(tasks):
            return s.started
    return None


__all__ = ["RunRows", "find_run", "run_rows", "sessions_of"]

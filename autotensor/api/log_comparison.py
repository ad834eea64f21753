"""A comparison of two runs, sessions, commits or machines of a log, task by task, by all their samples.

    a   the final trial of run A       1.00 1.01 1.00 …  ┐
    b   the final trial of run B       1.03 1.05 1.03 …  ┴▶ b / a: 1.030, surely 1.024 … 1.041 ──▶ slower

The two trials were timed at different times. So each sample is divided by the time of the reference kernel
that was timed next to it, and the machine's load, which affects both, cancels. Then every sample of one trial
is compared with every sample of the other (`base/paired_times.py`). Identical object code has not become
slower, whatever was measured.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from autotensor.base.errors import InputError
from autotensor.base.paired_times import Paired, apart
from tuning_db import TrialStore
from tuning_db.records import SessionKind, TrialRecord

COMPARED = (SessionKind.SEARCH, SessionKind.RACE)
AT_LEAST = 0.005  # share of a time; two timings of the same code differ by this much


class Verdict(StrEnum):
    """How the second of two trials compares with the first."""

    SLOWER = "slower"
    FASTER = "faster"
    EVEN = "even"  # they surely differ by less than `at_least`
    UNSURE = "unsure"  # the samples do not decide
    SAME_CODE = "same code"  # object code of the same bytes
    UNLIKE = "unlike"  # the caches held different data while the two were timed


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison: a run, one of its sessions, the code of a commit, or a machine."""

    kind: str  # run, session, commit, machine
    name: str
    run: str | None = None
    codes: tuple[str, ...] | None = None
    machine: str | None = None
    session: str | None = None

    def trials(self, store: TrialStore) -> tuple[TrialRecord, ...]:
        return store.finalists(self.run, self.codes, self.machine, self.session)


@dataclass(frozen=True, slots=True)
class TaskComparison:
    """One task on two sides. `ratio` is the second time / the first time; each bound is certain to 99 %."""

    workload: str
    name: str
    target: str
    first: TrialRecord
    second: TrialRecord
    ratio: Paired
    verdict: Verdict

    @property
    def same_schedule(self) -> bool:
        return self.first.trace_hash == self.second.trace_hash


def compare(store: TrialStore, a: str, b: str, at_least: float = AT_LEAST) -> tuple[TaskComparison, ...]:
    """The results of two runs, sessions, commits or machines for the tasks that both have, slower ones first.

    a, b: a run's key, the id of a search or of a race of single kernels, a commit (`db commits`), a machine's
    fingerprint, or the beginning of one of these. Runs, sessions and commits are compared separately on each
    machine. Raises InputError for a name that is not in the log.
    """
    sides = named(store, a), named(store, b)
    if sides[0].kind != sides[1].kind:
        raise InputError(
            f"{a!r} is a {sides[0].kind} and {b!r} a {sides[1].kind}.", fix="Compare two of one kind."
        )
    return _compared(store, *sides, at_least)


def regressions(
    store: TrialStore, a: str | None = None, b: str | None = None, at_least: float = AT_LEAST
) -> tuple[TaskComparison, ...]:
    """The tasks in which `b` is surely slower than `a`, by more than `at_least` of the time.

    Without names, compares the newest commit that measured anything with the commit before it; gives nothing
    if there is only one commit.
    """
    if (a is None) != (b is None):
        raise InputError("a comparison needs two names, or none.", fix="Give the second one too.")
    if a is not None and b is not None:
        found = compare(store, a, b, at_least)
    else:
        latest = _commits(store)[-2:]
        found = _compared(store, latest[0], latest[1], at_least) if len(latest) == 2 else ()
    return tuple(c for c in found if c.verdict is Verdict.SLOWER)


def named(store: TrialStore, name: str) -> Side:
    """The run, session, commit or machine with this name, or whose name begins with it. Raises InputError."""
    known = [
        *(Side("run", r.key, run=r.key) for r in store.runs()),
        *(Side("session", s.id, session=s.id) for s in store.sessions() if s.kind in COMPARED),
        *_commits(store),
        *(Side("machine", m.fingerprint, machine=m.fingerprint) for m in store.machines()),
    ]
    found = [s for s in known if s.name == name] or [s for s in known if name and s.name.startswith(name)]
    if len(found) == 1:
        return found[0]
    if found:
        kinds = " or ".join(f"{s.kind} {s.name[:16]}" for s in found[:3])
        raise InputError(f"{name!r} may be {kinds}.", fix="Give more of its characters.")
    raise InputError(
        f"the log has no run, session, commit or machine {name!r}.",
        fix="`autotensor db runs`, `db run`, `db commits` and `db machines` list them; races inside a model "
        "are not compared.",
    )


def _commits(store: TrialStore) -> list[Side]:
    """The log's commits, in the order in which they first appeared in it."""
    keys: dict[str, list[str]] = {}
    for c in store.codes():
        keys.setdefault(c.label, []).append(c.key)
    return [Side("commit", label, codes=tuple(of_it)) for label, of_it in keys.items()]


def _compared(store: TrialStore, a: Side, b: Side, at_least: float) -> tuple[TaskComparison, ...]:
    task = _task if a.kind == "machine" else _task_here
    first = {task(t): t for t in a.trials(store)}
    both = [(first[task(t)], t) for t in b.trials(store) if task(t) in first]
    names = {w.key: w.name for w in store.workloads()}
    found = [judged(t, u, names[t.workload], at_least) for t, u in both]
    return tuple(sorted(found, key=lambda c: -c.ratio.middle))


def _task(t: TrialRecord) -> tuple[str, ...]:
    return t.workload, t.target


def _task_here(t: TrialRecord) -> tuple[str, ...]:
    return t.workload, t.target, t.machine


def judged(first: TrialRecord, second: TrialRecord, name: str, at_least: float = AT_LEAST) -> TaskComparison:
    """Compares two trials of one task."""
    ratio = relative(first, second)
    return TaskComparison(
        first.workload, name, first.target, first, second, ratio, _verdict(first, second, ratio, at_least)
    )


def relative(first: TrialRecord, second: TrialRecord) -> Paired:
    """The ratio of the second trial's samples to the first trial's. If both are of one machine and all
    samples have a reference time, each sample is divided by its reference time first."""
    samples = first.samples, second.samples
    if first.machine == second.machine and all(s.reference_s for side in samples for s in side):
        mine, theirs = ([s.seconds / (s.reference_s or 1.0) for s in side] for side in reversed(samples))
    else:
        mine, theirs = ([s.seconds for s in side] for side in reversed(samples))
    if mine and theirs:
        return apart(mine, theirs)
    return Paired((second.median_s or 0.0) / (first.median_s or 1.0), 0.0, float("inf"))


def _verdict(first: TrialRecord, second: TrialRecord, ratio: Paired, at_least: float) -> Verdict:
    if residencies(first) != residencies(second):
        return Verdict.UNLIKE
    if first.machine == second.machine and first.source_sha and first.source_sha == second.source_sha:
        return Verdict.SAME_CODE
    if ratio.lower > 1 + at_least:
        return Verdict.SLOWER
    if ratio.upper < 1 / (1 + at_least):
        return Verdict.FASTER
    if ratio.lower >= 1 / (1 + at_least) and ratio.upper <= 1 + at_least:
        return Verdict.EVEN
    return Verdict.UNSURE


def residencies(t: TrialRecord) -> Collection[str]:
    return {s.residency for s in t.samples}


__all__ = [
    "AT_LEAST",
    "Side",
    "TaskComparison",
    "Verdict",
    "compare",
    "judged",
    "named",
    "regressions",
    "relative",
]

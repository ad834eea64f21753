"""One task in a run: before and after, its limits, why the winner wins, and how the winner was found.

                 ┌─ race ──▶ times of default and winner, their ratio with bounds
    RunRows ─────┼─ search ▶ the trials and the best time so far; winner against default, by decision
                 └─ parents ▶ the line from the first ancestor to the winner

Times of a race are compared only with times of that race, and times of the search only with each other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from autotensor.base.errors import AutotensorError
from autotensor.base.target import Target
from autotensor.insight.report.run_rows import RunRows
from autotensor.insight.search_history import UNNAMED, History, Point
from autotensor.resolve import DEFAULT, IN_MODEL, LEAST_GAIN_APART, race_order, relative_time
from autotensor.search.score.roofline import lower_bound, products_of_integers
from autotensor.search.task import Task
from autotensor.te.workload import Workload
from schedules.generate import generate
from schedules.prior.rates import Rates
from tuning_db.exchange.tried import Tried
from tuning_db.records import Status, TrialRecord
from tuning_db.records import Workload as WorkloadRow

MOST_STEPS = 24  # at most this many steps of a line of descent are shown
FIGURES_OF_CODE = ("spills", "carried", "fma", "loads", "instructions", "longest_loop")


@dataclass(frozen=True, slots=True)
class Result:
    """The default and the winner of a task, in seconds. If `raced` is not "", both were measured side by
    side.
    """

    raced: str  # "in the model", "alone", or "" for no race
    default: int | None  # trial
    default_s: float | None
    winner: int
    winner_s: float
    # winner's time / default's time, with its bounds
    ratio: float | None
    lower: float | None
    upper: float | None


@dataclass(frozen=True, slots=True)
class RunnerUp:
    """The fastest schedule that did not win: its seconds as a multiple of the winner's, with bounds."""

    trial: int
    made_by: str
    ratio: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class Limits:
    """The work of a task, which no schedule changes, and the least seconds that the machine's rates allow."""

    operations: float  # operations on floats, and on products of integers
    bytes: int  # of inputs and outputs, each counted once
    # None: the rates were not measured, or the task neither computes nor reads weights (a transpose, say)
    bound_s: float | None
    rules: Mapping[str, str]  # by the sketch's hash: the rules that make the sketch today


@dataclass(frozen=True, slots=True)
class Reason:
    """One decision that the winner and the default make differently. `ratio` compares the trials that agree
    with the default in it: the time of the best of them, as a multiple of the winner's time."""

    what: str  # the name of the decision, or "structure"
    winner: str
    default: str
    ratio: float | None  # None: no such trial worked
    trials: int  # number of trials that agree with the default in this decision
    only_default: bool = False  # the default itself is the only such trial


@dataclass(frozen=True, slots=True)
class Step:
    """A trial on the line to the winner."""

    trial: int
    made_by: str
    how: str  # how the trial was made from the one before it; "" for the first
    seconds: float | None
    changed: str  # decisions that differ from those of the trial before
    other_task: str  # name of the trial's task, if that is another task; else ""


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """One task of a run."""

    name: str
    workload: str
    target: str
    weight: float
    limits: Limits | None  # None: this version cannot read the computation
    history: History  # the trials that were not rejected, in order
    rejected: int
    result: Result | None  # None: no trial worked
    runner_up: (
        RunnerUp | None
    )  # of the race, or of the search where there was none; None: nothing else worked
    reasons: tuple[Reason, ...]  # the weightiest first; by the search's times
    code: Mapping[str, tuple[float, float]]  # counts of the machine code: the default's, the winner's
    lineage: tuple[Step, ...]  # trials that lead to the winner, which is the last

    @property
    def before_s(self) -> float | None:
        """Seconds of all runs of the task in one inference, with the default."""
        r = self.result
        return None if r is None or r.default_s is None else self.weight * r.default_s

    @property
    def after_s(self) -> float | None:
        return None if self.result is None else self.weight * self.result.winner_s

    @property
    def bound_s(self) -> float | None:
        known = None if self.limits is None else self.limits.bound_s
        return None if known is None else self.weight * known

    @property
    def failed(self) -> int:
        return len(self.history.points) - len(self.history.measured)


@dataclass(frozen=True, slots=True)
class Source:
    """A run's rows, and the things that they name."""

    rows: RunRows
    entries: Sequence[Mapping[str, Any]]  # the run's tasks
    by_task: Mapping[str, Sequence[Tried]]
    by_trace: Mapping[tuple[str, str], Tried]  # by workload and trace
    workloads: Mapping[str, WorkloadRow]  # all workloads of the log
    targets: Mapping[str, Target]  # targets that this version can read
    rates: Mapping[str, Rates]  # by target, as measured on the run's machine
    names: Mapping[str, str]  # of workloads


def task_figures(entry: Mapping[str, Any], source: Source) -> TaskFigures:
    """entry: the description of one of the run's tasks."""
    key, where = str(entry["workload"]), str(entry.get("target", ""))
    rows, raced = source.by_task.get(key, ()), source.rows.raced.get(key, ())
    target = source.targets.get(where)
    known = None
    if target is not None:
        known = limits(source.workloads[key], target, source.rates.get(where), rows)
    met = [t for t in rows if t.status is not Status.REJECTED]
    result = race_result(raced) or search_result(rows)
    default = next((t for t in rows if t.made_by == DEFAULT), None)
    winner = _winner(result, rows, raced)
    points = tuple(Point(t.id, t.median_s, t.predicted, t.made_by or UNNAMED) for t in met)
    name, weight = source.names[key], float(entry.get("weight", 1.0))
    default_s = None if default is None else default.median_s
    bound_s = None if known is None else known.bound_s
    return TaskFigures(
        name, key, where, weight, known,
        History(name, weight, points, default_s, bound_s),
        len(rows) - len(met),
        result,
        raced_runner_up(raced) or searched_runner_up(result, rows),
        () if winner is None or default is None else reasons(winner, default, rows, known),
        {} if result is None else code_figures(result, raced),
        () if winner is None else lineage(winner, source),
    )  # fmt: skip


def _winner(result: Result | None, rows: Sequence[Tried], raced: Sequence[TrialRecord]) -> Tried | None:
    """The search's trial of the schedule that won."""
    if result is None:
        return None
    trace = next((t.trace_hash for t in raced if t.id == result.winner), None)
    return next((t for t in rows if result.winner == t.id or t.trace_hash == trace), None)


def race_result(raced: Sequence[TrialRecord]) -> Result | None:
    """The winner of a race and the default; None if nothing worked."""
    default_hash = next((t.trace_hash for t in raced if t.made_by == DEFAULT), "")
    order = race_order(raced, default_hash)
    if not order:
        return None
    winner = order[0]
    default = next((t for t in order if t.trace_hash == default_hash), None)
    within = all(s.residency == IN_MODEL for s in winner.samples)
    how = "in the model" if within else "alone"
    id, seconds = winner.id or 0, winner.median_s or inf
    if default is None:
        return Result(how, None, None, id, seconds, None, None, None)
    if default is winner:
        return Result(how, default.id, default.median_s, id, seconds, 1.0, 1.0, 1.0)
    times = relative_time(winner, default)
    return Result(how, default.id, default.median_s, id, seconds, times.middle, times.lower, times.upper)


def raced_runner_up(raced: Sequence[TrialRecord]) -> RunnerUp | None:
    """The second of a race; None if fewer than two worked."""
    order = race_order(raced, next((t.trace_hash for t in raced if t.made_by == DEFAULT), ""))
    if len(order) < 2:
        return None
    times = relative_time(order[1], order[0])
    return RunnerUp(order[1].id or 0, order[1].made_by or UNNAMED, times.middle, times.lower, times.upper)


def searched_runner_up(result: Result | None, rows: Sequence[Tried]) -> RunnerUp | None:
    """The fastest verified trial except the winner, by the search's times; None if there is none."""
    others = [t for t in rows if t.verified and t.median_s and result and t.id != result.winner]
    if result is None or result.raced or not others:
        return None
    second = min(others, key=seconds_of)
    ratio = seconds_of(second) / result.winner_s
    return RunnerUp(second.id, second.made_by or UNNAMED, ratio, *_apart(ratio))


def _apart(ratio: float) -> tuple[float, float]:
    """Bounds of the ratio of two times that were not measured side by side."""
    return ratio / (1 + LEAST_GAIN_APART), ratio * (1 + LEAST_GAIN_APART)


def search_result(rows: Sequence[Tried]) -> Result | None:
    """The fastest verified trial and the default, which were not raced; None if no trial was verified."""
    winner = min((t for t in rows if t.verified), key=seconds_of, default=None)
    if winner is None:
        return None
    default = next((t for t in rows if t.made_by == DEFAULT and t.median_s), None)
    if default is None:
        return Result("", None, None, winner.id, seconds_of(winner), None, None, None)
    ratio = seconds_of(winner) / seconds_of(default)
    return Result("", default.id, default.median_s, winner.id, seconds_of(winner), ratio, *_apart(ratio))


def seconds_of(t: Tried) -> float:
    return inf if t.median_s is None else t.median_s


def limits(row: WorkloadRow, target: Target, rates: Rates | None, rows: Sequence[Tried]) -> Limits | None:
    """The limits of a task; None for a computation that this version cannot read."""
    try:
        workload = Workload.from_text(row.text, row.name)
        sketches = generate(workload.dag, target)
    except AutotensorError:
        return None
    dag = workload.dag
    cold = not any(t.residency == "hot" for t in rows)
    bound = None
    if rates is not None:
        bound = lower_bound(Task(workload, target), rates, cold=cold, sketches=sketches) or None
    moved = sum(b.bytes for b in (*dag.inputs, *dag.outputs))
    rules = {s.hash: " + ".join(dict.fromkeys(s.made_by)) for s in sketches}
    return Limits(dag.flops() + products_of_integers(dag), moved, bound, rules)


def reasons(winner: Tried, default: Tried, rows: Sequence[Tried], known: Limits | None) -> tuple[Reason, ...]:
    """The differences between winner and default, each with the least time lost by the default's decision."""
    rules = {} if known is None else known.rules
    good = [t for t in rows if t.verified]
    found = []
    if winner.sketch_hash != default.sketch_hash:
        alike = [t for t in good if t.sketch_hash == default.sketch_hash]
        words = [
            f"{rules.get(t.sketch_hash, 'no known rule')} (sketch {t.sketch_hash[:6]})"
            for t in (winner, default)
        ]
        found.append(_reason("structure", words[0], words[1], alike, winner, default))
    mine, usual = json.loads(winner.decisions), json.loads(default.decisions)
    kin = [(t, json.loads(t.decisions)) for t in good if t.sketch_hash == winner.sketch_hash]
    for name, value in mine.items():
        if name in usual and usual[name] != value:
            alike = [t for t, decisions in kin if decisions.get(name) == usual[name]]
            found.append(_reason(name, option_text(value), option_text(usual[name]), alike, winner, default))
    return tuple(sorted(found, key=lambda r: -(r.ratio or 0.0)))


def _reason(what: str, mine: str, usual: str, kin: Sequence[Tried], winner: Tried, default: Tried) -> Reason:
    """One difference; `kin` are the trials that agree with the default there."""
    best_s = seconds_of(winner)
    ratio = min(map(seconds_of, kin)) / best_s if kin and best_s > 0.0 else None
    return Reason(what, mine, usual, ratio, len(kin), [t.id for t in kin] == [default.id])


def code_figures(result: Result, raced: Sequence[TrialRecord]) -> dict[str, tuple[float, float]]:
    """Counts of the machine code of a race's default and winner, if they differ."""
    codes = {t.id: t.assembly for t in raced}
    usual, mine = codes.get(result.default, {}), codes.get(result.winner, {})
    both = (n for n in FIGURES_OF_CODE if n in usual and n in mine)
    return {n: (float(usual[n]), float(mine[n])) for n in both if usual[n] != mine[n]}


def lineage(winner: Tried, source: Source) -> tuple[Step, ...]:
    """The trials that lead to the given one, by the first parent of each; the given trial comes last."""
    line: list[tuple[Tried, str]] = [(winner, "")]
    while len(line) < MOST_STEPS:
        child = line[-1][0]
        parent = next(iter(source.rows.parents.get(child.id, ())), None)
        if parent is None:
            break
        t = source.by_trace.get((parent.workload or child.workload, parent.trace_hash))
        if t is None or any(t is seen for seen, _ in line):
            break
        line[-1] = (child, parent.how)
        line.append((t, ""))
    steps = []
    before: Tried | None = None
    for t, how in reversed(line):
        other = source.names[t.workload] if t.workload != winner.workload else ""
        changed = "" if before is None else changes(before, t)
        steps.append(Step(t.id, t.made_by or UNNAMED, how, t.median_s, changed, other))
        before = t
    return tuple(steps)


def changes(before: Tried, after: Tried) -> str:
    """The decisions that differ, for example `rows 4 → 8`."""
    if before.sketch_hash != after.sketch_hash:
        return "another structure"
    was, now = json.loads(before.decisions), json.loads(after.decisions)
    differ = (n for n in now if n in was and was[n] != now[n])
    return ", ".join(f"{short(n)} {option_text(was[n])} → {option_text(now[n])}" for n in differ)


def short(name: str) -> str:
    """A decision's name without its stage.

    >>> short("t0/tile"), short("structure")
    ('tile', 'structure')
    """
    return name.rpartition("/")[2]


def option_text(value: Sequence[int]) -> str:
    """
    >>> option_text([4, 2, 8])
    '4×2×8'
    """
    return "×".join(map(str, value))

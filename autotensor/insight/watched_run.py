"""A run of other processes, as its log shows it: what is new since the last look, and how far the run is.

    watched = WatchedRun(store, run)
    while watched.look(): …            reads new trials; False once no process works on the run
    watched.tasks, watched.rate …      the state of the run

WatchedRun only reads the log, so it does not disturb the processes that tune.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import inf

from autotensor.insight.report.run_rows import sessions_of
from autotensor.resolve import DEFAULT
from tuning_db import TrialStore
from tuning_db.exchange.tried import Tried, tried
from tuning_db.records import Run, Session, SessionKind, Status
from tuning_db.values import now

RATE_S = 60.0  # the rate of trials is taken over this many seconds


@dataclass(slots=True)
class WatchedTask:
    """The progress of one task."""

    name: str
    weight: float
    trials: int = 0
    default_s: float | None = None
    best_s: float | None = None
    made_by: str = ""  # maker of the best trial
    gained: int = 0  # the position of the last trial that gained something
    measuring: bool = False

    @property
    def seconds(self) -> float:
        """Seconds of an inference; 0 if the task has no time yet."""
        return self.weight * (self.best_s or self.default_s or 0.0)

    def tell(self, t: Tried) -> bool:
        """Counts a trial. Returns whether it is faster than all before."""
        self.trials += t.status is not Status.REJECTED
        if t.made_by == DEFAULT and self.default_s is None:
            self.default_s = t.median_s
        better = t.verified and t.median_s is not None and t.median_s < (self.best_s or inf)
        if better:
            self.best_s, self.made_by, self.gained = t.median_s, t.made_by, self.trials
        return better


@dataclass(slots=True)
class WatchedRun:
    """The state of a watched run. `new` holds the trials of the last look."""

    store: TrialStore
    run: Run
    tasks: dict[str, WatchedTask] = field(default_factory=dict)  # by workload
    statuses: Counter[Status] = field(default_factory=Counter)
    new: Sequence[Tried] = ()
    searches: Sequence[Session] = ()
    _last: int = 0  # the last trial that was read
    # times of the looks, with the number of new trials
    _came: deque[tuple[datetime, int]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        for t in self.run.tasks:
            name = str(t.get("name") or str(t["workload"])[:12])
            self.tasks[str(t["workload"])] = WatchedTask(name, float(t.get("weight", 1.0)))

    def look(self) -> bool:
        """Reads what is new. Returns whether a process still works on the run."""
        self.searches = sessions_of(self.store, self.run, SessionKind.SEARCH)
        self.new = [t for s in self.searches for t in tried(self.store, s.id, self._last)]
        for t in self.new:
            self.statuses[t.status] += 1
            self._task(t.workload).tell(t)
        self._last = max((t.id for t in self.new), default=self._last)
        self._came.append((now(), len(self.new)))
        while (self._came[-1][0] - self._came[0][0]).total_seconds() > RATE_S:
            self._came.popleft()
        flying = {i.workload for s in self.searches for i in self.store.open_intents(s.id)}
        for workload, task in self.tasks.items():
            task.measuring = self.running and workload in flying
        return self.running

    def _task(self, workload: str) -> WatchedTask:
        return self.tasks.setdefault(workload, WatchedTask(workload[:12], 1.0))

    @property
    def running(self) -> bool:
        """Whether one of the run's sessions has no end, and an owner with a valid lease."""
        return any(s.ended is None and s.held(now()) for s in self.searches)

    @property
    def standing(self) -> str:
        """The state of a run: running, the reason why it ended, or that no process works on it."""
        if self.running:
            return "running"
        last = self.searches[-1]
        return "no process works on it" if last.ended is None else f"ended: {last.stop_reason}"

    @property
    def trials(self) -> int:
        return sum(t.trials for t in self.tasks.values())

    @property
    def failed(self) -> int:
        return sum(n for s, n in self.statuses.items() if s not in (Status.OK, Status.REJECTED))

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run's last session began, until now or until the session's end."""
        last = self.searches[-1]
        return ((last.ended or now()) - last.started).total_seconds()

    @property
    def rate(self) -> float | None:
        """Trials per second in the watched time, at most the last minute; None at first."""
        first, last = self._came[0][0], self._came[-1][0]
        seconds = (last - first).total_seconds()
        return sum(n for _, n in list(self._came)[1:]) / seconds if seconds > 0.0 else None

    @property
    def model_s(self) -> tuple[float, float] | None:
        """Seconds of all kernels together, with the defaults and now; None until every task has a time."""
        known = self.tasks.values()
        if not known or any(t.best_s is None for t in known):
            return None
        return sum(t.weight * (t.default_s or t.best_s or 0.0) for t in known), sum(t.seconds for t in known)


__all__ = ["WatchedRun", "WatchedTask"]

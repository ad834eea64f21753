"""The report of a finished tuning run: one line per task, one about the run, and why it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from autotensor.base.counted import counted
from autotensor.ir.notebook import ShownInNotebooks
from autotensor.resolve import gain
from autotensor.search.task import Candidate, Task, merge

# The time next to this reason is from the race, in which the candidate was slower: the trial was lucky, or
# others used the cores during the race.
RACED_SLOWER = "a trial came within 3 % of the machine's limit; the race was slower"
NOTHING_LEFT = "nothing is left to ask"
FINISHED_BEFORE = "an earlier run finished it"
SPENT = "all trials are spent"
LATE = "the deadline is reached"
EARLIER = ", in an earlier run"
KEY_DIGITS = 12  # of a workload's key, as `autotensor explain` prints them


@dataclass(frozen=True, slots=True, repr=False)
class TaskReport:
    """The result of one task. With `raced`, both times are from the final race, measured side by side."""

    task: Task
    default_s: float | None
    best_s: float | None
    best: Candidate | None
    trials: int
    failures: int
    reason: str  # why the task got no more trials
    raced: bool = False
    rejected: int = 0  # candidates refused by their machine code, in addition to the trials

    def __repr__(self) -> str:
        """One line, because the candidate's sketch alone would fill pages. The digits behind the label are a
        name for `autotensor explain`."""
        label = f"{self.task.label} [{self.task.workload.key[:KEY_DIGITS]}]"
        trials = counted(self.trials, "trial")
        if self.best_s is None:
            failed = f", of which {self.failures} failed: `autotensor db failures`" if self.failures else ""
            return f"{label}: no time after {trials} ({self.reason}){failed}"
        than = f", {gain(self.default_s, self.best_s, 'the default')}" if self.default_s else ""
        return f"{label}: {self.best_s * 1e6:,.1f} us{than}, {trials} ({self.reason})"


@dataclass(frozen=True, slots=True, repr=False)
class TuneReport(ShownInNotebooks):
    """The result of a run. It prints as one line per task and one line about the run."""

    tasks: tuple[TaskReport, ...]
    trials: int
    reused: int  # of these trials, how many were read from the log
    elapsed_s: float
    reason: str
    shares: dict[str, float] = field(default_factory=dict)  # seconds by kind: search, measure, log, race
    log: str = ""  # the log's place as readable text; "" for a store that the caller opened

    @property
    def failures(self) -> int:
        """Trials that failed, in all tasks."""
        return sum(t.failures for t in self.tasks)

    def __repr__(self) -> str:
        log = f"; log: {self.log}" if self.log else ""
        trials = counted(self.trials, "trial")
        run = f"{trials} ({self.reused} from the log) in {self.elapsed_s:.0f} s: {self.reason}{log}"
        return "\n".join([*map(repr, self.tasks), run])


def finished_before(reason: str | None) -> str:
    """The reason of a task that an earlier run finished. `reason` is that run's, if the log has it.

    >>> finished_before("all trials are spent"), finished_before(None)
    ('all trials are spent, in an earlier run', 'an earlier run finished it')
    """
    return reason.removesuffix(EARLIER) + EARLIER if reason else FINISHED_BEFORE


def untouched(tasks: Sequence[Task], reason: str) -> TuneReport:
    """The report of a run that had no time."""
    reports = (TaskReport(t, None, None, None, 0, 0, reason) for t in merge(tasks))
    return TuneReport(tuple(reports), 0, 0, 0.0, reason)

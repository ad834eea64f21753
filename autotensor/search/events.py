"""Events of a tuning run for its listeners: progress bars, logs, the command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from autotensor.search.task import Candidate, Task


@dataclass(frozen=True, slots=True)
class RoundDone:
    """A batch of one task was measured. `seconds` has None for failures; `statuses` has their reasons."""

    task: Task
    candidates: tuple[Candidate, ...]
    seconds: tuple[float | None, ...]
    statuses: tuple[str, ...]
    best_s: float
    default_s: float | None
    trials: int  # trials of the whole run so far, without rejected candidates
    budget: int
    failures: int
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class Improved:
    """A task has a faster verified schedule than before."""

    task: Task
    candidate: Candidate
    seconds: float


@dataclass(frozen=True, slots=True)
class TaskDone:
    """A task gets no more trials; `reason` says why."""

    task: Task
    reason: str


@dataclass(frozen=True, slots=True)
class Resumed:
    """Trials of an earlier part of this run were read from the log."""

    trials: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """Another process works on the same run. This process continues when the other one has ended."""

    other: str  # a readable name of the other process


@dataclass(frozen=True, slots=True)
class Raced:
    """A task's best candidates and its default were measured again together. The times are from this race."""

    task: Task
    seconds: float  # the winner's time
    default_s: float | None  # None: the default does not work
    default_won: bool


@dataclass(frozen=True, slots=True)
class ModelSaved:
    """The file at `path` is a whole model that can be run, with the best schedules so far."""

    path: Path
    first: bool  # whether it is the first of this run
    written: bool = True  # False: the file already held this model


Event = RoundDone | Improved | TaskDone | Resumed | Waiting | Raced | ModelSaved
Listener = Callable[[Event], None]

"""Tasks and candidates: the thing that is tuned, and one point of its space."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from autotensor.base.errors import InputError
from autotensor.base.target import Target
from autotensor.schedule.sketch import Option, Sketch
from autotensor.schedule.trace import Trace, hash_of
from autotensor.te.workload import Workload
from tuning_db.columns.traces import fill
from tuning_db.records import Parent


@dataclass(frozen=True, repr=False)
class Task:
    """One workload on one target. `weight` is how often a model runs it."""

    workload: Workload
    target: Target
    weight: float = 1.0
    name: str = ""
    # seconds of all runs of the task in one inference, timed inside the model before the search; None: not
    # timed
    seconds: float | None = None

    @property
    def label(self) -> str:
        return self.name or self.workload.name

    def __repr__(self) -> str:
        """A short text, because events hold tasks and are printed."""
        return f"Task({self.label}, {self.target.key()})"


@dataclass(frozen=True)
class Candidate:
    """A sketch, and decisions for its holes. `made_by` names the part of the search that proposed it."""

    sketch: Sketch
    decisions: Mapping[str, Option]
    made_by: str = "sampled"
    parents: tuple[Parent, ...] = ()  # measured candidates from which it was made
    predicted: float | None = field(default=None, compare=False)  # predicted seconds

    @cached_property
    def trace(self) -> Trace:
        return replace(self.sketch.fill(self.decisions), text=self.trace_text)

    @cached_property
    def trace_text(self) -> str:
        """The trace as JSON, equal to `trace.to_json()`, but made from the sketch's text."""
        return fill(self.sketch.text, self.decisions)

    @cached_property
    def trace_hash(self) -> str:
        """The hash of the trace."""
        return hash_of(self.trace_text)

    @cached_property
    def key(self) -> str:
        """The identity within a task; the trace is not needed for it."""
        text = json.dumps([self.sketch.hash, sorted(self.decisions.items())])
        return hashlib.sha256(text.encode()).hexdigest()[:24]


def merge(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """One task per workload, with weights added. The heaviest comes first: by seconds if these are known,
    else by operations."""
    found: dict[str, Task] = {}
    for t in tasks:
        old = found.get(t.workload.key)
        found[t.workload.key] = t if old is None else _added(old, t)
    if not found:
        raise InputError("there is nothing to tune.")
    timed = all(t.seconds is not None for t in found.values())
    return tuple(
        sorted(
            found.values(),
            key=lambda t: -(t.seconds or 0.0) if timed else -t.weight * t.workload.dag.flops(),
        )
    )


def _added(one: Task, other: Task) -> Task:
    """Two tasks of one workload, joined into one."""
    known = one.seconds is not None and other.seconds is not None
    seconds = (one.seconds or 0.0) + (other.seconds or 0.0) if known else None
    return replace(one, weight=one.weight + other.weight, seconds=seconds)

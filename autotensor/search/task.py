"""Tasks and candidates: what is tuned, and one point of its space."""

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
from tuning_db.records import Parent
from tuning_db.templates import fill


@dataclass(frozen=True, repr=False)
class Task:
    """One workload on one target; `weight` is how often a model runs it."""

    workload: Workload
    target: Target
    weight: float = 1.0
    name: str = ""
    # of all its runs in one inference, as timed inside the model before the search; None: not timed
    seconds: float | None = None

    @property
    def label(self) -> str:
        return self.name or self.workload.name

    def __repr__(self) -> str:
        """Short, because events hold tasks and are printed."""
        return f"Task({self.label}, {self.target.key()})"


@dataclass(frozen=True)
class Candidate:
    """A sketch and decisions for its holes; `made_by`: the part of the search that proposed it (tuner.py)."""

    sketch: Sketch
    decisions: Mapping[str, Option]
    made_by: str = "sampled"
    parents: tuple[Parent, ...] = ()  # measured candidates that it was made from
    predicted: float | None = field(default=None, compare=False)  # seconds

    @cached_property
    def trace(self) -> Trace:
        return replace(self.sketch.fill(self.decisions), text=self.trace_text)

    @cached_property
    def trace_text(self) -> str:
        """The trace as JSON: what `trace.to_json()` gives, from the sketch's text."""
        return fill(self.sketch.text, self.decisions)

    @cached_property
    def trace_hash(self) -> str:
        """The trace's hash."""
        return hash_of(self.trace_text)

    @cached_property
    def key(self) -> str:
        """Identity within a task, without filling the trace."""
        text = json.dumps([self.sketch.hash, sorted(self.decisions.items())])
        return hashlib.sha256(text.encode()).hexdigest()[:24]


def merge(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """One task per workload, weights added, heaviest first: by seconds where they are known, else by
    operations."""
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
    """Two tasks of one workload as one."""
    known = one.seconds is not None and other.seconds is not None
    seconds = (one.seconds or 0.0) + (other.seconds or 0.0) if known else None
    return replace(one, weight=one.weight + other.weight, seconds=seconds)

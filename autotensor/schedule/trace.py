"""Traces: the steps of a schedule, in order. Replay gives the state. Records and files hold the JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from autotensor.base.errors import ScheduleError
from autotensor.ir.notebook import ShownInNotebooks
from autotensor.schedule.state import State
from autotensor.schedule.step import Step, fill, from_json, rename, to_json
from autotensor.te.dag import ComputeDAG

VERSION = 1


def hash_of(text: str) -> str:
    """The hash of the trace with this JSON text."""
    return hashlib.sha256(text.encode()).hexdigest()[:24]


@dataclass(frozen=True, slots=True)
class Trace(ShownInNotebooks):
    """Steps in order. Longer traces share steps with shorter ones; `Trace(steps[:-1])` undoes a step."""

    steps: tuple[Step, ...] = ()
    # the trace's JSON, if it is known already: a search writes it from the sketch's JSON
    text: str | None = field(default=None, compare=False, repr=False, kw_only=True)

    def then(self, *steps: Step) -> Trace:
        return Trace((*self.steps, *steps))

    def replay(self, dag: ComputeDAG) -> State:
        """The state after all steps. Raises the first ScheduleError, with the steps that led to it."""
        state = State.initial(dag)
        for n, s in enumerate(self.steps):
            try:
                state = s.apply(state)
            except ScheduleError as e:
                e.context = e.context or partial(self._pointing_at, n)
                raise
        return state

    def _pointing_at(self, n: int) -> str:
        """The steps up to step n, with step n marked."""
        return "\n".join(f"{'>' if m == n else ' '} {s.call()}" for m, s in enumerate(self.steps[: n + 1]))

    def fill(self, values: Mapping[str, tuple[int, ...]]) -> Trace:
        """The trace with its holes decided."""
        return Trace(tuple(fill(s, values) for s in self.steps))

    def renamed(self, names: Mapping[str, str]) -> Trace:
        """The trace for the same DAG with other names (see ComputeDAG.canonical)."""
        return Trace(tuple(rename(s, names) for s in self.steps))

    def to_json(self) -> str:
        return self.text or json.dumps(
            {"version": VERSION, "steps": [to_json(s) for s in self.steps]}, separators=(",", ":")
        )

    @staticmethod
    def from_json(text: str) -> Trace:
        """The trace of this JSON text. Raises ScheduleError for text that is not a trace of this version."""
        try:
            data: Any = json.loads(text)
        except (ValueError, RecursionError) as e:
            raise ScheduleError("the trace is not JSON.") from e
        if (
            not isinstance(data, dict)
            or data.get("version") != VERSION
            or not isinstance(data.get("steps"), list)
        ):
            found = data.get("version") if isinstance(data, dict) else None
            raise ScheduleError(f"the trace has version {found!r}; this version reads {VERSION}.")
        return Trace(tuple(from_json(s) for s in data["steps"]))

    @property
    def hash(self) -> str:
        return hash_of(self.to_json())

    def to_python(self) -> str:
        """The calls that a person would write, for a schedule named `s`."""
        return "\n".join(s.call() for s in self.steps)

    def __str__(self) -> str:
        return self.to_python()

"""The inputs of one tuning run, from the user's call to the loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autotensor.base.deadline import Deadline
from autotensor.runtime.place import Place, here
from autotensor.search.events import Event, Listener
from autotensor.search.measuring.measure_request import Residency
from autotensor.search.options import TuneOptions
from autotensor.search.task import Task
from tuning_db import TrialStore


def silent(event: Event) -> None:
    """A listener that does nothing."""


@dataclass(frozen=True, slots=True)
class TuningRun:
    """Tasks of one target, the options of the search, and the store for the trials."""

    tasks: Sequence[Task]
    options: TuneOptions
    store: TrialStore
    deadline: Deadline  # when everything must be over, including races
    listener: Listener = silent
    model: str = ""  # readable name of the model; "": a computation by itself
    model_hash: str = ""  # hash of the model's graph
    residency: Residency = "graph"  # where a kernel finds its weights
    seeds: tuple[int, ...] = (0, 1)  # seeds of the random inputs on which answers are checked
    stopped: Callable[[], bool] = lambda: False  # called between batches; True ends the run (Ctrl-C)
    place: Place | None = None  # where the measurer measures; None: on this machine
    # key of a fleet's sources; other sources make another run, for which the rows of this run are seeds
    code: str = ""

    @property
    def where(self) -> Place:
        return self.place or here(self.tasks[0].target)


__all__ = ["TuningRun", "silent"]

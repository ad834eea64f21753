"""What comes with the package, in the form in which the search takes it: sketches, first candidates, a model.

    record ──refit──▶ a candidate of today's sketches, when that gives the record's very trace
                  └─▶ else a sketch without holes: the trace as it is, one candidate more in the space

They are measured like everything else, on the machines that they come from, too: that is where a record is
verified on the machine that will use it.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotensor.base import log
from autotensor.base.errors import InputError
from autotensor.base.target import Target
from autotensor.schedule.sketch import Sketch
from autotensor.schedule.trace import Trace
from autotensor.search.propose.transfer import refit
from autotensor.search.score.boosted.ensemble import Ensemble
from autotensor.search.score.boosted.model_file import load
from autotensor.search.task import Candidate, Task
from schedules import shipped

MADE_BY = "shipped"


def with_shipped(task: Task, sketches: Sequence[Sketch]) -> tuple[tuple[Sketch, ...], tuple[Candidate, ...]]:
    """The sketches of a task with what is shipped for it, and the candidates that these are, best first."""
    first = sketches[0]
    default_hash = first.fill(first.defaults()).hash
    all_sketches, candidates = list(sketches), []
    for trace in shipped.seeds(task.workload, task.target, default_hash):
        found = _candidate(trace, sketches)
        if found.sketch not in all_sketches:
            all_sketches.append(found.sketch)
        candidates.append(found)
    return tuple(all_sketches), tuple(candidates)


def _candidate(trace: Trace, sketches: Sequence[Sketch]) -> Candidate:
    found = refit(trace.to_json(), sketches, MADE_BY)
    if found is not None and found.trace.hash == trace.hash:
        return found
    return Candidate(Sketch(trace.steps, (), (MADE_BY,)), {}, MADE_BY)


def start_model(target: Target) -> Ensemble | None:
    """The cost model that learned on this class of machines, or on one like it; None when there is none.

    One of other features is of no use: that is said, and the search begins with the prior alone.
    """
    path = shipped.cost_model(target)
    if path is None:
        return None
    try:
        return load(path)
    except InputError as error:
        log.warn(f"the cost model that comes with autotensor is not used: {error.what}")
        return None

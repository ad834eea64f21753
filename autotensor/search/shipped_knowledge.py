"""The schedules shipped with the package, in the form that the search uses: sketches and first candidates.

    record ──refit──▶ a candidate of today's sketches, if it gives exactly the record's trace
                  └─▶ else a sketch without holes: the trace itself, one more candidate in the space

These schedules are measured like all others, even on machines of the kind that they come from: so each record
is verified on the machine that will use it.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotensor.schedule.sketch import Sketch
from autotensor.schedule.trace import Trace
from autotensor.search.propose.transfer import refit
from autotensor.search.task import Candidate, Task
from schedules import shipped

MADE_BY = "shipped"


def with_shipped(task: Task, sketches: Sequence[Sketch]) -> tuple[tuple[Sketch, ...], tuple[Candidate, ...]]:
    """The task's sketches with those of the shipped traces, and these traces as candidates, best first."""
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

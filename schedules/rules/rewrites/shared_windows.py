"""Windows of maxima, sums and similar reductions.

They are made of shorter windows that neighbours share, or each is computed separately. The rule runs before
any decision, on all stages at once, so that a pipeline places the parts like other stages. Shorter windows
come first if they clearly take fewer operations, loads and stores.
"""

from __future__ import annotations

from collections.abc import Iterator

from autotensor.base.target import Target
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.state import Stage, State
from schedules.algorithms.shared_windows import NAME, is_sum, parts_of, work
from schedules.algorithms.written_windows import as_reductions
from schedules.kit.stage_analysis import is_constant, undecided
from schedules.registry import Extension

SURE = 1.2  # parts come first if separate windows take this many times as many operations (chosen, 2026-11)
# The same for sums, whose joins are single operations. Stored parts cost more than the count says: 3x3
# squares are 0.85 times as fast at a count of 1.8; 5x5 1.6 to 1.8, 7x7 3.1, 13x13 4.3 times (Zen 4, 2026-11).
SURE_OF_SUMS = 2.0


def shared_windows(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    if target.kind != "llvm" or stage.name != state.names[-1]:
        return
    found = {s.name: gain for s in state.stages if (gain := _gain(state, s))}
    sums = {s.name for s in state.stages if is_sum(s.op)}
    sure = tuple(name for name, gain in found.items() if gain >= (SURE_OF_SUMS if name in sums else SURE))
    if not found:
        return
    for names in dict.fromkeys((sure, tuple(found), ())):
        steps = tuple(UseAlgorithm(n, NAME) for n in names)
        yield Extension(steps, again=(stage.name,)) if steps else Extension(onward=True)


def _gain(state: State, stage: Stage) -> float:
    """The operations of a stage as it is, divided by those with shared windows; 0 if nothing is shared."""
    if not undecided(state, stage) or is_constant(state, stage):
        return 0.0
    names = frozenset(state.names)
    made = parts_of(stage.op, names)
    return 0.0 if made is None else work(as_reductions(stage.op, names)) / work(made)

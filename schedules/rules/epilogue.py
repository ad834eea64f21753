"""A pointwise stage after a reduction waits, because the reduction's rule may use its loops as host."""

from __future__ import annotations

from autotensor.base.target import Target
from autotensor.schedule.state import Stage, State
from schedules.kit.stage_analysis import digits, matches_elementwise, undecided, untouched
from schedules.registry import Extension


def epilogue(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    if stage.op.is_reduction or not undecided(state, stage):
        return ()
    return (Extension(defer=True),) if _behind_reduction(state, stage) else ()


def _behind_reduction(state: State, stage: Stage) -> bool:
    """Whether a chain of pointwise stages, each read once, leads back to a reduction."""
    waiting = [stage]  # no recursion, because chains may be longer than Python's limit
    while waiting:
        reader = waiting.pop()
        for b in reader.op.reads():
            producer = state.producer(b)
            if producer is None or not untouched(producer) or len(state.consumers(producer)) != 1:
                continue
            here = matches_elementwise(reader.op, producer.op)
            if producer.op.is_reduction and (here or digits(reader.op, producer.op) is not None):
                return True
            if not here:
                continue
            waiting.append(producer)
    return False

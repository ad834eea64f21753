"""A stage that joins two axes of a reduction waits, because the reduction's rule uses its loops as host.

joined[h, c] = conv[h // 2, h % 2, c]          phases of a transposed convolution, groups of channels

If a pointwise stage after it waits already (`epilogue`), the pointwise stage is the host, and the joining
stage may be inlined.
"""

from __future__ import annotations

from autotensor.base.target import Target
from autotensor.schedule.state import Stage, State
from schedules.kit.stage_analysis import digits, epilogue, undecided, untouched
from schedules.registry import Extension


def joined(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    if stage.op.is_reduction or not undecided(state, stage):
        return ()
    if epilogue(state, stage) is not None:
        return ()
    for b in stage.op.reads():
        producer = state.producer(b)
        if producer is None or not producer.op.is_reduction or not untouched(producer):
            continue
        found = digits(stage.op, producer.op)
        if found and any(d.by for d in found.values()) and len(state.consumers(producer)) == 1:
            return (Extension(defer=True),)
    return ()

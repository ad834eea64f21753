"""Long reductions with few results: threads of a block compute parts of one result, then join them.

    S[i] = Σ_k f(i, k)     ──▶     for (i → blockIdx.x): for (k.1 → threadIdx.x): for k.0: …   then a tree

If there are many results, each result has one thread (gpu_bind). The exception is rows that are contiguous in
memory: then neighbouring threads of one row read neighbouring elements. The number of threads is a hole.
Source: cross-thread reduction of Ansor (Zheng et al., OSDI 2020).
"""

from __future__ import annotations

from math import prod

from autotensor.base.target import Target
from autotensor.schedule.primitives.bind import Bind
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.sketch import Hole
from autotensor.schedule.state import Ref, Stage, State
from autotensor.schedule.step import Step
from schedules.kit.gpu_threads import BLOCK, powers_of_two
from schedules.kit.shared_steps import fused
from schedules.kit.stage_analysis import contiguous_reduction, undecided
from schedules.registry import Extension

LEAST_TERMS = 64  # with fewer terms, joining the parts takes longer than a loop
# threads of a multiprocessor; with this many results for each multiprocessor, every thread has its own result
MANY = 2048


def gpu_reduce(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    op = stage.op
    if not op.is_reduction or not undecided(state, stage):
        return ()
    if not _pays(stage, target):
        return ()
    terms = prod(a.extent for a in op.reduce_axes)
    most = min(target.max_threads_per_block, 1 << (terms - 1).bit_length())
    options = powers_of_two(min(32, most), most)
    default = max(o for o in options if o <= max(options[0], min(BLOCK, terms // 2)))
    hole = Hole(f"{stage.name}/threads", tuple((o,) for o in options), (default,))
    steps: list[Step] = []
    if op.axes:
        more, row = fused(stage.name, tuple(a.name for a in op.axes))
        steps += [*more, Bind(stage.name, row, "blockIdx.x")]
    more, term = fused(stage.name, tuple(a.name for a in op.reduce_axes))
    steps += [
        *more,
        SplitStep(stage.name, term, (Ref(hole.name),)),
        Bind(stage.name, f"{term}.1", "threadIdx.x"),
    ]
    return (Extension(tuple(steps), (hole,), (stage.name,)),)


def _pays(stage: Stage, target: Target) -> bool:
    op = stage.op
    results, terms = prod(a.extent for a in op.axes), prod(a.extent for a in op.reduce_axes)
    if terms < LEAST_TERMS:
        return False
    few = results < MANY * target.num_cores // 8
    return few and (contiguous_reduction(op) or results < target.num_cores * 32)

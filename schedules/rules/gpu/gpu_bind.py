"""The schedule that always works on a GPU: a thread for every element, reductions as loops inside it.

C[i, j] = f(Σ_k …)     ──▶     for ((i*j).0 → blockIdx.x): for ((i*j).1 → threadIdx.x):
                                  s = Σ_k …;  C[i, j] = f(s)
"""

from __future__ import annotations

from autotensor.base.target import Target
from autotensor.schedule.primitives.compute_at import ComputeAt
from autotensor.schedule.state import Ref, Stage, State
from schedules.kit.gpu_threads import bind_flat, block_hole
from schedules.kit.shared_steps import host_and_anchor
from schedules.kit.stage_analysis import epilogue, untouched
from schedules.registry import Extension


def gpu_bind(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    if not untouched(stage) or not stage.op.axes:
        return (Extension(done=(stage.name,)),)  # a scalar: one thread
    hole = block_hole(stage, target)
    axes = tuple(a.name for a in stage.op.axes)
    if not stage.op.is_reduction or len(stage.op.buffers) != 1 or state.attached(stage.name):
        steps, _ = bind_flat(stage.name, axes, Ref(hole.name))
        return (Extension(tuple(steps), (hole,), (stage.name,)),)
    host, anchor, first = host_and_anchor(epilogue(state, stage), stage.name)
    own = state.stage(host).op.axes if state.has(host) else stage.op.axes
    bound, thread = bind_flat(host, tuple(a.name for a in own), Ref(hole.name))
    steps = [*first, *bound, ComputeAt(anchor, host, thread)]
    return (Extension(tuple(steps), (hole,), (host, anchor, stage.name)),)

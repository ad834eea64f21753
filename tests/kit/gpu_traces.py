"""Random legal schedules for GPUs. They are random schedules for CPUs, with loops bound to blocks and
threads, copies in shared memory, reductions across threads, and virtual threads.

    trace = gpu_trace(random.Random(7), dag)

A step is left out if the target or the lowering refuses it with a message of its own. A message that barriers
are missing (`check: …`) is a fault, and so is a crash.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from math import prod

from random_traces import Nothing, Pick, Proposal, grown, is_large, random_trace

from autotensor.base.errors import LoweringError, ScheduleError, TargetError
from autotensor.base.target import Target, parse
from autotensor.ir.func import Program
from autotensor.lowering.pipeline import lower
from autotensor.schedule.primitives.bind import Bind
from autotensor.schedule.primitives.cache import CacheRead, CacheWrite
from autotensor.schedule.primitives.compute_at import ComputeAt
from autotensor.schedule.primitives.double_buffer import DoubleBuffer
from autotensor.schedule.primitives.fuse import FuseStep
from autotensor.schedule.primitives.mark import Vectorize
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.primitives.set_scope import SetScope
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.primitives.storage import StorageAlign, Swizzle
from autotensor.schedule.state import Root, State
from autotensor.schedule.step import Step
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from autotensor.te.tensor import AxisKind

TARGET: Target = parse("opencl -block-threads=128 -shared-bytes=16384")
POINTS = 4000  # iterations of one stage's loops, times threads: the interpreter runs them all
SMALL = (2, 2, 3, 4, 4, 5, 8)


def bind(p: Pick) -> Iterator[Step]:
    """Binds one loop of any stage to any axis."""
    s = p.stage()
    axes = [
        "threadIdx.x",
        "threadIdx.y",
        "vthread",
        *(("blockIdx.x", "blockIdx.y") * isinstance(s.place, Root)),
    ]
    yield Bind(s.name, p.axis(s), p.one(axes))


def blocks(p: Pick) -> Iterator[Step]:
    """Divides a root stage among blocks and threads, sometimes with virtual threads between them."""
    s = p.one([s for s in p.state.live() if isinstance(s.place, Root)])
    axis = p.axis(s, AxisKind.SPATIAL)
    parts = p.rng.choice((1, 1, 2))
    yield SplitStep(s.name, axis, tuple(p.rng.choice(SMALL) for _ in range(parts)))
    rest = [a.name for a in s.leaves if a.name != axis]
    outer = [f"{axis}.{n}" for n in range(parts + 1)]
    yield Reorder(s.name, (*outer, *rest))
    yield Bind(s.name, outer[0], p.one(("blockIdx.x", "blockIdx.y")))
    if parts == 2:
        yield Bind(s.name, outer[1], p.one(("vthread", "threadIdx.y")))
    yield Bind(s.name, outer[-1], "threadIdx.x")


def across(p: Pick) -> Iterator[Step]:
    """Divides a reduction among threads."""
    s = p.one([s for s in p.state.live() if s.op.is_reduction])
    axis = p.axis(s, AxisKind.REDUCE)
    yield SplitStep(s.name, axis, (p.rng.choice(SMALL),))
    inner = f"{axis}.1"
    spatial = [a.name for a in s.leaves if a.kind is AxisKind.SPATIAL]
    reduces = [a.name for a in s.leaves if a.kind is AxisKind.REDUCE and a.name != axis]
    loops = [inner, f"{axis}.0", *reduces]
    p.rng.shuffle(loops)
    yield Reorder(s.name, (*spatial, *loops))
    yield Bind(s.name, inner, p.one(("threadIdx.x", "threadIdx.x", "threadIdx.y")))


def shared_copy(p: Pick) -> Iterator[Step]:
    """Copies an operand to shared memory at a loop of its reader; the threads of a block load it together."""
    host = p.stage()
    buffer = p.one(host.op.reads())
    yield CacheRead(buffer.name, "shared", (host.name,))
    name = f"{buffer.name}.shared:{host.name}"
    yield ComputeAt(name, host.name, p.axis(host, serial=False))
    loops = [f"i{n}" for n in range(len(buffer.shape))]
    fused = loops[0] if loops else ""
    for n in range(1, len(loops)):
        yield FuseStep(name, fused, loops[n])
        fused = f"({fused}*{loops[n]})"
    bound = [a.thread for a in host.leaves if a.thread.startswith("threadIdx")]
    lanes = p.rng.choice((1, 1, 2, 4))
    if not fused:
        return
    threads = bound or ["threadIdx.x"]
    factors = (*(p.rng.choice(SMALL) for _ in threads), lanes)
    yield SplitStep(name, fused, factors)
    for n, thread in enumerate(threads):
        yield Bind(name, f"{fused}.{n + 1}", thread)
    if lanes > 1:
        yield Vectorize(name, f"{fused}.{len(factors)}")
    if p.rng.random() < 0.4:
        yield DoubleBuffer(name, p.rng.choice((2, 2, 3)))
    if p.rng.random() < 0.4:
        yield p.one(
            (
                Swizzle(name, p.rng.choice((1, 2, 4))),
                StorageAlign(name, p.rng.choice(loops), p.rng.choice((2, 8)), 1),
            )
        )


def shared_stage(p: Pick) -> Iterator[Step]:
    """Lets a block compute a stage in shared memory, for one of the stage's readers."""
    s = p.one([s for s in p.state.live() if not p.state.is_output(s)])
    host = p.one(p.state.consumers(s))
    yield ComputeAt(s.name, host.name, p.axis(host, serial=False))
    yield SetScope(s.name, "shared")
    axis = p.axis(s)
    yield SplitStep(s.name, axis, (p.rng.choice(SMALL),))
    yield Bind(s.name, f"{axis}.1", "threadIdx.x")


def local_tile(p: Pick) -> Iterator[Step]:
    """Computes a stage into registers at a thread's loop, with its operands in shared memory."""
    s = p.one([s for s in p.state.live() if isinstance(s.place, Root) and s.op.axes])
    axis = s.op.axes[-1].name
    yield CacheWrite(s.name, "local")
    near = f"{s.name}.local"
    v, t, i = p.rng.choice((1, 2)), p.rng.choice(SMALL), p.rng.choice((1, 2, 3))
    yield SplitStep(s.name, axis, (v, t, i))
    rest = [a.name for a in s.op.axes[:-1]]
    yield Reorder(s.name, (f"{axis}.0", *rest, f"{axis}.1", f"{axis}.2", f"{axis}.3"))
    yield Bind(s.name, f"{axis}.0", "blockIdx.x")
    yield Bind(s.name, f"{axis}.1", "vthread")
    yield Bind(s.name, f"{axis}.2", "threadIdx.x")
    yield ComputeAt(near, s.name, f"{axis}.2")
    reduces = [a.name for a in s.op.reduce_axes]
    spatial = [a.name for a in s.op.axes]
    if not reduces:
        return
    yield SplitStep(near, reduces[0], (p.rng.choice(SMALL),))
    yield Reorder(near, (f"{reduces[0]}.0", f"{reduces[0]}.1", *reduces[1:], *spatial))
    for buffer in s.op.reads():
        yield CacheRead(buffer.name, "shared", (near,))
        name = f"{buffer.name}.shared:{near}"
        yield ComputeAt(name, near, f"{reduces[0]}.0")
        yield SplitStep(name, f"i{len(buffer.shape) - 1}", (t,))
        yield Bind(name, f"i{len(buffer.shape) - 1}.1", "threadIdx.x")
        if p.rng.random() < 0.4:
            yield DoubleBuffer(name, p.rng.choice((2, 3, 4)))
        if p.rng.random() < 0.3:
            yield Swizzle(name, p.rng.choice((1, 2, 4)))


PROPOSALS: tuple[Proposal, ...] = (
    *(bind,) * 3,
    *(blocks,) * 4,
    *(across,) * 3,
    *(shared_copy,) * 4,
    *(shared_stage,) * 3,
    *(local_tile,) * 3,
)


def gpu_trace(rng: random.Random, dag: ComputeDAG, steps: int = 6) -> Trace:
    """A legal trace for TARGET."""
    trace = random_trace(rng, dag, rng.choice((0, 0, 2, 4)))
    if lowered(trace.replay(dag)) is None:
        trace = Trace()
    state = trace.replay(dag)
    rounds = rng.randint(1, steps)
    return grown(rng, trace, state, PROPOSALS, rounds, applied, (Nothing, ScheduleError))


def applied(state: State, step: Step) -> State | None:
    """The state after a step; None when it, the lowering or the target refuses it, or it became large."""
    try:
        after = step.apply(state)
        if is_large(after, POINTS):
            return None
    except ScheduleError:
        return None
    program = lowered(after)
    if program is None or any(f.launch and prod(f.launch.block) > 32 for f in program.run):
        return None
    return after


def lowered(state: State) -> Program | None:
    """The program for TARGET; None if lowering refuses the schedule."""
    try:
        return lower(state, TARGET)
    except (ScheduleError, TargetError):
        return None
    except LoweringError as e:
        if e.what.startswith(("barriers: threads would", "vectorize: ", "unroll: ")):
            return None
        raise


__all__ = ["TARGET", "gpu_trace", "lowered"]

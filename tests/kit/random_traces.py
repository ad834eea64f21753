"""Random legal schedules of a computation: steps are proposed, and those that can be applied and lowered are
kept.

    trace = random_trace(random.Random(7), dag, steps=8)

A proposal picks a primitive, then its arguments among what the state offers, so that most of them apply; some
are nonsense on purpose. `RegisterTile` and the like are sequences of steps, because random single steps
seldom combine; their steps are kept as far as they can be applied.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from math import inf, prod
from typing import TypeVar

from autotensor.base.errors import ScheduleError
from autotensor.lowering.nest.nest import build_program
from autotensor.schedule.axis import Mark
from autotensor.schedule.extents import derive
from autotensor.schedule.primitives.cache import CacheRead, CacheWrite
from autotensor.schedule.primitives.compute_at import ComputeAt, ComputeRoot, Inline
from autotensor.schedule.primitives.fuse import FuseStep
from autotensor.schedule.primitives.layout import Layout
from autotensor.schedule.primitives.mark import Parallel, Unroll, Vectorize
from autotensor.schedule.primitives.pragma import Pragma
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.primitives.rfactor import RFactor
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.primitives.storage import Storage
from autotensor.schedule.state import At, Stage, State
from autotensor.schedule.step import Step
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from autotensor.te.tensor import AxisKind

FACTORS = (1, 2, 2, 3, 4, 4, 5, 7, 8, 16)
T = TypeVar("T")

UNROLLED = 48  # statements that all unrolled loops of a stage may become
BLOWUP = 6000  # iterations of one stage's loops: splits by more than the extent multiply them


class Nothing(Exception):
    """There is nothing to choose from, so the proposal ends without a step."""


class Pick:
    """Choices of a proposal. Raises Nothing where there is nothing to choose from."""

    def __init__(self, rng: random.Random, state: State) -> None:
        self.rng = rng
        self.state = state

    def one(self, items: Sequence[T]) -> T:
        if not items:
            raise Nothing
        return self.rng.choice(items)

    def stage(self) -> Stage:
        return self.one(self.state.live())

    def axis(self, stage: Stage, kind: AxisKind | None = None, serial: bool = True) -> str:
        return self.one(
            [
                a.name
                for a in stage.leaves
                if (kind is None or a.kind is kind) and (not serial or a.mark is Mark.SERIAL)
            ]
        )

    def factors(self) -> tuple[int, ...]:
        return tuple(self.rng.choice(FACTORS) for _ in range(self.rng.choice((1, 1, 1, 2, 3))))


def split(p: Pick) -> Iterator[Step]:
    s = p.stage()
    axis = p.axis(s)
    if p.rng.random() < 0.25:
        yield SplitStep(s.name, axis, (), p.rng.choice(FACTORS))
    else:
        yield SplitStep(s.name, axis, p.factors())


def tile(p: Pick) -> Iterator[Step]:
    s = p.stage()
    a, b = p.axis(s), p.axis(s)
    yield SplitStep(s.name, a, (p.rng.choice(FACTORS),))
    yield SplitStep(s.name, b, (p.rng.choice(FACTORS),))
    yield Reorder(s.name, (f"{a}.0", f"{b}.0", f"{a}.1", f"{b}.1"))


def fuse(p: Pick) -> Iterator[Step]:
    s = p.stage()
    n = p.rng.randrange(len(s.leaves) - 1) if len(s.leaves) > 1 else 0
    if len(s.leaves) > 1:
        yield FuseStep(s.name, s.leaves[n].name, s.leaves[n + 1].name)


def reorder(p: Pick) -> Iterator[Step]:
    s = p.stage()
    names = [a.name for a in s.leaves]
    yield Reorder(s.name, tuple(p.rng.sample(names, p.rng.randint(min(2, len(names)), len(names)))))


def vectorize(p: Pick) -> Iterator[Step]:
    s = p.stage()
    spatial = [a.name for a in s.leaves if a.kind is AxisKind.SPATIAL]
    yield Vectorize(s.name, spatial[-1] if spatial and p.rng.random() < 0.6 else p.axis(s))


def unroll(p: Pick) -> Iterator[Step]:
    s = p.stage()
    yield Unroll(s.name, p.axis(s))


def parallel(p: Pick) -> Iterator[Step]:
    s = p.stage()
    yield Parallel(s.name, s.leaves[0].name if s.leaves and p.rng.random() < 0.8 else p.axis(s))


def compute_at(p: Pick) -> Iterator[Step]:
    s = p.stage()
    readers = p.state.consumers(s)
    host = p.rng.choice(readers) if readers and p.rng.random() < 0.85 else p.stage()
    yield ComputeAt(s.name, host.name, p.axis(host, serial=False))


def inline(p: Pick) -> Iterator[Step]:
    yield Inline(p.stage().name)


def compute_root(p: Pick) -> Iterator[Step]:
    yield ComputeRoot(p.stage().name)


def _tensors(p: Pick) -> list[str]:
    return [b.name for b in (*p.state.dag.inputs, *(b for s in p.state.live() for b in s.op.buffers))]


def cache_read(p: Pick) -> Iterator[Step]:
    tensor = p.one(_tensors(p))
    readers = [s.name for s in p.state.readers(p.state.buffer(tensor))]
    some = tuple(r for r in readers if p.rng.random() < 0.7)
    yield CacheRead(tensor, p.one(("local", "global")), some)
    if readers and p.rng.random() < 0.7:
        host = p.state.stage(some[0] if some else readers[0])
        yield ComputeAt(f"{tensor}.local:{host.name}", host.name, p.axis(host, serial=False))


def storage(p: Pick) -> Iterator[Step]:
    s = p.one([s for s in p.state.live() if isinstance(s.place, At) and s.op.axes])
    axes = [a.name for a in s.op.axes]
    p.rng.shuffle(axes)
    yield Storage(s.name, tuple(axes), p.rng.choice((0, 0, 1, 3)))


def cache_write(p: Pick) -> Iterator[Step]:
    s = p.stage()
    scope = p.one(("local", "global"))
    yield CacheWrite(s.name, scope)
    if p.rng.random() < 0.8:
        axis = p.axis(s)
        if p.rng.random() < 0.6:
            yield SplitStep(s.name, axis, (p.rng.choice(FACTORS),))
            axis = f"{axis}.0"
        yield ComputeAt(f"{s.name}.{scope}", s.name, axis)


def rfactor(p: Pick) -> Iterator[Step]:
    s = p.one([s for s in p.state.live() if s.op.is_reduction])
    axis = p.axis(s, AxisKind.REDUCE)
    if p.rng.random() < 0.6:
        yield SplitStep(s.name, axis, (p.rng.choice(FACTORS),))
        axis = f"{axis}.{p.rng.randint(0, 1)}"
    yield RFactor(s.name, axis)


def layout(p: Pick) -> Iterator[Step]:
    tensor = p.one(_tensors(p))
    rank = len(p.state.buffer(tensor).shape)
    tiled = [d for d in range(rank) if p.rng.random() < 0.5]
    parts = [f"{d}.{n}" for d in tiled for n in (0, 1)] + [str(d) for d in range(rank) if d not in tiled]
    p.rng.shuffle(parts)
    yield Layout(tensor, tuple((d, p.rng.choice(FACTORS)) for d in tiled), " ".join(parts))


def pragma(p: Pick) -> Iterator[Step]:
    s = p.stage()
    kind = p.rng.random()
    if kind < 0.5:
        key, most = p.rng.choice((("skip_zeros", 2), ("skip_unread", 1)))
        yield Pragma(s.name, p.axis(s, serial=False), key, str(p.rng.randint(1, most)))
    elif kind < 0.75:
        yield Pragma(s.name, p.axis(s, serial=False), "sum_apart", "1")
    else:
        yield Pragma(s.name, p.axis(s, serial=False), "auto_unroll_max_step", str(p.rng.choice((1, 4, 16))))


def register_tile(p: Pick) -> Iterator[Step]:
    """A consumer in tiles, with its producer computed for each tile, both vectorized inside, as in
    sketches."""
    consumers = [s for s in p.state.live() if any(p.state.producer(b) for b in s.op.reads())]
    host = p.one(consumers)
    producers = [s for b in host.op.reads() if (s := p.state.producer(b)) is not None]
    s = p.one(producers)
    axes = [a.name for a in host.leaves if a.kind is AxisKind.SPATIAL and a.mark is Mark.SERIAL][-2:]
    if not axes:
        return
    for a in axes:
        yield SplitStep(host.name, a, p.factors()[:2])
    yield Reorder(host.name, (*(f"{a}.0" for a in axes), *(f"{a}.1" for a in axes)))
    yield ComputeAt(s.name, host.name, f"{axes[-1]}.0" if p.rng.random() < 0.7 else f"{axes[0]}.0")
    reduces = [a.name for a in s.leaves if a.kind is AxisKind.REDUCE]
    spatial = [a.name for a in s.leaves if a.kind is AxisKind.SPATIAL]
    yield Reorder(s.name, (*reduces, *spatial))
    if spatial:
        if p.rng.random() < 0.5:
            yield SplitStep(s.name, spatial[-1], (p.rng.choice((2, 4, 8)),))
            spatial[-1] = f"{spatial[-1]}.1"
        yield Vectorize(s.name, spatial[-1])
        for a in spatial[:-1]:
            yield Unroll(s.name, a)
    yield Vectorize(host.name, f"{axes[-1]}.1")
    yield Parallel(host.name, f"{axes[0]}.0")


def chain(p: Pick) -> Iterator[Step]:
    """A consumer in tiles. Its producers, and the producers of these, are computed inside one another."""
    host = p.stage()
    axes = [a.name for a in host.leaves if a.mark is Mark.SERIAL]
    leaves = [a.name for a in host.leaves]
    if axes:
        axis = p.one(axes)
        yield SplitStep(host.name, axis, (p.rng.choice(FACTORS),))
        leaves = [f"{axis}.0", *(a for a in leaves if a != axis), f"{axis}.1"]
        yield Reorder(host.name, tuple(leaves))
    for _ in range(3):
        producers = [s for b in host.op.reads() if (s := p.state.producer(b)) is not None]
        if not producers or not leaves:
            return
        inner = p.rng.choice(producers)
        yield ComputeAt(inner.name, host.name, p.one(leaves[:-1] or leaves))
        host, leaves = inner, [a.name for a in inner.leaves]
        if leaves and p.rng.random() < 0.4:
            axis = p.one(leaves)
            yield SplitStep(host.name, axis, (p.rng.choice(FACTORS),))
            leaves = [x for a in leaves for x in ((f"{axis}.0", f"{axis}.1") if a == axis else (a,))]


Proposal = Callable[[Pick], Iterator[Step]]
PROPOSALS: tuple[Proposal, ...] = (
    *(split,) * 4,
    tile,
    *(fuse,) * 3,
    *(reorder,) * 3,
    *(vectorize,) * 2,
    *(unroll,) * 2,
    *(parallel,) * 2,
    *(compute_at,) * 6,
    *(inline,) * 2,
    compute_root,
    *(cache_read,) * 2,
    *(cache_write,) * 2,
    *(rfactor,) * 3,
    *(layout,) * 2,
    pragma,
    *(register_tile,) * 2,
    *(chain,) * 4,
    *(storage,) * 2,
)


def random_trace(rng: random.Random, dag: ComputeDAG, steps: int = 10) -> Trace:
    """A legal trace from about `steps` proposals."""
    rounds = rng.randint(0, steps)
    return grown(rng, Trace(), State.initial(dag), PROPOSALS, rounds, applied, (Nothing,))


def grown(
    rng: random.Random,
    trace: Trace,
    state: State,
    proposals: Sequence[Proposal],
    rounds: int,
    applied: Callable[[State, Step], State | None],
    refusals: tuple[type[Exception], ...],
) -> Trace:
    """The trace with the steps of `rounds` proposals that `applied` accepts; `refusals` end a proposal."""
    for _ in range(rounds):
        proposal = rng.choice(proposals)(Pick(rng, state))
        while True:
            try:
                step = next(proposal, None)
            except refusals:
                break
            after = None if step is None else applied(state, step)
            if step is None or after is None:
                break
            trace, state = trace.then(step), after
    return trace


def applied(state: State, step: Step) -> State | None:
    """The state after the step; None when it or its lowering is refused, or the program became large."""
    try:
        after = step.apply(state)
        if is_large(after, BLOWUP, UNROLLED):
            return None
        build_program(after)
    except ScheduleError:
        return None
    return after


def is_large(state: State, points: int, unrolled: float = inf) -> bool:
    """Whether a stage has more iterations, more unrolled ones, or longer vectors than 64. Raises
    ScheduleError if extents are not known."""
    extents = derive(state)
    for s in state.live():
        sizes = [(int(extents[s.name, a.name]), a.mark) for a in s.leaves]
        copies = prod(n for n, mark in sizes if mark is Mark.UNROLLED)
        lanes = prod(n for n, mark in sizes if mark is Mark.VECTORIZED)
        if copies > unrolled or lanes > 64 or prod(n for n, _ in sizes) > points:
            return True
    return False

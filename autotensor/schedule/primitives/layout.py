"""layout: copies a tensor into another order of its elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from autotensor.base.dtype import int64
from autotensor.base.errors import ScheduleError
from autotensor.ir.affine import is_multiple
from autotensor.ir.expr import Cmp, Expr, Load, Var, all_of, compare, const, select
from autotensor.ir.func import Buffer
from autotensor.schedule.axis import fresh, fuse_name
from autotensor.schedule.extents import access
from autotensor.schedule.primitives.fuse import FuseStep
from autotensor.schedule.primitives.mark import Parallel, Unroll, Vectorize
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.state import Ref, Size, Stage, State, redirect
from autotensor.schedule.step import StageName, Step, Word, step
from autotensor.te.stage import IterDef, StageOp, axes_over, buffer_over

SIDE = 8  # side of a square that is transposed in registers, in elements
WORD, VECTOR = 4, 64  # bytes
MANY = 64  # this many turns of a parallel loop are enough


@step
class Layout:
    """Copies a tensor into tiles and permutes its dimensions. Its readers then read the copy.

        W[o, i]   ──Layout("W", ((0, 32),), "0.0 1 0.1")──▶   W.packed[o.0, i, o.1] = W[o.0*32 + o.1, i]

    tiles: (dimension, factor) for each dimension that is divided. order: the dimensions of the copy, as `d`,
    or as `d.0` and `d.1`. The copy of a constant tensor is made once (in the prepare part). Copies of other
    tensors are made in every call, in parallel. They move vectors if memory is read along the copy's last
    dimension, and squares of vectors if it is read across. Padding holds zeros.
    Raises ScheduleError for an unknown tensor, or an order that does not name every part exactly once.
    """

    tensor: StageName
    tiles: tuple[tuple[int, Size], ...]
    order: Word

    def apply(self, state: State) -> State:
        buffer = state.buffer(self.tensor)
        readers = state.readers(buffer)
        if not readers:
            raise ScheduleError(f"layout: nothing reads {self.tensor!r}.")
        factors = dict(self.tiles)
        rank = len(buffer.shape)
        if rank == 0:
            raise ScheduleError(f"layout: {self.tensor!r} is a scalar and has no dimensions to arrange.")
        if wrong := [d for d, _ in self.tiles if not 0 <= d < rank]:
            raise ScheduleError(f"layout: {self.tensor!r} has no dimension {wrong[0]}; it has {rank}.")
        if len(factors) != len(self.tiles):
            raise ScheduleError(
                f"layout: a dimension of {self.tensor!r} is tiled twice.", fix="Give each its one factor."
            )
        if any(isinstance(f, Ref) for f in factors.values()):
            raise ScheduleError("layout: factors must be decided before the step is applied.")
        if small := [f for f in factors.values() if not isinstance(f, Ref) and f < 1]:
            raise ScheduleError(f"layout: factor {small[0]} of {self.tensor!r} is not positive.")
        parts = {str(d) for d in range(len(buffer.shape)) if d not in factors} | {
            f"{d}.{n}" for d in factors for n in (0, 1)
        }
        order = self.order.split()
        if set(order) != parts or len(order) != len(parts):
            raise ScheduleError(
                f"layout: order {self.order!r} of {self.tensor!r} must name each of "
                f"{', '.join(sorted(parts))} once."
            )
        op = packing(state, buffer, {d: int(f) for d, f in factors.items()}, order)  # type: ignore[arg-type]
        packed = op.buffers[0]

        def index(old: tuple[Expr, ...]) -> tuple[Expr, ...]:
            return tuple(_part(old, factors, p) for p in order)

        for stage in readers:
            state = state.with_stage(replace(stage, op=redirect(stage.op, buffer, packed, index)))
        first = min(readers, key=lambda s: state.names.index(s.name))
        state = state.inserting(Stage.of(op), before=first.name)
        if self.tensor not in state.dag.constants:
            for made in copy_loops(op):
                state = made.apply(state)
        return state

    def call(self) -> str:
        return f's.layout("{self.tensor}", {list(self.tiles)}, "{self.order}")'


def _part(index: tuple[Expr, ...], factors: dict[int, Size], part: str) -> Expr:
    d, _, which = part.partition(".")
    e = index[int(d)]
    if not which:
        return e
    return e // factors[int(d)] if which == "0" else e % factors[int(d)]


def copy_loops(op: StageOp) -> tuple[Step, ...]:
    """The loops of a copy that is made in every call.

    If the tensor runs along another dimension than the copy, squares are transposed: each of their rows is
    read and written as a vector. Words of elements of fewer than 32 bits are written side by side.
    """
    name, *outer, last = op.name, *(a.name for a in op.axes)
    body = op.bodies[0]
    extents = {a.name: a.extent for a in op.axes}
    steps: list[Step] = []
    if isinstance(body, Load):
        along = next((a for a in outer if Var(a, int64) is body.indices[-1]), None)
        whole = extents[last] % SIDE == 0
        if along is not None and whole and extents[along] % SIDE == 0:
            outer.remove(along)
            steps += [SplitStep(name, along, (SIDE,)), SplitStep(name, last, (SIDE,))]
            inner = (f"{along}.0", f"{last}.0", f"{along}.1", f"{last}.1")
            steps += [Reorder(name, (*outer, *inner)), Unroll(name, inner[2]), Vectorize(name, inner[3])]
            outer.append(inner[0])
        elif along is None and whole and access_step(body, last) == 1:
            steps += [SplitStep(name, last, (SIDE,)), Vectorize(name, f"{last}.1")]
        elif words := _words(body, outer, extents, last):
            row = outer.pop()
            steps += [SplitStep(name, row, (words,)), FuseStep(name, f"{row}.1", last)]
            steps.append(Vectorize(name, fuse_name(f"{row}.1", last)))
            outer.append(f"{row}.0")
    at, turns = outer[0] if outer else last, extents.get(outer[0], MANY) if outer else 1
    for other in outer[1:]:
        if turns >= MANY:
            break
        steps.append(FuseStep(name, at, other))
        at, turns = fuse_name(at, other), turns * extents.get(other, MANY)
    return (*steps, Parallel(name, at)) if turns > 1 else tuple(steps)


def _words(body: Load, outer: Sequence[str], extents: Mapping[str, int], last: str) -> int:
    """The number of words that are written as one vector; 0 if the copy's last dimension is not a word.

    A word is a group of elements of fewer than 32 bits, in the form that dot instructions read.
    """
    size = body.dtype.bytes
    if not outer or size >= WORD or extents[last] * size != WORD:
        return 0
    lanes = VECTOR // WORD
    return lanes if extents[outer[-1]] % lanes == 0 and 1 in _steps(body, outer[-1], last) else 0


def _steps(body: Load, *axes: str) -> tuple[int, ...]:
    return tuple(access_step(body, a) for a in axes)


def access_step(load: Load, axis: str) -> int:
    """Elements in memory from one step of an axis to the next; 0 if that is not known."""
    total = 0
    for index, stride in zip(load.indices, load.buffer.row_major(), strict=True):
        a = access(index)
        if a is None or (axis in a.steps and not a.is_sum):
            return 0
        total += a.steps.get(axis, 0) * stride
    return total


def packing(state: State, buffer: Buffer, factors: dict[int, int], order: list[str]) -> StageOp:
    """The stage that writes the copy."""
    name = fresh(f"{buffer.name}.packed", set(state.names))
    axes: dict[str, IterDef] = {}
    original: list[Expr] = []
    inside: list[Expr] = []
    for d, axis in enumerate(axes_over(buffer)):
        if d not in factors:
            axes[str(d)] = axis
            original.append(axis.var)
            continue
        f = factors[d]
        outer, inner = axis.blocks(f"d{d}o", f), IterDef(f"d{d}i", f)
        axes[f"{d}.0"], axes[f"{d}.1"] = outer, inner
        e = outer.var * f + inner.var
        original.append(e)
        if not is_multiple(axis.size, f):
            inside.append(compare(Cmp.LT, e, axis.size))
    body: Expr = Load(buffer, tuple(original))
    if inside:
        body = select(all_of(*inside), body, const(0, buffer.dtype))
    used = tuple(axes[p] for p in order)
    packed = buffer_over(used, name, buffer.dtype)
    return StageOp(name, used, (), (body,), None, (packed,))

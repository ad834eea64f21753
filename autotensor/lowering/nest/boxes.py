"""Boxes of attached stages: small buffers that hold only the elements that one turn of the loop needs.

boxes.keep(P)                         P[100, 64] at C's loop i ──▶ P[1, 64], which begins at P[i, 0]
                                      stored outside of i: a ring of the rows that one i reads, P[r] at r % 3
Body(…).redirected(P[i, k] * 2)  ──▶  P[0, k] * 2          reads of kept stages go to their boxes
"""

from __future__ import annotations

from autotensor.ir.bounds import Interval
from autotensor.ir.expr import Expr, Load, Select, Var, all_of, const, maximum
from autotensor.ir.func import Buffer, Scope
from autotensor.ir.node import map_children
from autotensor.ir.rewrite import substitute
from autotensor.lowering.device_features import Device
from autotensor.lowering.nest.guards import box_conditions
from autotensor.lowering.nest.when.prefetched_stages import is_ahead
from autotensor.schedule.axis import Mark
from autotensor.schedule.extents import Extents, leaf_var
from autotensor.schedule.index_regions import Span
from autotensor.schedule.primitives.storage import in_storage_order, stored, swizzle_of
from autotensor.schedule.state import At, Split, Stage, State
from autotensor.te.indices import clamped

# unused rows before and after a ring: vectors may reach into these rows without masks
BESIDE = 1


class Boxes:
    """The boxes of one kernel, and the other buffers that the kernel reads or writes."""

    def __init__(self, state: State, extents: Extents, device: Device) -> None:
        self._state = state
        self._device = device
        self._extents = extents
        self.kept: dict[Buffer, Buffer] = {}  # a stage's buffer → its small replacement
        self.touched: list[Buffer] = []  # buffers without boxes: the kernel's parameters, in order of use
        self._bases: dict[Buffer, tuple[Expr, ...]] = {}
        self.steps = dict(state.dag.carried)  # buffer that a scan reads → buffer that its earlier steps wrote
        # the iteration whose box is meant, if boxes of several iterations are kept
        self.slots: dict[Buffer, tuple[Expr, ...]] = {}

    def keep(self, stage: Stage) -> None:
        """From now on, the stage writes its box, and other stages read this box."""
        box = self._extents.stored(stage.name)
        shape = self._whole_vectors(stage, tuple(int(s.extent) for s in box))
        window = self._extents.windows.get(stage.name)
        if window is not None:
            rows = places_of(int(window.rows)) + 2 * BESIDE
            shape = (*shape[: window.along], rows, *shape[window.along + 1 :])
        shape = one = stored(stage, shape)
        if is_ahead(stage) and isinstance(stage.place, At):
            shape = (stage.turns, *shape)
            turn = leaf_var(stage.place.stage, stage.place.axis) % stage.turns
            self.slots.update(dict.fromkeys(stage.op.buffers, (turn,)))
        for b in stage.op.buffers:
            scope = stage.scope if stage.scope is not Scope.GLOBAL else Scope.LOCAL
            swizzle = swizzle_of(stage, one, b.dtype.bytes)
            turns = stage.turns if self._device.copies and is_ahead(stage) else 0
            self.kept[b] = Buffer(b.name, shape, b.dtype, scope, (), swizzle, turns)
            self._bases[b] = tuple(base_of(s) for s in box)

    def _whole_vectors(self, stage: Stage, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape with rows of whole vectors.

        Vectors that overhang stay inside this buffer, which then may be in registers, and rows begin where
        vectors do.
        """
        names = [a.name for a in stage.op.axes]
        inner = stage.storage[0][-1:] if stage.storage is not None else tuple(names[-1:])
        for relation in stage.relations:
            if isinstance(relation, Split) and relation.parent in inner:
                last = next((a for a in stage.leaves if a.name == relation.children[-1]), None)
                if last is not None and last.mark is Mark.VECTORIZED:
                    lanes, at = int(self._extents[stage.name, last.name]), names.index(relation.parent)
                    return (*shape[:at], -(-shape[at] // lanes) * lanes, *shape[at + 1 :])
        return shape

    def shape(self, buffer: Buffer) -> tuple[int, ...]:
        """The extents of the box of a stage's buffer."""
        return tuple(int(s.extent) for s in self._extents.stored(self._producer(buffer).name))

    def relative(self, load: Load, mapping: dict[Var, Expr]) -> tuple[Expr, ...]:
        """A load's indices, counted from the place where the box of its buffer will begin."""
        box = self._extents.stored(self._producer(load.buffer).name)
        return tuple(substitute(i, mapping) - base_of(s) for i, s in zip(load.indices, box, strict=True))

    def place(self, buffer: Buffer, index: tuple[Expr, ...]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        """For an element of a kept buffer, its indices in the box, and its indices in the replacement."""
        stage = self._producer(buffer)
        inside = tuple(i - b for i, b in zip(index, self._bases[buffer], strict=True))
        return inside, self.stored_at(stage, index, inside)

    def stored_at(self, stage: Stage, index: tuple[Expr, ...], inside: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The indices of an element in the replacement, from its indices in the stage and in the box."""
        window = self._extents.windows.get(stage.name)
        if window is not None:
            ring = index[window.along] % places_of(int(window.rows)) + BESIDE
            inside = (*inside[: window.along], ring, *inside[window.along + 1 :])
        return (*self.slots.get(stage.op.buffers[0], ()), *in_storage_order(stage, inside))

    def _producer(self, buffer: Buffer) -> Stage:
        producer = self._state.producer(buffer)
        assert producer is not None
        return producer


def places_of(rows: int) -> int:
    """The rows of a ring that keeps this many rows.

    No more are needed: indices are folded once for each row.
    """
    return rows


class Body:
    """A stage's body as an expression over loop variables; reads of attached stages go to their boxes.

    Indices that come from memory are limited to their tensor, whatever memory holds.
    """

    def __init__(
        self, boxes: Boxes, stage: Stage, mapping: dict[Var, Expr], ranges: dict[Var, Interval]
    ) -> None:
        self._boxes = boxes
        self._everywhere = isinstance(stage.place, At)  # points without a reader are computed, too
        self._mapping = mapping
        self._ranges = ranges
        self._memo: dict[tuple[Expr, bool], Expr] = {}

    def redirected(self, e: Expr, guarded: bool = False) -> Expr:
        """guarded: inside a Select.

        No guard is outside then, and a load that may leave its box gets a mask.
        """
        found = self._memo.get((e, guarded))
        if found is None:
            found = self._memo[e, guarded] = self._expr(e, guarded)
        return found

    def _expr(self, e: Expr, guarded: bool) -> Expr:
        match e:
            case Var():
                return self._mapping.get(e, e)
            case Select(cond, then, otherwise):
                sides = self.redirected(then, True), self.redirected(otherwise, True)
                return Select(self.redirected(cond, guarded), *sides)
            case Load(buffer, indices, mask):
                pairs = zip(indices, buffer.dims, strict=True)
                index = tuple(clamped(self.redirected(i, guarded), n) for i, n in pairs)
                if buffer in self._boxes.steps:
                    buffer, index = self._boxes.steps[buffer], (maximum(index[0], const(0)), *index[1:])
                near = self._boxes.kept.get(buffer)
                if near is None:
                    self._boxes.touched.append(buffer)
                    return Load(buffer, index, mask)
                inside, place = self._boxes.place(buffer, index)
                loose = guarded and self._everywhere
                outside = box_conditions(inside, self._boxes.shape(buffer), self._ranges) if loose else []
                return Load(near, place, all_of(*outside) if outside else mask)
            case _:
                return map_children(e, lambda c: self.redirected(c, guarded) if isinstance(c, Expr) else c)


def base_of(span: Span) -> Expr:
    """The index at which a dimension of a box begins."""
    assert span.base is not None, "extents were derived without bases"
    return span.base


__all__ = ["Body", "Boxes", "base_of"]

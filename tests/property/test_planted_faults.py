"""Faults planted in lowering are found by the checks that guard it: `comparison.check` on the fixed cases.

Each fault replaces one function by a wrong one. If no check finds a fault, a whole class of mistakes would
not be found either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from comparison import Different, check
from fixed_cases import CASES

from autotensor.codegen.llvm import kernel
from autotensor.ir.bounds import Bounds, Interval
from autotensor.ir.expr import Const, Expr, Load, Var, const
from autotensor.ir.rewrite import substitute
from autotensor.ir.stmt import NOTHING, For, ForKind, If, Store, seq
from autotensor.lowering import pipeline
from autotensor.lowering.nest import boxes, nest, stage_loops
from autotensor.lowering.passes import flatten, guarded_ranges, partition, unroll, vectorize
from autotensor.schedule import extents, index_regions
from autotensor.schedule.primitives import compute_at, layout, rfactor

FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {}


def fault(fn: Callable[[pytest.MonkeyPatch], None]) -> Callable[[pytest.MonkeyPatch], None]:
    FAULTS[fn.__name__] = fn
    return fn


def replace_pass(patch: pytest.MonkeyPatch, name: str, run: Callable[[Any], Any]) -> None:
    passes = tuple(replace(p, run=run) if p.name == name else p for p in pipeline.PIPELINE)
    patch.setattr(pipeline.lower, "__kwdefaults__", {**pipeline.lower.__kwdefaults__, "passes": passes})


# -- nests ---------------------------------------------------------------------------------------------------


@fault
def tail_guard_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(nest, "guard", lambda conditions, body: body)


@fault
def reduction_not_initialised(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(nest._Nest, "_init", lambda *args: NOTHING)


@fault
def reduction_initialised_too_far_inside(patch: pytest.MonkeyPatch) -> None:
    original = nest._first_reduction
    patch.setattr(nest, "_first_reduction", lambda s: original(s) + 1)


@fault
def fused_parts_exchanged(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stage_loops, "fused_parts", lambda value, cols: (value % cols, value // cols))


@fault
def base_missing_in_private_index(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(boxes, "base_of", lambda span: const(0))


@fault
def box_too_small(patch: pytest.MonkeyPatch) -> None:
    original = index_regions.clip

    def smaller(*args: Any) -> Any:
        span = original(*args)
        return replace(span, extent=max(1, span.extent - 1))

    patch.setattr(extents, "clip", smaller)


@fault
def window_of_quotients_too_small(patch: pytest.MonkeyPatch) -> None:
    original = index_regions._quotient

    def smaller(a: Any, c: int) -> Any:
        found = original(a, c)
        return replace(found, top=(a.top - a.low - 1) // c + 1)

    patch.setattr(index_regions, "_quotient", smaller)


@fault
def second_reader_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(extents, "join", lambda a, b: b)


@fault
def domain_guard_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stage_loops, "domain_guards", lambda *args: [])


@fault
def box_guard_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stage_loops, "box_conditions", lambda *args: [])


@fault
def results_stored_before_all_are_computed(patch: pytest.MonkeyPatch) -> None:
    def update(name: str, combiner: Any, targets: Any, sources: Any) -> Any:
        old = {v: Load(b, i) for v, (b, i) in zip(combiner.lhs, targets, strict=True)}
        mapping = {**old, **dict(zip(combiner.rhs, sources, strict=True))}
        values = [substitute(r, mapping) for r in combiner.result]
        return seq(*(Store(b, i, v) for (b, i), v in zip(reversed(targets), reversed(values), strict=True)))

    patch.setattr(nest, "update", update)


# -- primitives ----------------------------------------------------------------------------------------------


@fault
def rfactor_guard_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rfactor, "_guarded", lambda body, guard, identity: body)


@fault
def rfactor_pads_with_one(patch: pytest.MonkeyPatch) -> None:
    original = rfactor._guarded
    patch.setattr(rfactor, "_guarded", lambda body, guard, e: original(body, guard, const(1, e.dtype)))


@fault
def layout_padding_read_instead_of_zeroed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(layout, "select", lambda cond, then, otherwise: then)


@fault
def layout_parts_exchanged(patch: pytest.MonkeyPatch) -> None:
    original = layout._part
    turned = str.maketrans("01", "10")
    patch.setattr(
        layout,
        "_part",
        lambda index, factors, part: original(
            index, factors, part[:-1] + part[-1].translate(turned) if "." in part else part
        ),
    )


@fault
def inlined_with_axes_exchanged(patch: pytest.MonkeyPatch) -> None:
    original = compute_at.inline_into
    patch.setattr(
        compute_at, "inline_into", lambda op, p: original(op, replace(p, axes=tuple(reversed(p.axes))))
    )


# -- passes --------------------------------------------------------------------------------------------------


@fault
def strides_exchanged(patch: pytest.MonkeyPatch) -> None:
    original = flatten.flat_index

    def exchanged(b: Any, i: Any) -> Any:
        return original(b, tuple(reversed(i)) if len(i) == 2 else i)

    patch.setattr(flatten, "flat_index", exchanged)


@fault
def tail_dropped(patch: pytest.MonkeyPatch) -> None:
    original = partition._parts
    patch.setattr(partition, "_parts", lambda whole, main: original(whole, main)[:1])


@fault
def main_part_one_turn_short(patch: pytest.MonkeyPatch) -> None:
    original = partition._parts

    def parts(whole: Interval, main: Interval) -> list[Interval]:
        return [Interval(p.lo, p.hi - 1) if p == main else p for p in original(whole, main)]

    patch.setattr(partition, "_parts", parts)


@fault
def partition_drops_guards(patch: pytest.MonkeyPatch) -> None:
    """The main part is treated as the whole loop."""
    original = partition._loop
    patch.setattr(partition, "_loop", lambda loop, part: original(without_guards(loop), part))


def without_guards(node: Any) -> Any:
    from autotensor.ir.rewrite import transform

    return transform(node, lambda n: n.then if isinstance(n, If) and n.otherwise is None else None)


@fault
def loop_shortened_too_much(patch: pytest.MonkeyPatch) -> None:
    original = guarded_ranges.may_hold

    def less(*args: Any) -> Interval:
        found = original(*args)
        return Interval(found.lo, None if found.hi is None else found.hi - 1)

    patch.setattr(guarded_ranges, "may_hold", less)


@fault
def ranges_one_short(patch: pytest.MonkeyPatch) -> None:
    """For the passes, a loop ends one iteration earlier."""

    def in_loop(known: Bounds, var: Var, begin: Expr, extent: Expr) -> Bounds:
        first, turns = known.of(begin), known.of(extent)
        last = None if first.hi is None or turns.hi is None else max(first.lo or 0, first.hi + turns.hi - 2)
        return known.with_range(var, Interval(first.lo, last))

    patch.setattr(Bounds, "in_loop", in_loop)


@fault
def loads_not_protected(patch: pytest.MonkeyPatch) -> None:
    replace_pass(patch, "protect loads", lambda body: body)


@fault
def vectorize_drops_masks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(vectorize, "_both", lambda a, b: None)


@fault
def vectorize_takes_stride_two(patch: pytest.MonkeyPatch) -> None:
    original = vectorize.Ramp
    patch.setattr(vectorize, "Ramp", lambda base, step, lanes: original(base, 2 * step, lanes))


@fault
def unroll_skips_last_turn(patch: pytest.MonkeyPatch) -> None:
    def shorter(body: Any) -> Any:
        from autotensor.ir.rewrite import transform

        def visit(n: Any) -> Any:
            if isinstance(n, For) and n.kind is ForKind.UNROLLED and isinstance(n.extent, Const):
                return replace_extent(n, int(n.extent.value) - 1)
            return None

        return unroll.unroll(transform(body, visit))

    replace_pass(patch, "unroll", shorter)


def replace_extent(loop: For, extent: int) -> For:
    return For(loop.var, loop.begin, const(extent), loop.kind, loop.body, loop.thread)


@fault
def all_masks_dropped(patch: pytest.MonkeyPatch) -> None:
    def drop(body: Any) -> Any:
        from autotensor.ir.rewrite import transform

        return transform(body, lambda n: Load(n.buffer, n.indices) if isinstance(n, Load) else None)

    replace_pass(patch, "unmask", drop)


# -- native code ---------------------------------------------------------------------------------------------


def move_chunks(patch: pytest.MonkeyPatch, by: int) -> None:
    """Moves the end of every thread's share."""
    original = kernel.Kernel._loop

    def loop(self: Any, s: For, begin: str, end: str, sure: bool) -> None:
        if s.kind is ForKind.PARALLEL:
            end = self.op(f"add nsw i64 {end}, {by}")
        original(self, s, begin, end, sure)

    patch.setattr(kernel.Kernel, "_loop", loop)


@fault
def chunks_overlap(patch: pytest.MonkeyPatch) -> None:
    move_chunks(patch, 1)


@fault
def chunks_leave_gaps(patch: pytest.MonkeyPatch) -> None:
    move_chunks(patch, -1)


@contextmanager
def planted(name: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        FAULTS[name](patch)
        yield


@pytest.mark.parametrize("name", CASES)
def test_without_a_fault_all_is_well(name: str) -> None:
    s = CASES[name]()
    check(s.dag, s.trace)


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_found(name: str) -> None:
    with planted(name):
        assert found_by(native=False) or found_by(native=True), f"nothing notices {name}"


def found_by(native: bool) -> str:
    """The first case that goes wrong."""
    for name, make in CASES.items():
        try:
            s = make()
            check(s.dag, s.trace, native=native)
        except Different:
            return name
    return ""

"""Sums of products of (byte - zero point) become sums of plain products, which dot instructions compute.

    C[i, j] = Σ_k (A[i, k] - z) * (W[k, j] - y)

        ──▶   A.to_uint8[i, k] = u8(A[i, k]) ^ 128      if the instruction needs the other sign
              C.sums[j]     = Σ_k W[k, j]               prepared, if W is constant
              C.sums1[i]    = Σ_k A.to_uint8[i, k]      only if y is not 0
              C.plain[i, j] = Σ_k A.to_uint8[i, k] * W[k, j]
              C[i, j]       = C.plain[i, j] - z' * C.sums[j] - y * C.sums1[i] + K * z' * y

Flipping the highest bit adds 128 to a signed byte and subtracts 128 from an unsigned one; z' is z changed by
the same 128. Sums of 32 bits wrap around, so the result is exact. `narrow_products` keeps bytes: one operand
becomes signed, and the other unsigned. `narrow_products_16` widens both to 16 bits, for vpmaddwd.
Source: Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
Inference" (CVPR 2018), 2.3; the flipped bit: oneDNN, "Int8 inference" (s8 by s8 on AVX512-VNNI).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import prod

from autotensor.base.dtype import DType, bfloat16, float32, int8, int16, int32, uint8
from autotensor.ir.expr import Binary, Cast, Const, Expr, Load, Op, cast, const
from autotensor.ir.visit import free_vars
from autotensor.schedule.algorithm import ALGORITHMS, Algorithm
from autotensor.schedule.axis import fresh
from autotensor.schedule.state import Stage, State
from autotensor.te.stage import StageOp, buffer_over
from autotensor.te.tensor import AxisKind
from schedules.algorithms.converted_tensor import converted

# type of a byte → the other type, and the number that flipping the highest bit adds
FLIPPED = {int8: (uint8, 128), uint8: (int8, -128)}


@dataclass(frozen=True, slots=True)
class Factor:
    """The factor (load - zero) of each term. `zero` does not depend on the axes of the sum."""

    load: Load
    zero: Expr

    @property
    def value(self) -> Expr:
        """The factor as an expression of the sum's type."""
        whole = cast(self.zero.dtype, self.load)
        return whole if self.zero == const(0, whole.dtype) else whole - self.zero


def factors(op: StageOp) -> tuple[Factor, Factor] | None:
    """First the factor that does not depend on the last axis, then the factor that does; None for other
    sums."""
    if op.combiner is None or op.combiner.name != "sum" or len(op.bodies) != 1 or not op.axes:
        return None
    match op.bodies[0]:
        case Binary(Op.MUL, a, b):
            found = factor(op, a), factor(op, b)
        case _:
            return None
    along = op.axes[-1].var
    ordered = sorted((f for f in found if f is not None), key=lambda f: along in free_vars(f.load))
    if len(ordered) < 2 or [along in free_vars(f.load) for f in ordered] != [False, True]:
        return None
    return ordered[0], ordered[1]


def factor(op: StageOp, e: Expr) -> Factor | None:
    """A byte less its zero point, in int32, or a bfloat16 in float32."""
    match e:
        case Cast(_, Load(_, _, None) as half) if (half.dtype, e.dtype) == (bfloat16, float32):
            return Factor(half, const(0.0, float32))
        case Binary(Op.SUB, a, zero):
            pass
        case Binary(Op.ADD, a, Const(value, t)):
            zero = const(-int(value), t)
        case a:
            zero = const(0, int32)
    summed = {x.var for x in op.reduce_axes}
    match a:
        case Cast(_, Load(buffer, _, None) as load) if a.dtype == int32 and buffer.dtype.is_byte:
            return Factor(load, zero) if free_vars(zero).isdisjoint(summed) else None
    return None


def narrow_products(state: State, stage: Stage, wide: bool = False) -> tuple[StageOp, ...] | None:
    """The stages of the picture above; None if the stage is not such a sum, or if its products are already
    plain."""
    op, names = stage.op, set(state.names)
    found = factors(op)
    if found is None or op.buffers[0].dtype != int32:
        return None
    a, w = found
    made: list[StageOp] = []
    if wide:
        a, w = (_converted(x, int16, 0, names, made) for x in found)
    elif a.load.buffer.dtype == w.load.buffer.dtype:
        a = _converted(a, *FLIPPED[a.load.buffer.dtype], names, made)
    zeros = [_number(f.zero) for f in (a, w)]
    left, right = cast(int32, a.load), cast(int32, w.load)
    body = Binary(Op.MUL, left, right)
    if not made and op.bodies[0] in {body, Binary(Op.MUL, right, left)}:  # (x - 0) * w is not plain yet
        return None
    name = fresh(f"{op.name}.plain", names)
    plain = buffer_over(op.axes, name, int32)
    total: Expr = Load(plain, tuple(x.var for x in op.axes))
    for factor, other, zero in ((a, w, zeros[0]), (w, a, zeros[1])):
        if zero != 0:
            total = total - factor.zero * _sums(op, other.load, names, made)
    if 0 not in zeros:
        total = total + a.zero * w.zero * prod(x.extent for x in op.reduce_axes)
    made.append(replace(op, name=name, bodies=(body,), buffers=(plain,)))
    return (*made, StageOp(op.name, op.axes, (), (total,), None, op.buffers, op.tag))


def _number(e: Expr) -> int | None:
    """The value of a constant; None if it is not known."""
    return int(e.value) if isinstance(e, Const) else None


def _converted(f: Factor, to: DType, by: int, names: set[str], made: list[StageOp]) -> Factor:
    """The factor with its tensor copied in another type. `by` is added to every element and to the zero
    point."""

    def convert(x: Load) -> Expr:
        byte = Cast(uint8, x) if x.dtype == int8 else x
        return cast(to, Binary(Op.XOR, byte, const(128, uint8)) if by else x)

    made.append(converted(f.load.buffer, f"to_{to}", convert, names))
    return Factor(Load(made[-1].buffers[0], f.load.indices), f.zero + by if by else f.zero)


def _sums(op: StageOp, load: Load, names: set[str], made: list[StageOp]) -> Expr:
    """The operand's sum at a point of the stage. A new stage over the operand's axes computes it."""
    used = tuple(x for x in op.axes if x.var in free_vars(load))
    summed = tuple(replace(x, kind=AxisKind.REDUCE) for x in op.reduce_axes)
    assert op.combiner is not None
    sums = buffer_over(used, fresh(f"{op.name}.sums", names), int32)
    names.add(sums.name)
    body = cast(int32, load)
    made.append(StageOp(sums.name, used, summed, (body,), op.combiner, (sums,)))
    return Load(sums, tuple(x.var for x in used))


NAMES = ("narrow_products", "narrow_products_16")
ALGORITHMS.add(NAMES[0], Algorithm(NAMES[0], narrow_products))
ALGORITHMS.add(NAMES[1], Algorithm(NAMES[1], partial(narrow_products, wide=True)))

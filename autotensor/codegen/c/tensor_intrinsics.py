"""Tensor intrinsics: the meaning of an instruction of a whole warp, and the loops with exactly this meaning.

Each intrinsic declares its meaning (a reduction of products over k), the loops of one thread with the same
meaning, and its spelling. CUDA prints the instruction, the interpreter runs the loops. `mma.sync` of 16×8×k
computes

    for k in 8 (or 16): for row in 2: for col in 2:
      acc[row, col] += A[g + 8*row, k] * B[k, 2*t + col]          g = lane // 4, t = lane % 4

in every lane: these are the accumulators that the instruction leaves in the lane. The operands that a lane
holds are not those that the loops read in this lane: lane (g, t) brings A[g + 8*row, k] and B[k, g] for the k
of its own t.

`ldmatrix` fetches operands of 16 bits from shared memory where eight elements lie in a row: lane l gives the
address of row l % 8 of matrix l // 8, and every lane gets its elements of all matrices.

Instructions of other targets are declared by te functions (`declared_intrinsics.py`).

Source: PTX ISA, "Matrix fragments for mma.m16n8k8 / mma.m16n8k16", "ldmatrix".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

from autotensor.base.errors import LoweringError
from autotensor.base.plugins import plugin
from autotensor.codegen.declared_intrinsics import Declared
from autotensor.ir.affine import Affine, affine, is_multiple
from autotensor.ir.expr import Binary, Cast, Const, Expr, Load, Op, Var, const
from autotensor.ir.func import Buffer, Scope
from autotensor.ir.rewrite import substitute
from autotensor.ir.simplify import simplify
from autotensor.ir.stmt import For, ForKind, Let, Stmt, Store
from autotensor.ir.swizzle import swizzled, unswizzled

LANES = 32
ROWS = 8  # rows of the matrices that `ldmatrix` fetches, and elements of a row
LANE_AXIS = "threadIdx.x"


@dataclass(frozen=True, slots=True)
class Mma:
    """One shape and type of `mma.sync` with float32 accumulators."""

    name: str
    dtype: str  # the type of the operands in memory
    depth: int  # k of one instruction
    packed: int  # operands in one register
    function: str  # helper of the CUDA dialect
    operand: str  # the helper that packs `packed` elements into a register

    def steps(self, t: Expr) -> tuple[tuple[Expr, ...], ...]:
        """The k of the elements in this lane's registers of an operand: first half, second half."""
        first = tuple(t * self.packed + n for n in range(self.packed))
        return first, tuple(k + self.depth // 2 for k in first)


FIRST_CAPABILITY = 80  # compute capability of a CUDA device that has these instructions: 8.0
INTRINSICS: dict[str, Mma] = {
    m.name: m
    for m in (
        Mma("mma.m16n8k8.tf32", "float32", 8, 1, "at_mma_tf32", "at_tf32"),
        Mma("mma.m16n8k16.f16", "float16", 16, 2, "at_mma_f16", "at_pair"),
        Mma("mma.m16n8k16.bf16", "bfloat16", 16, 2, "at_mma_bf16", "at_pair"),
    )
}

# Products of 16 bits that a multiprocessor adds up in a cycle, by compute capability. Capabilities that are
# not listed count as the slowest. Source: white papers of A100, GA102 and AD102; of H100's 2048 these
# instructions reach 62 % (Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture",
# 2024).
PRODUCTS_A_CYCLE = {80: 1024, 86: 512, 89: 512, 90: 1280}


def of_type(dtype: str) -> Mma:
    """The instruction whose operands have this type, which must have one."""
    return next(m for m in INTRINSICS.values() if m.dtype == dtype)


def products_a_cycle(name: str, capability: int) -> float:
    """Products that a multiprocessor of that capability adds up in a cycle with the instruction `name`."""
    return PRODUCTS_A_CYCLE.get(capability, min(PRODUCTS_A_CYCLE.values())) * INTRINSICS[name].packed / 2


def intrinsic(name: str) -> Mma | Declared | None:
    """The instruction of that name: one of `INTRINSICS`, or "kind.name" of a target that a plug-in brings."""
    if name in INTRINSICS:
        return INTRINSICS[name]
    brought = plugin(name.partition(".")[0])
    found: Declared | None = None if brought is None else brought.intrinsics.get(name)
    return found


@dataclass(frozen=True, slots=True)
class Matrices:
    """An operand that `ldmatrix` fetches."""

    buffer: Buffer
    at: Expr  # the index at which this lane's row begins
    count: int  # how many registers, and also how many 8 × 8 matrices
    turned: bool  # the rows in memory are the columns of the operand

    @property
    def function(self) -> str:
        return f"at_ldmatrix{self.count}{'t' if self.turned else ''}"


@dataclass(frozen=True, slots=True)
class Fragments:
    """The operands of one instruction, for the lane that runs it."""

    intrinsic: Mma
    outer: tuple[For, ...]  # loops over further tiles, outermost first
    accumulator: Buffer
    sums: tuple[Expr, ...]  # (row, col): 0 0, 0 1, 1 0, 1 1
    a: tuple[tuple[Load, ...], ...]  # four registers: (row, half) 0 0, 1 0, 0 1, 1 1
    b: tuple[tuple[Load, ...], ...]  # two: first half, second half
    a_rows: Matrices | None = None  # operand `a` if `ldmatrix` fetches it, else None
    b_rows: Matrices | None = None


def is_tensorized(loop: Stmt) -> bool:
    return isinstance(loop, For) and loop.kind is ForKind.UNROLLED and loop.thread in INTRINSICS


def fragments(loop: For) -> Fragments:
    """The operands with which an intrinsic replaces a loop over k that is marked with it. Raises
    LoweringError when the loop means something else."""
    intrinsic = INTRINSICS[loop.thread]
    if not isinstance(loop.extent, Const) or int(loop.extent.value) != intrinsic.depth:
        _fail(intrinsic, f"loop {loop.var.name!r} has {loop.extent} iterations, not {intrinsic.depth}")
    loops, store = _nest(intrinsic, loop.body)
    x, y = _product(intrinsic, store)
    (index,) = store.indices
    lane = Var(LANE_AXIS, loop.var.type)
    g, t = lane // 4, lane % 4
    a, b = (x, y) if g in _terms(intrinsic, x) else (y, x)
    sa, sb = _terms(intrinsic, a), _terms(intrinsic, b)
    rows = [n for n in loops if sa.get(n.var) == 8 * sa.get(g, 0) != 0 and n.var not in sb]
    cols = [n for n in loops if sb.get(n.var, 0) * 2 == sb.get(t, 0) != 0 and n.var not in sa]
    if not rows or not cols or t in sa or g in sb or loop.var not in sa or loop.var not in sb:
        _fail(
            intrinsic,
            "lane = threadIdx.x must be row lane // 4 of one operand, column lane % 4 * 2 of the other, with "
            "loops of 2 over rows 8 apart and over neighbouring columns",
        )
    row, col = rows[0], cols[0]
    for n in (row, col):
        if not isinstance(n.extent, Const) or int(n.extent.value) != 2:
            _fail(intrinsic, f"loop {n.var.name!r} has {n.extent} iterations, not 2")
    first, second = intrinsic.steps(t)

    def read(load: Load, values: Mapping[Expr, Expr]) -> Load:
        return Load(load.buffer, (_replaced(load.indices[0], values),))

    zero = const(0, lane.type)
    member = lane % ROWS
    half_of_rows, half_of_k = lane // ROWS % 2, lane // (2 * ROWS) * ROWS
    a_rows = _matrices(a, loop.var, {g: member, row.var: half_of_rows, loop.var: half_of_k}, 4, False)
    if a_rows is None:
        a_rows = _matrices(a, g, {g: zero, row.var: half_of_rows, loop.var: member + half_of_k}, 4, True)
    b_rows = _matrices(b, loop.var, {t: zero, col.var: member, loop.var: half_of_rows * ROWS}, 2, False)
    if b_rows is None:
        b_rows = _matrices(b, col.var, {t: zero, col.var: zero, loop.var: lane % (2 * ROWS)}, 2, True)
    return Fragments(
        intrinsic,
        tuple(n for n in loops if n is not row and n is not col),
        store.buffer,
        tuple(
            substitute(index, {row.var: _like(r, row), col.var: _like(c, col)})
            for r in (0, 1)
            for c in (0, 1)
        ),
        tuple(
            tuple(read(a, {row.var: _like(r, row), loop.var: k}) for k in half)
            for half in (first, second)
            for r in (0, 1)
        ),
        tuple(tuple(read(b, {t: zero, col.var: g, loop.var: k}) for k in half) for half in (first, second)),
        a_rows if intrinsic.packed == 2 else None,
        b_rows if intrinsic.packed == 2 else None,
    )


def _matrices(
    load: Load, along: Expr, rows: Mapping[Expr, Expr], count: int, turned: bool
) -> Matrices | None:
    """The operand as aligned rows of eight elements in shared memory; None if its elements lie otherwise.

    along: the term that counts the elements of a row. rows: the terms that give a lane's row.
    """
    plain, swizzle = unswizzled(load.indices[0])
    total = affine(plain)
    if total is None or total.coefficient(along) != 1 or load.buffer.scope is not Scope.SHARED:
        return None
    at = _replaced(load.indices[0], rows)
    if not is_multiple(simplify(unswizzled(at)[0]), ROWS) or (swizzle and swizzle[0] % ROWS):
        return None
    return Matrices(load.buffer, at, count, turned)


def shared_operands(f: Fragments) -> Iterator[tuple[Buffer, Expr, int]]:
    """The loads of a lane from shared memory for one instruction: buffer, first element, number of bytes."""
    for rows in (f.a_rows, f.b_rows):
        if rows is not None:
            yield rows.buffer, rows.at, ROWS * rows.buffer.dtype.bytes
    for register in (*(f.a if f.a_rows is None else ()), *(f.b if f.b_rows is None else ())):
        for load in register:
            if load.buffer.scope is Scope.SHARED:
                yield load.buffer, load.indices[0], load.buffer.dtype.bytes


def _nest(intrinsic: Mma, s: Stmt) -> tuple[list[For], Store]:
    loops: list[For] = []
    lets: dict[Var, Expr] = {}
    while isinstance(s, For | Let):
        if isinstance(s, Let):
            lets[s.var] = substitute(s.value, lets)
        else:
            loops.append(s)
        s = s.body
    if not isinstance(s, Store) or s.mask is not None:
        _fail(intrinsic, f"`{str(s).strip().splitlines()[0]}` is not a sum of products; tails must divide")
    return loops, Store(s.buffer, tuple(substitute(i, lets) for i in s.indices), substitute(s.value, lets))


def _product(intrinsic: Mma, store: Store) -> tuple[Load, Load]:
    match store.value:
        case Binary(Op.ADD, Load(buffer, indices, None), Binary(Op.MUL, x, y)) if (
            buffer is store.buffer and indices[0] is store.indices[0] and str(buffer.dtype) == "float32"
        ):
            a, b = _operand(x), _operand(y)
            if a is not None and b is not None and {str(a.dtype), str(b.dtype)} == {intrinsic.dtype}:
                return a, b
    _fail(intrinsic, f"`{store}` is not a float32 sum of products of {intrinsic.dtype}")


def _operand(e: Expr) -> Load | None:
    inner = e.a if isinstance(e, Cast) else e
    return inner if isinstance(inner, Load) and inner.mask is None else None


def _terms(intrinsic: Mma, load: Load) -> dict[Expr, int]:
    found: Affine | None = affine(unswizzled(load.indices[0])[0])
    if found is None:
        _fail(intrinsic, f"the index of `{load}` is not linear")
    return dict(found.terms)


def _replaced(e: Expr, values: Mapping[Expr, Expr]) -> Expr:
    """The index with whole terms (`threadIdx.x % 4`, a loop's variable) replaced."""
    plain, swizzle = unswizzled(e)
    total = affine(plain)
    assert total is not None
    out: Expr = const(total.constant, e.dtype)
    for term, k in total.terms.items():
        new = values.get(term, term)
        out = out + (new if k == 1 else new * k)
    return swizzled(out, swizzle) if swizzle else out


def _like(value: int, loop: For) -> Expr:
    return const(value, loop.var.type)


def _fail(intrinsic: Mma, what: str) -> NoReturn:
    raise LoweringError(f"tensorize: {intrinsic.name} does not fit: {what}.")

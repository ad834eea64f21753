"""Schedules for GPUs as a person would write them, by name; goldens, compilers and planted faults use them.

CASES["matmul"]()     a Schedule, ready to be lowered for a GPU target
"""

from __future__ import annotations

from schedule_cases import Cases

from autotensor import te
from autotensor.schedule.schedule import AxisLike, Schedule, StageRef, create_schedule
from autotensor.te import Tensor

CASES = Cases()


def product(m: int, n: int, k: int, dtype: str = "float32") -> Tensor:
    a, b = te.placeholder((m, k), name="A", dtype=dtype), te.placeholder((k, n), name="B", dtype=dtype)
    r = te.reduce_axis(k, name="k")
    return te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")


def wide_product(m: int, n: int, k: int, dtype: str, wide: str) -> Tensor:
    """A product of narrow numbers, which are widened before they are multiplied."""
    a, b = te.placeholder((m, k), name="A", dtype=dtype), te.placeholder((k, n), name="B", dtype=dtype)
    r = te.reduce_axis(k, name="k")
    return te.compute(
        (m, n), lambda i, j: te.sum(te.cast(wide, a[i, r]) * te.cast(wide, b[r, j]), axis=r), name="C"
    )


def fetch(s: Schedule, tensor: str, reader: str, axis: str, threads: tuple[int, int], lanes: int) -> StageRef:
    """A copy in shared memory, fetched by all threads, `lanes` elements at once."""
    copy = s.cache_read(tensor, "shared", [reader])
    s[copy].compute_at(s[reader], axis)
    loop = s[copy].fuse("i0", "i1")
    _, ty, tx, lane = s[copy].split(loop, factors=(*threads, lanes))
    s[copy].bind(ty, te.thread_axis("threadIdx.y"))
    s[copy].bind(tx, te.thread_axis("threadIdx.x"))
    if lanes > 1:
        s[copy].vectorize(lane)
    return copy


def bind_plane(stage: StageRef, *axes: AxisLike) -> None:
    """Rows and columns of blocks, then of a block's threads."""
    for axis, thread in zip(axes, ("blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x"), strict=True):
        stage.bind(axis, te.thread_axis(thread))


def tiled(c: Tensor, threads: int = 4, each: int = 2, depth: int = 4, virtual: int = 1) -> Schedule:
    """C in tiles: a tile of a block in shared memory, one of a thread in registers."""
    s = create_schedule(c)
    near = s.cache_write(c, "local")
    by, vy, ty, yi = s[c].split("i", factors=(virtual, threads, each))
    bx, vx, tx, xi = s[c].split("j", factors=(virtual, threads, each))
    s[c].reorder(by, bx, vy, vx, ty, tx, yi, xi)
    bind_plane(s[c], by, bx, ty, tx)
    if virtual > 1:
        s[c].bind(vy, te.thread_axis("vthread"))
        s[c].bind(vx, te.thread_axis("vthread"))
    s[near].compute_at(s[c], tx)
    ko, ki = s[near].split("k", factor=depth)
    s[near].reorder(ko, ki, "i", "j")
    for axis in ("i", "j"):
        s[near].unroll(axis)
    return s


@CASES.case
def elementwise() -> Schedule:
    """A tail: 100 elements in blocks of 32 threads."""
    a = te.placeholder((100,), name="A")
    b = te.compute((100,), lambda i: te.exp(a[i]) + 1.0, name="B")
    s = create_schedule(b)
    outer, inner = s[b].split("i", factor=32)
    s[b].bind(outer, te.thread_axis("blockIdx.x"))
    s[b].bind(inner, te.thread_axis("threadIdx.x"))
    return s


@CASES.case
def one_element_of_each_thread() -> Schedule:
    """Shared memory for one of the three elements of each thread; the last threads have none."""
    a = te.placeholder((16,), name="A")
    b = te.compute((16,), lambda i: a[i] * 2.0, name="B")
    s = create_schedule(b)
    near = s.cache_write(b, "local")
    block, virtual, thread, _ = s[b].split("i", factors=(2, 4, 3))
    s[b].bind(block, te.thread_axis("blockIdx.x"))
    s[b].bind(virtual, te.thread_axis("vthread"))
    s[b].bind(thread, te.thread_axis("threadIdx.x"))
    s[near].compute_at(s[b], thread)
    copy = s.cache_read("A", "shared", [near])
    s[copy].compute_at(s[near], "i")
    return s


@CASES.case
def vectors() -> Schedule:
    """Four elements at once, and a type of 16 bits."""
    a = te.placeholder((64,), name="A", dtype="float16")
    b = te.compute((64,), lambda i: te.maximum(a[i] * 2.0, 0.0), name="B")
    s = create_schedule(b)
    outer, inner, lane = s[b].split("i", factors=(8, 4))
    s[b].bind(outer, te.thread_axis("blockIdx.x"))
    s[b].bind(inner, te.thread_axis("threadIdx.x"))
    s[b].vectorize(lane)
    return s


@CASES.case
def matmul() -> Schedule:
    s = tiled(product(16, 16, 16))
    for tensor in ("A", "B"):
        fetch(s, tensor, "C.local", "k.0", (4, 4), 2)
    return s


@CASES.case
def matmul_with_tails() -> Schedule:
    """No extent is a multiple of anything."""
    s = tiled(product(13, 11, 9))
    for tensor in ("A", "B"):
        fetch(s, tensor, "C.local", "k.0", (4, 4), 1)
    return s


@CASES.case
def padded_rows() -> Schedule:
    """A's tile is kept column by column, columns apart, so that no two threads meet in a bank."""
    s = tiled(product(16, 16, 16))
    copy = fetch(s, "A", "C.local", "k.0", (4, 4), 1)
    s[copy].storage("i1", "i0", pad=1)
    fetch(s, "B", "C.local", "k.0", (4, 4), 1)
    return s


@CASES.case
def aligned_rows() -> Schedule:
    """Rows of A's tile five elements apart, TVM's way."""
    s = tiled(product(16, 16, 16))
    copy = fetch(s, "A", "C.local", "k.0", (4, 4), 1)
    s[copy].storage_align("i0", 4, 1)
    fetch(s, "B", "C.local", "k.0", (4, 4), 1)
    return s


@CASES.case
def swizzled_rows() -> Schedule:
    """Both tiles are swizzled: one in chunks as large as one access, the other in smaller chunks."""
    s = tiled(product(16, 16, 16), depth=8)
    for tensor, chunk in (("A", 2), ("B", 1)):
        s[fetch(s, tensor, "C.local", "k.0", (4, 4), 2)].swizzle(chunk)
    return s


@CASES.case
def copied_ahead() -> Schedule:
    """Copies that CUDA makes asynchronously: A's four turns by 4 bytes, B's two by 8, swizzled."""
    s = tiled(product(8, 8, 24))
    for tensor, turns, lanes in (("A", 4, 1), ("B", 2, 2)):
        copy = fetch(s, tensor, "C.local", "k.0", (4, 4), lanes)
        s[copy].double_buffer(turns)
        if lanes == 2:
            s[copy].swizzle(2)
    return s


@CASES.case
def copied_ahead_by_sixteen_bytes() -> Schedule:
    s = tiled(product(16, 16, 32), depth=8)
    for tensor, chunk in (("A", 4), ("B", 4)):
        copy = s[fetch(s, tensor, "C.local", "k.0", (4, 4), 4)]
        copy.double_buffer(2)
        copy.swizzle(chunk)
    return s


@CASES.case
def copied_ahead_with_tails() -> Schedule:
    """More turns ahead than the loop has; some threads have nothing to copy."""
    s = tiled(product(13, 11, 7))
    for tensor, turns in (("A", 3), ("B", 4)):
        s[fetch(s, tensor, "C.local", "k.0", (4, 4), 1)].double_buffer(turns)
    return s


@CASES.case
def double_buffered() -> Schedule:
    """The next tiles are fetched while this turn's are used; A's three turns, B's two."""
    s = tiled(product(8, 8, 20))
    for tensor, turns in (("A", 3), ("B", 2)):
        copy = fetch(s, tensor, "C.local", "k.0", (4, 4), 1)
        s[copy].double_buffer(turns)
    return s


@CASES.case
def copied_ahead_through_a_copy() -> Schedule:
    """A box that is copied ahead reads from another box, which is filled and emptied twice in each turn."""
    a = te.placeholder((33,), name="A")
    c = te.compute((33,), lambda i: a[i] + te.if_then_else(i + 1 < 33, a[i + 1], 0.0), name="C")
    s = create_schedule(c)
    near = s.cache_write(c, "local")
    by, tx = s[c].split("i", factors=[12])
    s[c].bind(by, te.thread_axis("blockIdx.x"))
    s[c].bind(tx, te.thread_axis("threadIdx.x"))
    s[near].compute_at(s[c], by)
    s[near].set_scope("shared")
    turn, x = s[near].split("i", factors=[5])
    s[near].bind(x, te.thread_axis("threadIdx.x"))
    outer = s.cache_read(a, "shared", [near])
    s[outer].compute_at(s[near], turn)
    part, x = s[outer].split("i0", factors=[3])
    s[outer].bind(x, te.thread_axis("threadIdx.x"))
    s[outer].double_buffer(2)
    inner = s.cache_read(a, "shared", [outer])
    s[inner].compute_at(s[outer], part)
    return s


@CASES.case
def copied_ahead_of_a_copy_ahead() -> Schedule:
    """Boxes that are copied ahead have boxes of their own, copied ahead, too: each thread reads an element of
    one and fetches the next there, with no barrier between."""
    return chain_of_copies(1)


@CASES.case
def copied_ahead_of_parts_ahead() -> Schedule:
    """The same in two parts a box: waits stand in a loop inside."""
    return chain_of_copies(4)


def chain_of_copies(each: int) -> Schedule:
    """Copies of copies of A, and copies of W; a turn reads `each` elements of W."""
    a, w, k = te.placeholder((26,), name="A"), te.placeholder((12,), name="W"), te.reduce_axis(12, name="k")
    c = te.compute((14,), lambda i: te.sum(a[i + k] * w[k], axis=k), name="C")
    s = create_schedule(c)
    near = s.cache_write(c, "local")
    by, tx = s[c].split("i", factors=[4])
    s[c].bind(by, te.thread_axis("blockIdx.x"))
    s[c].bind(tx, te.thread_axis("threadIdx.x"))
    s[near].compute_at(s[c], tx)
    turn, term = s[near].split("k", factors=[each])
    s[near].reorder(turn, term, "i")
    outer = s.cache_read(a, "shared", [near])
    s[outer].compute_at(s[near], turn)
    part, x = s[outer].split("i0", factors=[4])
    s[outer].bind(x, te.thread_axis("threadIdx.x"))
    s[outer].double_buffer(3)
    inner = s.cache_read(a, "shared", [outer])
    s[inner].compute_at(s[outer], part)
    s[inner].bind("i0", te.thread_axis("threadIdx.x"))
    s[inner].double_buffer(3)
    beside = s.cache_read(w, "shared", [near])  # computed after the others
    s[beside].compute_at(s[near], turn)
    s[beside].bind("i0", te.thread_axis("threadIdx.x"))
    s[beside].double_buffer(3)
    return s


@CASES.case
def gathered_from_a_box_ahead() -> Schedule:
    """The places that threads read in a box of shared memory come from memory."""
    rows = te.placeholder((7, 5), name="X")
    table = te.compute((8,), lambda i: te.cast("int32", i * 3 % 7), name="T")
    c = te.compute((8, 5), lambda i, j: rows[table[i], j], name="C")
    s = create_schedule(c)
    turn, x = s[c].split("i", factors=[2])
    s[c].reorder(turn, "j", x)
    s[c].bind(x, te.thread_axis("threadIdx.x"))
    copy = s.cache_read(rows, "shared", [c])
    s[copy].compute_at(s[c], turn)
    _, y = s[copy].split(s[copy].fuse("i0", "i1"), factors=[2])
    s[copy].bind(y, te.thread_axis("threadIdx.x"))
    s[copy].double_buffer(2)
    return s


@CASES.case
def virtual_threads() -> Schedule:
    s = tiled(product(16, 16, 8), threads=2, each=2, virtual=2)
    for tensor in ("A", "B"):
        fetch(s, tensor, "C.local", "k.0", (2, 2), 2)
    return s


@CASES.case
def products_of_bytes() -> Schedule:
    """Four steps of k at once, a vector from each operand: NVRTC makes `dp4a` of them."""
    s = tiled(wide_product(16, 16, 16, "int8", "int32"), depth=8)
    for tensor in ("A", "B"):
        fetch(s, tensor, "C.local", "k.0", (4, 4), 4)
    s["C.local"].unroll("k.1")
    return s


@CASES.case
def row_sums() -> Schedule:
    """A reduction across the threads of a block, some of which have nothing to add."""
    return sums_of_rows(6, 50, 12)


def sums_of_rows(rows: int, columns: int, threads: int) -> Schedule:
    """A block for each row, summed up by all its threads."""
    a = te.placeholder((rows, columns), name="A")
    k = te.reduce_axis(columns, name="k")
    b = te.compute((rows,), lambda i: te.sum(a[i, k], axis=k), name="B")
    s = create_schedule(b)
    ko, ki = s[b].split("k", factor=threads)
    s[b].reorder("i", ki, ko)
    s[b].bind("i", te.thread_axis("blockIdx.x"))
    s[b].bind(ki, te.thread_axis("threadIdx.x"))
    return s


@CASES.case
def warp_sums() -> Schedule:
    """A warp a row: no shared memory where lanes can exchange values."""
    return sums_of_rows(3, 50, 32)


@CASES.case
def block_sums() -> Schedule:
    """Three warps a row: one step through shared memory."""
    return sums_of_rows(2, 200, 96)


@CASES.case
def rows_of_threads() -> Schedule:
    """Four rows a block, each summed up by eight threads, TVM's way."""
    a = te.placeholder((6, 50), name="A")
    k = te.reduce_axis(50, name="k")
    b = te.compute((6,), lambda i: te.max(a[i, k], axis=k), name="B")
    s = create_schedule(b)
    _, ki = s[b].split("k", factor=8)
    part = s.rfactor(b, ki)
    io, ii = s[b].split("i", factor=4)
    s[b].bind(io, te.thread_axis("blockIdx.x"))
    s[b].bind(ii, te.thread_axis("threadIdx.y"))
    inner = s[b].op.reduce_axis[0]
    s[b].bind(inner, te.thread_axis("threadIdx.x"))
    s[part].compute_at(s[b], inner)
    return s


@CASES.case
def arg_max() -> Schedule:
    return arg_max_by(8)


@CASES.case
def arg_max_of_a_warp() -> Schedule:
    return arg_max_by(32)


def arg_max_by(threads: int) -> Schedule:
    """A reduction of pairs, across threads."""
    a = te.placeholder((3, 20), name="A")
    k = te.reduce_axis(20, name="k")

    def join(x: tuple[te.Expr, te.Expr], y: tuple[te.Expr, te.Expr]) -> tuple[te.Expr, te.Expr]:
        first = te.any(x[1] > y[1], te.all(x[1] == y[1], x[0] < y[0]))
        return te.select(first, x[0], y[0]), te.maximum(x[1], y[1])

    best = te.comm_reducer(join, lambda t0, t1: (te.max_value(t0), te.min_value(t1)), name="best")
    at, value = te.compute((3,), lambda i: best((te.cast("int32", k), a[i, k]), axis=k), name="M")
    s = create_schedule([at, value])
    ko, ki = s["M"].split("k", factor=threads)
    s["M"].reorder("i", ki, ko)
    s["M"].bind("i", te.thread_axis("blockIdx.x"))
    s["M"].bind(ki, te.thread_axis("threadIdx.x"))
    return s


@CASES.case
def softmax() -> Schedule:
    """Three stages inside a block of the fourth, in shared memory."""
    a = te.placeholder((6, 50), name="A")
    k, r = te.reduce_axis(50, name="k"), te.reduce_axis(50, name="r")
    high = te.compute((6,), lambda i: te.max(a[i, k], axis=k), name="high")
    e = te.compute((6, 50), lambda i, j: te.exp(a[i, j] - high[i]), name="e")
    total = te.compute((6,), lambda i: te.sum(e[i, r], axis=r), name="total")
    out = te.compute((6, 50), lambda i, j: e[i, j] / total[i], name="S")
    s = create_schedule(out)
    _, lane = s[out].split("j", factor=16)
    s[out].bind("i", te.thread_axis("blockIdx.x"))
    s[out].bind(lane, te.thread_axis("threadIdx.x"))
    for stage, axis in ((total, "r"), (e, "j"), (high, "k")):
        s[stage].compute_at(s[out], "i")
        s[stage].set_scope("shared")
        outer, inner = s[stage].split(axis, factor=16)
        if stage is not e:
            s[stage].reorder(inner, outer)
        s[stage].bind(inner, te.thread_axis("threadIdx.x"))
    return s


@CASES.case
def split_k() -> Schedule:
    """Blocks along the reduction; a second kernel adds up what they computed."""
    c = product(8, 8, 32)
    s = create_schedule(c)
    s[c].split("k", factor=8)
    part = s.rfactor(c, "k.0")
    for stage in (part, c):
        s[stage].bind("i", te.thread_axis("threadIdx.y"))
        s[stage].bind("j", te.thread_axis("threadIdx.x"))
    s[part].bind("k.0", te.thread_axis("blockIdx.x"))
    return s


@CASES.case
def convolution() -> Schedule:
    """A window of the input in shared memory, with padding that was inlined."""
    x, w = te.placeholder((10, 10), name="X"), te.placeholder((3, 3), name="W", constant=True)
    pad = te.compute(
        (12, 12),
        lambda y, z: te.if_then_else(te.all(y >= 1, y < 11, z >= 1, z < 11), x[y - 1, z - 1], 0.0),
        name="pad",
    )
    p, q = te.reduce_axis(3, name="p"), te.reduce_axis(3, name="q")
    out = te.compute((10, 10), lambda i, j: te.sum(pad[i + p, j + q] * w[p, q], axis=[p, q]), name="Y")
    s = create_schedule(out)
    by, bx, ty, tx = s[out].tile("i", "j", 4, 4)
    bind_plane(s[out], by, bx, ty, tx)
    s[pad].compute_at(s[out], bx)
    s[pad].set_scope("shared")
    _, y = s[pad].split("y", factor=4)
    _, z = s[pad].split("z", factor=4)
    s[pad].bind(y, te.thread_axis("threadIdx.y"))
    s[pad].bind(z, te.thread_axis("threadIdx.x"))
    return s


def tensor_cores(c: Tensor, depth: int, instruction: str) -> Schedule:
    """Tiles of 32 × 16 a block: two warps along i, two instructions of 16 × 8 a warp along j."""
    s = create_schedule(c)
    near = s.cache_write(c, "local")
    by, warp, row, g = s[c].split("i", factors=(2, 2, 8))
    bx, tile, t, col = s[c].split("j", factors=(2, 4, 2))
    s[c].reorder(by, bx, warp, row, tile, g, t, col)
    lane = s[c].fuse(g, t)
    bind_plane(s[c], by, bx, warp, lane)
    for axis in (row, tile):
        s[c].bind(axis, te.thread_axis("vthread"))
    s[near].compute_at(s[c], lane)
    ko, ki = s[near].split("k", factor=depth)
    s[near].reorder(ko, ki, "i", "j")
    s[near].tensorize(ki, instruction)
    for tensor in ("A", "B"):
        fetch(s, tensor, near.name, ko.name, (2, 32), 2)
    return s


@CASES.case
def tensor_cores_tf32() -> Schedule:
    return tensor_cores(product(32, 16, 16), 8, "mma.m16n8k8.tf32")


@CASES.case
def tensor_cores_f16() -> Schedule:
    return tensor_cores(wide_product(32, 16, 32, "float16", "float32"), 16, "mma.m16n8k16.f16")


@CASES.case
def tensor_cores_bf16() -> Schedule:
    return tensor_cores(wide_product(32, 16, 32, "bfloat16", "float32"), 16, "mma.m16n8k16.bf16")


@CASES.case
def tensor_cores_swizzled() -> Schedule:
    """Rows of operands where no two meet in a bank, copied ahead."""
    s = tensor_cores_f16()
    for tensor in ("A", "B"):
        copy = s[f"{tensor}.shared:C.local"]
        copy.swizzle(8)
        copy.double_buffer(2)
    return s


@CASES.case
def untouched() -> Schedule:
    """The empty schedule: one thread does everything."""
    return create_schedule(product(3, 4, 5))


TENSOR_CORES = tuple(name for name in CASES if name.startswith("tensor_cores"))  # of CUDA alone
ANYWHERE = tuple(name for name in CASES if name not in TENSOR_CORES)

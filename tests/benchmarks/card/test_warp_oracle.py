"""The simulator's warps against an oracle that was written from NVIDIA's manual alone (warp_oracle.py).

Each test is a few lines of PTX (warp_lines.py). The simulator must report everything that the manual leaves
undefined. The tests of `cp.async` are in test_copy_oracle.py.
"""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
import warp_oracle as oracle
from simulated_card.ptx_memory import CardFault
from simulated_card.ptx_values import NotSimulated
from warp_lines import TILE, Array, execute, words

# -- shfl.sync -----------------------------------------------------------------------------------------------

MODES = ("idx", "up", "down", "bfly")
SHUFFLE = """
    setp.ne.u32 %p1, $in4, 0;
    mov.u32 $out0, 0xdead;
    mov.u32 $out1, 0xdead;
    @%p1 shfl.sync.MODE.b32 $out0|%p2, $in0, $in1, $in2, $in3;
    @%p1 selp.u32 $out1, 1, 0, %p2;
"""


def shuffled_both_ways(mode: str, given: Array) -> tuple[dict[int, tuple[int, bool]], Array]:
    a, b, c, members, active = ([int(x) for x in column] for column in given.T)
    return (
        oracle.shuffled(mode, a, b, c, members[0], [x != 0 for x in active]),
        execute(SHUFFLE.replace("MODE", mode), given, 2),
    )


@pytest.mark.parametrize("mode", MODES)
def test_shuffles_of_a_whole_warp(mode: str) -> None:
    """Every lane with an offset, a clamp and a mask of segments of its own, and bits that do not count."""
    rng = random.Random(mode)
    for _ in range(60):
        given = words(rng, 32, 5)
        given[:, 3:] = (0xFFFFFFFF, 1)
        if rng.random() < 0.5:  # as compilers write it
            given[:, 1], given[:, 2] = rng.randrange(32), rng.choice((0x1F, 0, 0x1C03, 0x181F, 0x1000))
        wanted, found = shuffled_both_ways(mode, given)
        assert found.tolist() == [[wanted[n][0], int(wanted[n][1])] for n in range(32)]


@pytest.mark.parametrize("mode", MODES)
def test_shuffles_of_some_lanes(mode: str) -> None:
    """Only members run the instruction. It is right if they take values from members; otherwise it is a
    fault."""
    rng, undefined, defined = random.Random(mode), 0, 0
    for _ in range(150):
        given = words(rng, 32, 5)
        members = rng.choice((0xFFFF, 0xFFFF0000, 0x55555555, 0xF0F0F0F0, rng.getrandbits(32) | 1))
        given[:, 3] = members
        given[:, 4] = [members >> n & 1 for n in range(32)]
        given[:, 1], given[:, 2] = (
            rng.choice((1, 2, 4, 8, 16, rng.randrange(32))),
            rng.choice((0x1F, 0, 0x1C03)),
        )
        a, b, c, _, active = ([int(x) for x in column] for column in given.T)
        try:
            wanted = oracle.shuffled(mode, a, b, c, members, [x != 0 for x in active])
        except oracle.Undefined:
            undefined += 1
            with pytest.raises(CardFault):
                execute(SHUFFLE.replace("MODE", mode), given, 2)
            continue
        defined += 1
        found = execute(SHUFFLE.replace("MODE", mode), given, 2)
        for n in range(32):
            assert found[n].tolist() == ([wanted[n][0], int(wanted[n][1])] if active[n] else [0xDEAD, 0xDEAD])
    assert min(undefined, defined) > 20


def test_a_shuffle_that_members_do_not_come_to() -> None:
    """A lane that is named and waits elsewhere for ever; a lane that runs it without being named."""
    given = np.zeros((32, 5), np.uint32)
    given[:, 2:] = (0x1F, 0xFFFFFFFF, 1)
    given[7, 4] = 0
    with pytest.raises(CardFault):
        execute(SHUFFLE.replace("MODE", "idx"), given, 2)
    given[:, 3], given[7, 4] = 0xFFFFFF7F, 1
    with pytest.raises(CardFault):
        execute(SHUFFLE.replace("MODE", "idx"), given, 2)


def test_a_shuffle_waits_for_no_lane_that_has_left() -> None:
    """Half of a warp has ended, or does not exist. It may be named, but no value may be taken from it."""
    given = words(random.Random(3), 32, 5)
    given[:, 1:] = (8, 0x1F, 0xFFFFFFFF, 1)
    leave = "setp.gt.u32 %p3, %r1, 15;\n@%p3 ret;\n"
    wanted = [int(given[n ^ 8, 0]) for n in range(16)]
    bfly = SHUFFLE.replace("MODE", "bfly")
    assert execute(leave + bfly, given, 2)[:16, 0].tolist() == wanted
    assert execute(bfly, given[:16], 2)[:, 0].tolist() == wanted
    given[:, 1] = 16
    with pytest.raises(CardFault):
        execute(leave + bfly, given, 2)


# -- ldmatrix ------------------------------------------------------------------------------------------------


SOME = (  # lanes of two warps: all but one; or as many as one warp has, half of them from each
    "setp.ne.u32 %p1, %r1, 37;\n",
    "sub.u32 %r40, %r1, 16; setp.gt.u32 %p1, %r40, 31;\n",
)


def ldmatrix(count: int, turned: bool, guard: str = "") -> str:
    registers = ", ".join(f"$out{n}" for n in range(count))
    kind = ".trans" if turned else ""
    return f"""
    mov.u32 %r10, tile;
    add.s32 %r10, %r10, $in0;
    {guard} ldmatrix.sync.aligned.m8n8.x{count}{kind}.shared.b16 {{{registers}}}, [%r10];
    """


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix(count: int, turned: bool) -> None:
    """Rows anywhere, some of them one row; three warps, each with places of its own."""
    rng = random.Random(count)
    for _ in range(20):
        image = words(rng, TILE // 4 // 2 // 96 * 96).tobytes()
        at = np.array([[16 * rng.randrange(len(image) // 16)] for _ in range(96)], np.uint32)
        at[::7] = at[0]
        found = execute(ldmatrix(count, turned), at, count, image)
        for warp in range(3):
            mine = slice(32 * warp, 32 * warp + 32)
            wanted = oracle.matrices(image, [int(x) for x in at[mine, 0]], count, turned)
            assert found[mine].tolist() == wanted


@pytest.mark.parametrize("count", [1, 2])
def test_ldmatrix_reads_no_further_addresses(count: int) -> None:
    image = words(random.Random(0), 256).tobytes()
    at = np.array([[16 * n] if n < 8 * count else [0x7FFFFF01] for n in range(32)], np.uint32)
    wanted = oracle.matrices(image, [int(x) for x in at[:, 0]], count, False)
    assert execute(ldmatrix(count, False), at, count, image).tolist() == wanted


@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_refuses_what_is_undefined(count: int) -> None:
    image = words(random.Random(0), 256).tobytes()
    good = np.array([[16 * n] for n in range(32)], np.uint32)
    for bad in (8, 4, 2, TILE):
        at = good.copy()
        at[8 * count - 1] = bad
        with pytest.raises(CardFault):
            execute(ldmatrix(count, False), at, count, image)


@pytest.mark.parametrize("some", SOME)
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_by_a_part_of_a_warp_is_a_fault(count: int, some: str) -> None:
    at = np.array([[16 * (n % 32)] for n in range(64)], np.uint32)
    with pytest.raises(CardFault):
        execute(some + ldmatrix(count, False, "@%p1"), at, count, bytes(1024))


@pytest.mark.parametrize("turned", [False, True])
def test_rows_kept_at_exclusive_ors_of_their_number(turned: bool) -> None:
    """Chunk c of row r lies at c xor (r mod 8): written so, fetched so, as fragments of 16 × 16."""
    rng = random.Random(1)
    tile = np.frombuffer(words(rng, 8 * 32).tobytes(), np.uint16).reshape(8, 64)
    given = words(rng, 32, 1)
    given[:, 0] = [rng.randrange(8) for _ in range(32)]  # the chunk that each lane reads in row lane % 8
    lines = f"""
    mov.u32 %r20, tile;
    shr.u32 %r21, %r1, 2;
    and.b32 %r22, %r1, 3;
    shl.b32 %r22, %r22, 1;
    mul.wide.u32 %rd20, %r21, 128;
    add.s64 %rd20, %rd3, %rd20;
    mul.wide.u32 %rd21, %r22, 16;
    add.s64 %rd20, %rd20, %rd21;
    ld.global.v4.u32 {{%r30, %r31, %r32, %r33}}, [%rd20];
    ld.global.v4.u32 {{%r34, %r35, %r36, %r37}}, [%rd20+16];
    xor.b32 %r23, %r22, %r21;
    shl.b32 %r24, %r21, 7;
    mad.lo.s32 %r25, %r23, 16, %r24;
    add.s32 %r25, %r25, %r20;
    st.shared.v4.u32 [%r25], {{%r30, %r31, %r32, %r33}};
    xor.b32 %r26, %r25, 16;
    st.shared.v4.u32 [%r26], {{%r34, %r35, %r36, %r37}};
    bar.sync 0;
    and.b32 %r27, %r1, 7;
    xor.b32 %r28, $in0, %r27;
    shl.b32 %r28, %r28, 4;
    shl.b32 %r29, %r27, 7;
    or.b32 %r28, %r28, %r29;
    add.s32 %r28, %r28, %r20;
    ldmatrix.sync.aligned.m8n8.x4{".trans" if turned else ""}.shared.b16
        {{$out0, $out1, $out2, $out3}}, [%r28];
    """
    plain = tile.tobytes()
    at = [128 * (lane % 8) + 16 * int(given[lane, 0]) for lane in range(32)]
    found = execute(lines, given, 4, image=plain + bytes(-len(plain) % 128))
    assert found.tolist() == oracle.matrices(plain, at, 4, turned)


# -- mma.sync ------------------------------------------------------------------------------------------------

EMITTED = (("m16n8k8", "tf32"), ("m16n8k16", "f16"), ("m16n8k16", "bf16"))
TYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32}


def mma(shape: str, kind: str, guard: str = "") -> str:
    n_a, n_b = counts(shape, kind)
    a, b, c = (
        ", ".join(f"$in{k}" for k in range(first, end))
        for first, end in ((0, n_a), (n_a, n_a + n_b), (n_a + n_b, n_a + n_b + 4))
    )
    return f"""
    {guard} mma.sync.aligned.{shape}.row.col.f32.{kind}.{kind}.f32
        {{$out0, $out1, $out2, $out3}}, {{{a}}}, {{{b}}}, {{{c}}};
    """


def counts(shape: str, kind: str) -> tuple[int, int]:
    """Registers of A and of B."""
    layout = oracle.LAYOUTS[shape, kind]
    return 16 * layout.k * layout.bits // 1024, 8 * layout.k * layout.bits // 1024


def operands(shape: str, kind: str, numbers: Callable[[tuple[int, int]], Array]) -> Array:
    """Registers of A, B and C of each lane, drawn as numbers of that kind: [32, registers]."""
    n = sum(counts(shape, kind)) * 32 // oracle.LAYOUTS[shape, kind].bits
    ab, c = numbers((32, n)).astype(TYPES[kind]), numbers((32, 4)).astype(np.float32)
    return np.concatenate([ab.view(np.uint32), c.view(np.uint32)], axis=1)


def product(shape: str, kind: str, given: Array) -> tuple[Array, Array]:
    n_a, n_b = counts(shape, kind)
    a, b, c = (part.tolist() for part in np.split(given, [n_a, n_a + n_b], axis=1))
    return oracle.product(shape, kind, a, b, c)


@pytest.mark.parametrize(("shape", "kind"), EMITTED)
def test_products_of_small_whole_numbers_are_exact(shape: str, kind: str) -> None:
    """Two warps, each with a product of its own."""
    rng = np.random.default_rng(0)
    for _ in range(15):
        warps = [operands(shape, kind, lambda s: rng.integers(-8, 9, s)) for _ in range(2)]
        found = execute(mma(shape, kind), np.concatenate(warps), 4).view(np.float32)
        wanted = np.concatenate([product(shape, kind, given)[0] for given in warps])
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("shape", "kind"), EMITTED)
def test_products_of_any_numbers_are_near(shape: str, kind: str) -> None:
    rng = np.random.default_rng(1)
    for _ in range(15):
        given = operands(shape, kind, rng.standard_normal)
        if kind == "tf32":
            given[:, :6] = np.vectorize(oracle.to_tf32)(given[:, :6])
        wanted, far = product(shape, kind, given)
        found = execute(mma(shape, kind), given, 4).view(np.float32)
        assert (np.abs(found - wanted) <= far).all()


@pytest.mark.parametrize(("shape", "kind"), EMITTED)
def test_an_infinity_and_a_nan_stay_in_their_row_and_column(shape: str, kind: str) -> None:
    rng = np.random.default_rng(2)
    given = operands(shape, kind, lambda s: rng.integers(1, 9, s))
    n_a, _ = counts(shape, kind)
    one = {"f16": 0x7C00, "bf16": 0x7F80, "tf32": 0x7F800000}[kind]
    given[13, 1] = one  # of A, at row 13 // 4 + 8
    given[22, n_a] = one | one >> 1  # of B, at column 22 // 4
    wanted, _ = product(shape, kind, given)
    found = execute(mma(shape, kind), given, 4).view(np.float32)
    np.testing.assert_array_equal(found, wanted)
    assert all(is_such(wanted).any() for is_such in (np.isnan, np.isinf, np.isfinite))


def test_numbers_become_tf32_as_the_manual_says() -> None:
    """`.rna`: to nearest, ties away from zero. Bits below a tf32 have no meaning, and are not compared."""
    given = np.array([struct.unpack("<I", struct.pack("<f", x))[0] for x in _near_ties()], np.uint32)
    found = execute("cvt.rna.tf32.f32 $out0, $in0;", given.reshape(-1, 1), 1)[:, 0] & 0xFFFFE000
    assert found.tolist() == [oracle.to_tf32(int(x)) for x in given]


def _near_ties() -> list[float]:
    rng = random.Random(0)
    ties = [
        s * (1 + (2 * n + 1) * 2.0**-11) * 2.0**e for s in (1, -1) for n, e in ((0, 0), (1, 5), (1023, -9))
    ]
    near = [x * (1 + d * 2.0**-23) for x in ties for d in (-1, 1)]
    return [*ties, *near, 0.0, -0.0, 1e-40, 3.4e38, *(rng.gauss(0, 1) for _ in range(42))]


@pytest.mark.parametrize("some", SOME)
@pytest.mark.parametrize(("shape", "kind"), EMITTED)
def test_a_product_by_a_part_of_a_warp_is_a_fault(shape: str, kind: str, some: str) -> None:
    given = np.concatenate([operands(shape, kind, np.ones)] * 2)
    with pytest.raises(CardFault):
        execute(some + mma(shape, kind, "@%p1"), given, 4)


# -- dp4a, dp2a ----------------------------------------------------------------------------------------------

SIGNS = [(a, b) for a in ("s32", "u32") for b in ("s32", "u32")]


@pytest.mark.parametrize("name", ["dp4a", "dp2a.lo", "dp2a.hi"])
@pytest.mark.parametrize(("a", "b"), SIGNS)
def test_products_of_bytes(name: str, a: str, b: str) -> None:
    given = words(random.Random(name + a + b), 32, 3)
    found = execute(f"{name}.{a}.{b} $out0, $in0, $in1, $in2;\n", given, 1)[:, 0]
    assert found.tolist() == [oracle.dot(name, a, b, *(int(x) for x in row)) for row in given]


# -- what the simulator does not know ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "bar.warp.sync 0xffffffff;",
        "bar.sync 1, 64;",
        "barrier.sync 1;",
        "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {$out0, $out1}, [%r4];",
        "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32"
        " {$out0, $out1, $out2, $out3}, {$in0, $in1}, {$in0}, {$in0, $in1, $in0, $in1};",
        "cp.async.bulk.commit_group;",
        "cp.async.ca.shared.global [%r4], [%rd3], 8, %p1;",
        "redux.sync.add.u32 $out0, $in0, 0xffffffff;",
    ],
)
def test_what_is_not_simulated_is_refused_by_name(line: str) -> None:
    with pytest.raises(NotSimulated, match=re.escape(line.split()[0].rstrip(";"))):
        execute(line + "\n", np.zeros((32, 2), np.uint32), 0)

"""Instructions of tiles: interpreted, made into objects, and never run on a processor that lacks them."""

from __future__ import annotations

import re

import numpy as np
import pytest
from comparison import Native, interpreted
from dot_products import drawn

from autotensor import te
from autotensor.base.errors import ArtifactError, CodegenError, LoweringError
from autotensor.base.granted.tile_permission import may_use_tiles
from autotensor.base.target import features_of, host, parse
from autotensor.codegen import backend
from autotensor.codegen.dot_instructions import DotInstruction, available, known_dots
from autotensor.codegen.peak import dot_yardstick
from autotensor.ir.expr import Dot
from autotensor.ir.visit import collect
from autotensor.lowering.pipeline import lower
from autotensor.runtime.linking import loader
from autotensor.schedule.schedule import Schedule

TILES = [dot for _, dot in known_dots().items() if dot.rows > 1]
AMX = parse("llvm -mcpu=sapphirerapids")


def product(dot: DotInstruction, m: int, n: int, k: int, columns: int = 0) -> Schedule:
    """C[m, n] in tiles; both operands are packed in the order of the instruction. columns: the number of
    tiles that are summed in registers at the same time; 0: one tile, with sums in memory."""
    acc, a, b = map(str, dot.types)
    A, W = te.placeholder((m, k), a, name="A"), te.placeholder((k, n), b, name="W", constant=True)
    r = te.reduce_axis(k, name="r")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r].astype(acc) * W[r, j].astype(acc), axis=r), name="C")
    s = te.create_schedule(C)
    s.layout(W, [(0, dot.group), (1, dot.columns)], "1.0 0.0 1.1 0.1")
    s.layout(A, [(0, dot.rows), (1, dot.depth)], "0.0 1.0 0.1 1.1")
    near = s.cache_write(C, "local")
    io, ii = s[C].split(C.op.axis[0], factor=16)
    jo, jv, ji = s[C].split(C.op.axis[1], factors=[max(1, columns), 16])
    s[C].reorder(io, jo, ii, jv, ji)
    s[C].vectorize(ji)
    if columns:
        s[C].unroll(ii)
        s[C].unroll(jv)
    s[near].compute_at(s[C], jo)
    ko, km, kq = s[near].split(near.op.reduce_axis[0], factors=[dot.depth // dot.group, dot.group])
    i, (v, j) = near.op.axis[0], s[near].split(near.op.axis[1], factor=16)
    s[near].reorder(ko, v, j, i, km, kq)
    s[near].unroll(v)
    s[near].tensorize(j, dot.name)
    return s


def test_there_are_two() -> None:
    assert [d.name for d in TILES] == ["x86.tdpbf16ps", "x86.tdpbusd"]


@pytest.mark.parametrize("dot", TILES, ids=lambda d: d.name)
def test_tiles_mean_products(dot: DotInstruction) -> None:
    m, n, k = 32, 48, 2 * dot.depth
    s, rng = product(dot, m, n, k), np.random.default_rng(2)
    program = lower(s.state, AMX)
    assert collect(program.run[-1].body, Dot)
    inputs = {"A": drawn(rng, dot.a.dtype.numpy, (m, k)), "W": drawn(rng, dot.b.dtype.numpy, (k, n))}
    got = interpreted(s.dag, program, inputs, 1)["C"]
    if dot.sums.dtype.is_float:
        assert abs(got - inputs["A"].astype("f8") @ inputs["W"].astype("f8")).max() < 1e-4
    else:
        assert np.array_equal(got, (inputs["A"].astype("i8") @ inputs["W"].astype("i8")).astype("i4"))


@pytest.mark.parametrize("dot", TILES, ids=lambda d: d.name)
def test_objects_hold_them_and_say_what_they_need(dot: DotInstruction) -> None:
    s = product(dot, 16, 16, dot.depth)
    made = backend.compile(lower(s.state, AMX), AMX, name="tiles", asm=True)
    assert re.search(rf"\b{dot.name.removeprefix('x86.')}\b", made.texts["asm"])
    assert set(dot.needs) <= set(made.needs)


@pytest.mark.parametrize("dot", TILES, ids=lambda d: d.name)
def test_a_processor_without_them_loads_nothing(dot: DotInstruction, monkeypatch: pytest.MonkeyPatch) -> None:
    s = product(dot, 16, 16, dot.depth)
    made = backend.compile(lower(s.state, AMX), AMX, name="tiles")
    others = dict.fromkeys({*made.needs} - {*dot.needs}, True)
    monkeypatch.setattr(loader, "_host_features", lambda: others)
    with pytest.raises(ArtifactError, match="which this processor lacks"):
        loader.load(made)


@pytest.mark.parametrize("dot", TILES, ids=lambda d: d.name)
def test_a_process_that_gets_no_tiles_loads_nothing(
    dot: DotInstruction, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = product(dot, 16, 16, dot.depth)
    made = backend.compile(lower(s.state, AMX), AMX, name="tiles")
    monkeypatch.setattr(loader, "_host_features", lambda: dict.fromkeys(made.needs, True))
    monkeypatch.setattr(loader, "may_use_tiles", lambda: False)
    with pytest.raises(ArtifactError, match="uses AMX's tiles"):
        loader.check_host(made)
    monkeypatch.setattr(loader, "may_use_tiles", lambda: True)
    loader.check_host(made)


def test_tiles_are_given_to_those_processors_alone_that_have_them() -> None:
    assert not may_use_tiles() or "amx-tile" in features_of(host())


def test_dots_of_a_stated_processor_are_needed_too() -> None:
    """If a processor is known only by its name, the object still says which instruction it contains."""
    from dot_products import product as by_vectors

    dot = known_dots().get("x86.vpdpbusd.512")
    assert "avx512vnni" in backend.compile(lower(by_vectors(dot, 3, 32, 8).state, AMX), AMX, name="v").needs


@pytest.mark.parametrize("columns", [0, 1, 3], ids=["memory", "one", "three"])
@pytest.mark.parametrize("dot", TILES, ids=lambda d: d.name)
def test_native_code_agrees(dot: DotInstruction, columns: int) -> None:
    """With sums in memory, and with those of one tile and of three in registers."""
    if dot not in available(host()):
        pytest.skip("the processor has no tiles, or the system keeps them")
    m, n, k = 32, 96, 3 * dot.depth
    s, rng = product(dot, m, n, k, columns), np.random.default_rng(2)
    inputs = {"A": drawn(rng, dot.a.dtype.numpy, (m, k)), "W": drawn(rng, dot.b.dtype.numpy, (k, n))}
    got = Native(s.dag, lower(s.state, host()), host())(inputs, 1)["C"]
    want = inputs["A"].astype("f8") @ inputs["W"].astype("f8")
    assert abs(got - want).max() <= (1e-3 if dot.sums.dtype.is_float else 0)


def test_a_kernel_of_too_many_tiles_is_an_error() -> None:
    """LLVM would end the process."""
    dot = known_dots().get("x86.tdpbusd")
    s = product(dot, 16, 112, 64, columns=7)
    with pytest.raises(CodegenError, match="9 registers of tiles"):
        backend.compile(lower(s.state, AMX), AMX, name="many")


def test_an_operand_that_is_no_tile_is_an_error() -> None:
    """Neighbours of a group must lie side by side."""
    dot = known_dots().get("x86.tdpbusd")
    A, W = te.placeholder((64, 16), "uint8", name="A"), te.placeholder((64, 16), "int8", constant=True)
    r = te.reduce_axis(64, name="r")
    C = te.compute(
        (16, 16), lambda i, j: te.sum(A[r, i].astype("int32") * W[r, j].astype("int32"), axis=r), name="C"
    )
    s = te.create_schedule(C)
    s.layout(W, [(0, 4), (1, 16)], "1.0 0.0 1.1 0.1")
    ko, kq = s[C].split(C.op.reduce_axis[0], factor=4)
    s[C].reorder(C.op.axis[1], C.op.axis[0], ko, kq)
    s[C].tensorize(C.op.axis[1], dot.name)
    with pytest.raises(LoweringError, match="does not fit"):
        lower(s.state, AMX)


@pytest.mark.parametrize("dot", TILES, ids=lambda d: d.name)
def test_a_yardstick_of_tiles(dot: DotInstruction) -> None:
    if dot not in available(host()):
        pytest.skip("the processor has no tiles, or the system keeps them")
    stick = dot_yardstick(dot, steps=64)
    stick.run(1)
    assert stick.amount == 2.0 * 4 * dot.rows * dot.columns * dot.depth * 64

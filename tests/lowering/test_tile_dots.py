"""Instructions of tiles: interpreted, made into objects, and never run on a processor that lacks them."""

from __future__ import annotations

import re

import numpy as np
import pytest
from comparison import interpreted
from dot_products import drawn

from autotensor import te
from autotensor.base.errors import ArtifactError, CodegenError
from autotensor.base.target import features_of, host, parse
from autotensor.codegen import backend
from autotensor.codegen.dot_instructions import DotInstruction, known_dots
from autotensor.codegen.peak import dot_yardstick
from autotensor.ir.expr import Dot
from autotensor.ir.visit import collect
from autotensor.lowering.pipeline import lower
from autotensor.runtime.linking import loader
from autotensor.runtime.linking.tile_permission import may_use_tiles
from autotensor.schedule.schedule import Schedule

TILES = [dot for _, dot in known_dots().items() if dot.rows > 1]
AMX = parse("llvm -mcpu=sapphirerapids")


def product(dot: DotInstruction, m: int, n: int, k: int) -> Schedule:
    """C[m, n] in tiles; both operands are packed in the order of the instruction."""
    acc, a, b = map(str, dot.types)
    A, W = te.placeholder((m, k), a, name="A"), te.placeholder((k, n), b, name="W", constant=True)
    r = te.reduce_axis(k, name="r")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r].astype(acc) * W[r, j].astype(acc), axis=r), name="C")
    s = te.create_schedule(C)
    s.layout(W, [(0, dot.group), (1, dot.columns)], "1.0 0.0 1.1 0.1")
    s.layout(A, [(0, dot.rows), (1, dot.depth)], "0.0 1.0 0.1 1.1")
    near = s.cache_write(C, "local")
    (io, ii), (jo, ji) = (s[C].split(axis, factor=16) for axis in C.op.axis)
    s[C].reorder(io, jo, ii, ji)
    s[C].vectorize(ji)
    s[near].compute_at(s[C], jo)
    ko, km, kq = s[near].split(near.op.reduce_axis[0], factors=[dot.depth // dot.group, dot.group])
    s[near].reorder(ko, *near.op.axis, km, kq)
    s[near].tensorize(near.op.axis[0], dot.name)
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
    """Of a processor that is known by name only the object still says which instruction is in it."""
    from dot_products import product as by_vectors

    dot = known_dots().get("x86.vpdpbusd.512")
    assert "avx512vnni" in backend.compile(lower(by_vectors(dot, 3, 32, 8).state, AMX), AMX, name="v").needs


@pytest.mark.parametrize("dot", TILES, ids=lambda d: d.name)
def test_registers_hold_no_tiles(dot: DotInstruction) -> None:
    with pytest.raises(CodegenError, match="its operands are tiles"):
        dot_yardstick(dot)

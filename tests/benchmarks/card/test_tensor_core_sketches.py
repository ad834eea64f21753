"""Sketches for tensor cores, executed: what NVRTC makes of them is simulated, all lanes, against NumPy."""

from __future__ import annotations

import random

import pytest
from comparison import Different
from half_products import PRODUCTS, matrices
from ptx_runs import check_ptx
from simulated_card.ptx_memory import CardFault
from test_ptx import LD4, MMA, TOGETHER, Edit, instead, swap, without
from warp_oracle import CHECKED

from autotensor.base.target import parse
from autotensor.codegen.c import nvrtc
from autotensor.codegen.c.resources import check_resources
from autotensor.compiler import compile_trace
from autotensor.schedule.sketch import Sketch
from autotensor.te.dag import ComputeDAG
from schedules.generate import default_trace, generate

pytestmark = pytest.mark.skipif(nvrtc.library() is None, reason=f"NVRTC is not installed. {nvrtc.INSTALL}.")
TARGET = parse("cuda -arch=sm_80")


def sketches(dag: ComputeDAG) -> list[Sketch]:
    return [s for s in generate(dag, TARGET) if "tensor_cores" in s.made_by]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.sample(8)
def test_the_default_is_right(name: str, arch: str) -> None:
    dag = PRODUCTS[name]
    text = check_ptx(dag, default_trace(dag, parse(f"cuda -arch={arch}")), arch)
    assert set(TOGETHER.findall(text)) <= CHECKED
    assert MMA in text
    assert "ldmatrix" in text


@pytest.mark.parametrize("name", ["even", "rows turned", "columns turned", "batched", "convolution"])
def test_copies_go_their_own_way_where_neighbours_are_copied_together(name: str) -> None:
    (first, *_) = sketches(PRODUCTS[name])
    assert "cp.async.cg" in check_ptx(PRODUCTS[name], first.fill(first.defaults()))


def drawn(name: str, count: int) -> None:
    rng = random.Random(name)
    for n in range(count):
        for sketch in sketches(PRODUCTS[name]):
            check_ptx(PRODUCTS[name], sketch.fill(sketch.random(rng)), seed=n)


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.sample(4)
def test_a_drawn_tile_is_right(name: str) -> None:
    drawn(name, 1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", PRODUCTS)
def test_drawn_tiles_are_right(name: str) -> None:
    drawn(name, 20)


def test_no_default_spills() -> None:
    """Tiles of the sizes that matter on a card. The rule's estimate of their registers is large enough."""
    for n in (512, 1024, 4096):
        dag = matrices(n, n, n)
        artifact = compile_trace(dag, default_trace(dag, TARGET), TARGET, "k")
        assert check_resources(artifact, "sm_80")["spill_bytes"] == 0


TILE = (2, 2, 2, 2, 4, 1)  # warps and instructions of each along both sides, so that all of it is there
FAULTS: dict[str, Edit] = {
    "fragment of A: halves of k exchanged": swap(MMA, 1, 1, 2),
    "fragment of B: halves of k exchanged": swap(MMA, 2, 0, 1),
    "accumulators: rows exchanged": swap(MMA, 0, 0, 2),
    "ldmatrix: matrices in another order": swap(LD4, 0, 1, 2),
    "ldmatrix: not turned": instead(r"\.x2\.trans\.", ".x2."),
    "barrier left out": without(1, "bar.sync"),
    "cp.async: one group more is left on its way": instead(r"wait_group 1", "wait_group 2"),
    "cp.async: not committed": instead(r"cp\.async\.commit_group;", ""),
    "cp.async: half of the bytes": instead(r"(cp\.async)\.cg([^;]*), 16", r"\1.ca\2, 8"),
    "swizzle: or in place of xor": instead(r"xor\.b32", "or.b32"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str) -> None:
    dag = PRODUCTS["even"]
    (first, *_) = sketches(dag)
    (tile,) = (h.name for h in first.holes)
    changed: list[bool] = []

    def planted(text: str) -> str:
        changed.append(FAULTS[fault](text) != text)
        return FAULTS[fault](text)

    with pytest.raises((CardFault, Different)):
        check_ptx(dag, first.fill({tile: TILE}), edit=planted)
    assert any(changed)


def test_terms_behind_the_last_are_nothing() -> None:
    """Without zeros behind an odd depth, the products are wrong, because they use bytes that no copy
    wrote."""
    dag = PRODUCTS["terms are left over"]
    (first, *_) = sketches(dag)
    edit = instead(r"(cp\.async\.cg\.shared\.global \[[^]]*\], \[[^]]*\], 16), %r\d+;", r"\1;")
    with pytest.raises((CardFault, Different)):
        check_ptx(dag, first.fill(first.defaults()), edit=edit)

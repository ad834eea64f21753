"""Dot instructions: their results, the loops that they replace, and refusals."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from comparison import Native, interpreted
from dot_products import Array, drawn, product

from autotensor import te
from autotensor.base.errors import LoweringError, ScheduleError
from autotensor.base.target import Target, host, parse
from autotensor.codegen import backend
from autotensor.codegen.dot_instructions import DotInstruction, available, known_dots
from autotensor.instructions.declare import dot as declare
from autotensor.ir.expr import Dot
from autotensor.ir.visit import collect
from autotensor.lowering.pipeline import lower
from autotensor.schedule.schedule import Schedule
from autotensor.te.reference import evaluate

VECTORS = [dot for _, dot in known_dots().items() if dot.rows == 1]
HERE = {dot.name for dot in available(host())}
PROCESSOR = {"x86": "llvm -mcpu=sapphirerapids", "aarch64": "llvm -mcpu=neoverse-v1"}
PLAIN = parse("llvm -mcpu=skylake-avx512")  # LLVM makes vpdpwssd of vpmaddwd where there is one


def target_of(dot: DotInstruction) -> Target:
    return PLAIN if "vpmaddwd" in dot.name else parse(PROCESSOR[dot.name.partition(".")[0]])


def operands(dot: DotInstruction, m: int, n: int, k: int) -> dict[str, Array]:
    rng = np.random.default_rng(1)
    return {"A": drawn(rng, dot.a.dtype.numpy, (m, k)), "W": drawn(rng, dot.b.dtype.numpy, (k, n))}


def right(s: Schedule, inputs: dict[str, Array], got: Array) -> None:
    """Integers equal NumPy's, modulo 2^32; floats are close."""
    wide = "f8" if s.dag.outputs[0].dtype.is_float else "i8"
    want = inputs["A"].astype(wide) @ inputs["W"].astype(wide)
    if wide == "f8":
        assert abs(got - want).max() < 1e-5
    else:
        assert np.array_equal(got, want.astype(np.int32))


@pytest.mark.parametrize("dot", VECTORS, ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(3, 32, 8), (5, 37, 19), (1, 3, 1), (7, 16, 3)])
def test_loops_become_dots_that_mean_the_same(dot: DotInstruction, shape: tuple[int, int, int]) -> None:
    s, inputs = product(dot, *shape), operands(dot, *shape)
    program = lower(s.state, target_of(dot))
    assert collect(program.run[-1].body, Dot)
    right(s, inputs, interpreted(s.dag, program, inputs, 1)["C"])


@pytest.mark.parametrize("dot", [d for d in VECTORS if d.name in HERE], ids=lambda d: d.name)
def test_native_code_agrees(dot: DotInstruction) -> None:
    s, inputs = product(dot, 5, 37, 19), operands(dot, 5, 37, 19)
    for threads in (1, 3):
        right(s, inputs, Native(s.dag, lower(s.state, host()), host())(inputs, threads)["C"])


@pytest.mark.parametrize("dot", VECTORS, ids=lambda d: d.name)
def test_objects_hold_the_instruction(dot: DotInstruction) -> None:
    s = product(dot, 3, 32, 16)
    made = backend.compile(lower(s.state, target_of(dot)), target_of(dot), name="dots", asm=True)
    word = dot.name.split(".")[1].replace("vpdpbsud", "vpdpbusd").replace("sudot", "usdot")
    assert len(re.findall(rf"\b{word}\b", made.texts["asm"])) >= 6


def test_bytes_do_not_saturate() -> None:
    """255 * 127 * 2 leaves 16 bits: vpmaddubsw would give 32767."""
    dot = known_dots().get("x86.vpdpbusd.512")
    s = product(dot, 3, 32, 4)
    a, w = np.full((3, 4), 255, np.uint8), np.full((4, 32), 127, np.int8)
    got = interpreted(s.dag, lower(s.state, target_of(dot)), {"A": a, "W": w}, 1)["C"]
    assert (got == 4 * 255 * 127).all()
    if dot.name in HERE:
        got = Native(s.dag, lower(s.state, host()), host())({"A": a, "W": w}, 1)["C"]
        assert (got == 4 * 255 * 127).all()


@pytest.mark.parametrize("panel", ["1.0 0.0 0.1 1.1", "0.0 0.1 1.0 1.1"])
def test_another_order_of_the_panel_is_an_error(panel: str) -> None:
    s = product(known_dots().get("x86.vpdpbusd.512"), 3, 32, 16, panel)
    with pytest.raises(LoweringError, match=r"tensorize: x86\.vpdpbusd\.512 does not fit"):
        lower(s.state, parse("llvm -mcpu=sapphirerapids"))


def test_other_types_are_an_error() -> None:
    wrong = replace(known_dots().get("x86.vpdpbusd.512"), name="x86.vpdpbsud.512")
    s = product(wrong, 3, 32, 16)
    with pytest.raises(LoweringError, match="It adds products of int8 and uint8 to int32"):
        lower(s.state, parse("llvm -mcpu=sapphirerapids"))


@pytest.mark.parametrize("types", [("float32", "float32"), ("int32", "int32"), ("int8", "int32")])
def test_products_of_other_types_are_an_error_whatever_their_loops(types: tuple[str, str]) -> None:
    operand, acc = types
    a, b = te.placeholder((8, 12), operand, name="A"), te.placeholder((12, 40), operand, name="B")
    k = te.reduce_axis(12, name="k")
    c = te.compute((8, 40), lambda i, j: te.sum(a[i, k].astype(acc) * b[k, j].astype(acc), axis=k), name="C")
    s = te.create_schedule(c)
    s[c].tensorize("j", "x86.vpdpbusd.512")
    with pytest.raises(LoweringError, match=r"tensorize: x86\.vpdpbusd\.512 does not fit"):
        lower(s.state, parse("llvm -mcpu=sapphirerapids"))


def of_bytes() -> tuple[list[te.Tensor], Schedule]:
    a, b = te.placeholder((16, 16), "uint8", name="A"), te.placeholder((16, 32), "int8", name="B")
    k = te.reduce_axis(16, name="k")
    c = te.compute(
        (16, 32), lambda i, j: te.sum(a[i, k].astype("int32") * b[k, j].astype("int32"), axis=k), name="C"
    )
    return [a, b, c], te.create_schedule(c)


@pytest.mark.parametrize("axis", ["j", "k"])
def test_sums_that_no_instruction_adds_to_are_an_error_that_says_the_cure(axis: str) -> None:
    _, s = of_bytes()
    s["C"].tensorize(axis, "x86.vpdpbusd.512")
    with pytest.raises(LoweringError, match="does not fit the loop\n") as e:
        lower(s.state, parse("llvm -mcpu=sapphirerapids"))
    assert re.search(r'instruction="x86\.vpdpbusd\.512"\)(.|\n)*\]\)\.\n', str(e.value))
    assert str(e.value).endswith('s.layout(B, [(0, 4)], "0.0 1 0.1").')


def test_the_cure_of_the_message_works() -> None:
    (_, b, c), s = of_bytes()
    s.layout(b, [(0, 4)], "0.0 1 0.1")
    _, inner = s[c].split("j", factor=16)
    outer, group = s[c].split("k", factor=4)
    s[c].reorder(outer, inner, group)
    s[c].tensorize(inner, "x86.vpdpbusd.512")
    assert collect(lower(s.state, parse("llvm -mcpu=sapphirerapids")).run[-1].body, Dot)


def test_without_a_target_the_message_does_not_name_one() -> None:
    _, s = of_bytes()
    s["C"].tensorize("j", "x86.vpdpbusd.512")
    with pytest.raises(ScheduleError, match=r"no target is named, and some CPUs lack the .* Name the target"):
        lower(s.state)


def test_a_stage_without_a_sum_is_refused_at_once() -> None:
    a = te.placeholder((64,), "int32", name="A")
    s = te.create_schedule(te.compute((64,), lambda i: a[i] + 1, name="C"))
    with pytest.raises(
        ScheduleError,
        match=r"tensorize: stage 'C' has no sum; x86\.vpdpbusd\.512 adds products to sums\. Tens",
    ):
        s["C"].tensorize("i", "x86.vpdpbusd.512")


def test_a_processor_without_it_refuses() -> None:
    s = product(known_dots().get("x86.vpdpbusd.512"), 3, 32, 16)
    with pytest.raises(ScheduleError, match=r"target 'llvm' has no instruction 'x86\.vpdpbusd\.512'"):
        lower(s.state, parse("llvm -mcpu=skylake-avx512"))


def test_other_targets_run_the_loops() -> None:
    s = product(known_dots().get("x86.vpdpbusd.512"), 3, 32, 16)
    program = lower(s.state, parse("interp"))
    inputs = operands(known_dots().get("x86.vpdpbusd.512"), 3, 32, 16)
    assert np.array_equal(interpreted(s.dag, program, inputs, 1)["C"], evaluate(s.dag, inputs)["C"])


def test_what_is_no_sum_of_products_is_no_instruction() -> None:
    A = te.placeholder((4,), "uint8")
    C = te.compute((4,), lambda j: A[j].astype("int32"))
    with pytest.raises(ScheduleError, match=r"instruction 'x86\.none' is not a sum of products"):
        declare("x86.none", C, needs=(), write=lambda *_: "")


def test_names_say_the_family() -> None:
    assert {d.name.partition(".")[0] for d in VECTORS} == set(PROCESSOR)
    assert all(d.depth % d.group == 0 and d.needs for d in VECTORS)

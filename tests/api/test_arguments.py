"""Arguments of build and tune: all inputs or none, models with numbers as shapes, targets as text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autotensor as at
from autotensor import te
from autotensor.base.errors import GraphError, InputError, TargetError, TensorError

A, B = te.placeholder((4,), name="A"), te.placeholder((4,), name="B")
C = te.compute((4,), lambda i: A[i] - B[i], name="C")


@pytest.mark.parametrize("use", [at.build, at.tune])
def test_some_inputs_are_not_listed(use: Any) -> None:
    with pytest.raises(
        TensorError, match=r"lack 'B'\. List every input in calling order, or results alone\."
    ):
        use([A, C])


@pytest.mark.parametrize("what", [C, None, 3, "C"])
def test_arguments_that_are_no_list(what: Any) -> None:
    kind = type(what).__name__
    with pytest.raises(
        InputError, match=rf"the arguments are a {kind}, not a list of tensors\. Write \[A, B, C\]\."
    ):
        at.build(what)
    with pytest.raises(
        InputError, match=rf"schedule and a list of tensors are needed, not Schedule and {kind}"
    ):
        at.lower(te.create_schedule(C), what)
    with pytest.raises(InputError, match=rf"are needed, not {kind} and list\. s = te\.create_schedule"):
        at.lower(what, [A, B, C])


def test_tune_takes_no_schedule() -> None:
    with pytest.raises(
        InputError, match=r"arguments are a Schedule, not a list of tensors\. Write \[A, B, C\]"
    ):
        at.tune(te.create_schedule(C), [A, B, C])


@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ("-num-cores 4", r"target option '-num-cores' is unknown\. Write -threads=N\."),
        ("-device=arm_cpu", r"Leave it out: kernels are always optimised, and call no library\."),
        ("--system-lib", r"Leave it out: kernels"),
        ("-mcpv=znver4", r"Known: -mcpu, -mattr"),
    ],
)
def test_options_of_other_targets(option: str, advice: str) -> None:
    with pytest.raises(TargetError, match=advice):
        at.build([A, B, C], target=f"llvm {option}")


def test_loops_of_threads_are_lowered_for_a_target() -> None:
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] + 1, name="B")
    s = te.create_schedule(b)
    s[b].bind("i", te.thread_axis("threadIdx.x"))
    with pytest.raises(at.AutotensorError, match=r"has no thread axes; .* GPUs have them: target="):
        at.lower(s, [a, b])
    assert "threadIdx.x" in str(at.lower(s, [a, b], target="opencl"))


def test_a_named_instruction_is_lowered_for_a_target() -> None:
    a = te.placeholder((16, 4), "uint8", name="A")
    b = te.placeholder((16, 4), "int8", name="B")
    k = te.reduce_axis(4, name="k")
    c = te.compute(
        (16,), lambda j: te.sum(a[j, k].astype("int32") * b[j, k].astype("int32"), axis=k), name="C"
    )
    s = te.create_schedule(c)
    s[c].tensorize("j", "x86.vpdpbusd.512")
    with pytest.raises(at.AutotensorError, match=r'Name the target: target="llvm" is this machine\.'):
        at.lower(s, [a, b, c])


def test_a_model_without_outputs() -> None:
    with pytest.raises(InputError, match="model 'model' has no outputs"):
        at.compile_model([])


def test_results_alone() -> None:
    a, b = np.float32([1, 2, 3, 4]), np.float32([4, 3, 2, 1])
    np.testing.assert_array_equal(at.build([C])(a, b), a - b)


@pytest.mark.parametrize("shape", ["x", (1, -1), (None, 3), (2.5,)])
def test_shapes_of_a_model_s_input(shape: Any) -> None:
    with pytest.raises(TensorError, match=r"input 'x': shape \(.*\) must consist of non-negative integers\."):
        at.input(shape)


def test_a_target_that_is_not_named() -> None:
    with pytest.raises(
        InputError, match=r"takes further arguments by name only\. For example build\(\[A, B, C\], target="
    ):
        at.build([A, B, C], "llvm")  # type: ignore[arg-type]


def test_a_target_that_is_no_text() -> None:
    with pytest.raises(TargetError, match=r"target 5 is not text\. Write one such as \"llvm "):
        at.build([A, B, C], target=5)  # type: ignore[arg-type]


@pytest.mark.parametrize("trials", [-1, "3", 2.5])
def test_trials_of_a_model(trials: Any) -> None:
    y = at.ops.relu(at.input((1, 3)))
    with pytest.raises(InputError, match=r"trials is .*; it must be a whole number, not negative\."):
        at.compile_model(y, trials=trials)


def test_nodes_are_no_arrays() -> None:
    x = at.input((1, 3))
    for use in (lambda: x[0], lambda: list(x)):
        with pytest.raises(GraphError, match=r"cannot be indexed or iterated over\. Use at\.ops\.slice"):
            use()

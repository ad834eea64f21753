"""Workloads: keys do not depend on names, and the text holds everything."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from autotensor import te
from autotensor.base.errors import InputError
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import evaluate, random_inputs
from autotensor.te.workload import Workload, expr_from_json, expr_to_json


def matmul(
    names: str = "ABC",
    n: int = 4,
    dtype: str = "float32",
    constant: bool = False,
    fn: Any = te.sum,
    swap: bool = False,
) -> Workload:
    a = te.placeholder((n, 8), dtype, name=names[0])
    b = te.placeholder((8, 4), dtype, name=names[1], constant=constant)
    k = te.reduce_axis(8, name="k")
    c = te.compute((n, 4), lambda i, j: fn(a[i, k] * b[k, j], axis=k), name=names[2])
    return Workload.of(ComputeDAG.of([b, a, c] if swap else [a, b, c]), "mm")


class TestKey:
    def test_names_do_not_matter(self) -> None:
        assert matmul("ABC").key == matmul("XYZ").key
        assert matmul("ABC") == matmul("XYZ")
        assert len({matmul("ABC"), matmul("XYZ")}) == 1

    def test_it_is_pinned(self) -> None:
        """Tuning logs use this key. So a change must be intended, and needs a new format number."""
        assert matmul().key == "64080caa67d4a53bbadaa2a36b967194"

    @pytest.mark.parametrize(
        "other",
        [{"n": 5}, {"dtype": "float16"}, {"constant": True}, {"fn": te.max}, {"swap": True}],
        ids=lambda d: next(iter(d)),
    )
    def test_what_is_computed_does(self, other: dict[str, Any]) -> None:
        assert matmul(**other).key != matmul().key

    def test_names_of_reducers_and_tags_do_not_matter(self) -> None:
        def of(name: str, tag: str, half: float = 0.5) -> str:
            mean = te.comm_reducer(lambda x, y: (x + y) * half, lambda t: te.const(0, t), name=name)
            x = te.placeholder((8,), name="x")
            k = te.reduce_axis(8)
            return Workload.of(ComputeDAG.of(te.compute((), lambda: mean(x[k], axis=k), tag=tag))).key

        assert of("mean", "a") == of("halves", "b")
        assert of("mean", "a") != of("mean", "a", half=0.25)

    def test_its_name_is_for_people(self) -> None:
        w = matmul()
        assert Workload.of(w.dag).name == "t0"
        assert Workload("other", w.dag) == w


class TestRoundTrip:
    def same(self, *tensors: te.Tensor) -> None:
        one = Workload.of(ComputeDAG.of(tensors))
        two = Workload.from_text(one.text, one.name)
        assert two.text == one.text
        assert two.dag == one.dag
        inputs = random_inputs(one.dag, 0)
        for name, value in evaluate(one.dag, inputs).items():
            np.testing.assert_array_equal(value, evaluate(two.dag, inputs)[name])

    def test_matmul(self) -> None:
        w = matmul()
        again = Workload.from_text(w.text)
        assert again == w
        assert again.dag == w.dag
        assert json.loads(w.text)["version"] == 1

    def test_infinity_nan_and_minus_zero(self) -> None:
        x = te.placeholder((4,), name="x")
        self.same(te.compute((4,), lambda i: te.maximum(x[i], float("-inf")) + te.const(-0.0)))
        self.same(te.compute((4,), lambda i: te.if_then_else(x[i] > 0, float("nan"), float("inf"))))
        k = te.reduce_axis(4)
        self.same(te.compute((), lambda: te.max(x[k], axis=k)))

    @pytest.mark.parametrize("t", ["float16", "bfloat16", "float64", "int8", "uint64", "bool"])
    def test_types(self, t: str) -> None:
        x = te.placeholder((4,), dtype=t, name="x")
        self.same(te.compute((4,), lambda i: x[i].astype("float32") * 0.1))
        self.same(te.compute((4,), lambda i: te.maximum(x[i], te.max_value(t))))

    def test_every_kind_of_expression(self) -> None:
        x = te.placeholder((4, 4), name="x")
        n = te.placeholder((4,), dtype="int32", name="n")

        def body(i: Any, j: Any) -> Any:
            inside = te.all(i > 0, ~(j == 3))
            value = te.if_then_else(inside, x[i - 1, j + 1], -(te.exp(x[i, j]) ** 2))
            return value + ((n[i] << 2) % 7 | ~n[j]).astype("float32")

        self.same(te.compute((4, 4), body))

    def test_several_outputs_and_pairs(self) -> None:
        x = te.placeholder((4, 8), name="x")
        k = te.reduce_axis(8)

        def larger(p: Any, q: Any) -> Any:
            return te.select(p[1] >= q[1], p[0], q[0]), te.maximum(p[1], q[1])

        argmax = te.comm_reducer(larger, lambda t, u: (te.const(-1, t), te.min_value(u)), name="argmax")
        self.same(*te.compute((4,), lambda i: argmax((k, x[i, k]), axis=k)))
        self.same(*te.compute((4, 8), lambda i, j: (x[i, j], x[i, j] > 0)))

    def test_constant_bits_are_kept(self) -> None:
        for v in (0.1, math.pi, 5e-324, -0.0, float("inf")):
            e = te.const(v, "float64")
            assert expr_from_json(json.loads(json.dumps(expr_to_json(e))), {}) is e
        for n in (True, 2**63 - 1):
            e = te.const(n)
            assert expr_from_json(json.loads(json.dumps(expr_to_json(e))), {}) is e


class TestRefusals:
    def test_another_version(self) -> None:
        data = json.loads(matmul().text)
        data["version"] = 99
        with pytest.raises(InputError, match="workload format 99 is not known here; this version reads 1"):
            Workload.from_text(json.dumps(data))

    def test_damaged_text(self) -> None:
        text = matmul().text
        with pytest.raises(InputError, match="workload text holds an unknown expression"):
            Workload.from_text(text.replace('["b","MUL"', '["b9","MUL"'))
        with pytest.raises(InputError, match="workload reads 'a9' before it is defined"):
            Workload.from_text(text.replace('["l","a0"', '["l","a9"'))

    def test_nodes_of_the_loop_ir(self) -> None:
        from autotensor.ir.expr import Ramp

        with pytest.raises(InputError, match="Ramp cannot be part of a workload"):
            expr_to_json(Ramp(te.const(0), 1, 4))


def test_damaged_text_is_one_sentence() -> None:
    w = Workload("product", matmul().dag)
    assert Workload.from_text(w.text, w.name, w.key) == w
    with pytest.raises(InputError, match=r"the text of workload 'product' is damaged: JSONDecodeError"):
        Workload.from_text(w.text[:-9] + "\x01" + w.text[-8:], "product")
    with pytest.raises(
        InputError, match=r"the text of workload 'product' is damaged: it is not what its key"
    ):
        Workload.from_text(w.text.replace("4", "5", 1), "product", w.key)
    for text in ("[]", '{"version": 1}', '{"version": 1, "inputs": [1]}'):
        with pytest.raises(InputError, match="is damaged"):
            Workload.from_text(text)

"""The NumPy evaluation of DAGs: against hand-written NumPy, the interpreter, and itself in blocks."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pytest

from autotensor import te
from autotensor.base.errors import ArgumentError, TensorError
from autotensor.codegen.interp.interpreter import run_program
from autotensor.ir.expr import Load, Select, const
from autotensor.ir.func import PrimFunc, Program, Role
from autotensor.ir.rewrite import substitute
from autotensor.ir.stmt import For, ForKind, Stmt, Store, seq
from autotensor.ir.visit import loads
from autotensor.te import reference
from autotensor.te.dag import ComputeDAG, StageOp
from autotensor.te.reference import evaluate, random_inputs


def larger(x: Any, y: Any) -> Any:
    return te.select(x[1] >= y[1], x[0], y[0]), te.maximum(x[1], y[1])


argmax = te.comm_reducer(larger, lambda t0, t1: (te.const(-1, t0), te.min_value(t1)), name="argmax")


def out(*tensors: te.Tensor, accumulate: Any = None, **arrays: Any) -> Any:
    dag = ComputeDAG.of(tensors)
    got = evaluate(dag, arrays, accumulate)
    results = [got[b.name] for b in dag.outputs]
    return results[0] if len(results) == 1 else results


def naive(dag: ComputeDAG) -> Program:
    """The loops of the DAG as written, one nest for each stage: an independent computation by the
    interpreter."""

    def nest(s: StageOp) -> Stmt:
        at = tuple(a.var for a in s.axes)
        if s.combiner is None:
            body = seq(*(Store(b, at, e) for b, e in zip(s.buffers, s.bodies, strict=True)))
        else:
            c = s.combiner
            old = {v: Load(b, at) for v, b in zip(c.lhs, s.buffers, strict=True)}
            new = dict(zip(c.rhs, s.bodies, strict=True))
            joined = [substitute(r, {**old, **new}) for r in c.result]
            # else the first store would change the second
            assert len(joined) == 1 or old[c.lhs[0]] not in loads(joined[1])
            update = seq(*(Store(b, at, e) for b, e in zip(s.buffers, joined, strict=True)))
            for a in reversed(s.reduce_axes):
                update = For(a.var, const(0), const(a.extent), ForKind.SERIAL, update)
            start = seq(*(Store(b, at, e) for b, e in zip(s.buffers, c.identity, strict=True)))
            body = seq(start, update)
        for a in reversed(s.axes):
            body = For(a.var, const(0), const(a.extent), ForKind.SERIAL, body)
        return body

    args = [(b, Role.INPUT) for b in dag.inputs]
    args += [(b, Role.OUTPUT) for s in dag.stages for b in s.buffers]
    kernels = tuple(PrimFunc(s.name, tuple(b for b, _ in args), nest(s)) for s in dag.stages)
    return Program(tuple(args), (), kernels)


class TestAgainstNumpy:
    def test_matmul(self) -> None:
        a, b = te.placeholder((5, 7), name="a"), te.placeholder((7, 3), name="b")
        k = te.reduce_axis(7)
        c = te.compute((5, 3), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k))
        x = random_inputs(ComputeDAG.of(c), 0, "integer")
        assert (out(c, **x) == x["a"] @ x["b"]).all()

    def test_convolution_with_padding_reads_nothing_outside(self) -> None:
        x, w = te.placeholder((1, 6, 6, 2), name="x"), te.placeholder((3, 3, 2, 4), name="w")

        def padded(n: Any, h: Any, v: Any, c: Any) -> Any:
            inside = te.all(h >= 1, h < 7, v >= 1, v < 7)
            return te.if_then_else(inside, x[n, h - 1, v - 1, c], 0.0)

        pad = te.compute((1, 8, 8, 2), padded, name="pad")
        r, s, c = (te.reduce_axis(n) for n in (3, 3, 2))
        y = te.compute(
            (1, 6, 6, 4), lambda n, h, v, o: te.sum(pad[n, h + r, v + s, c] * w[r, s, c, o], axis=(r, s, c))
        )
        inputs = random_inputs(ComputeDAG.of(y), 0, "integer")
        p = np.pad(inputs["x"], ((0, 0), (1, 1), (1, 1), (0, 0)))
        want = sum(p[:, i : i + 6, j : j + 6] @ inputs["w"][i, j] for i in range(3) for j in range(3))
        assert (out(y, **inputs) == want).all()

    def test_argmax_with_ties_takes_the_first(self) -> None:
        x = te.placeholder((3, 6), name="x")
        k = te.reduce_axis(6)
        pair = te.compute((3,), lambda i: argmax((k, x[i, k]), axis=k))
        data = np.array([[1, 5, 2, 5, 0, 5], [0, 0, 0, 0, 0, 0], [-3, -2, -1, -4, -5, -6]], "f")
        at, most = out(*pair, x=data)
        assert at.tolist() == data.argmax(1).tolist()
        assert most.tolist() == data.max(1).tolist()
        assert at.dtype == np.int64

    @pytest.mark.parametrize("t", ["int8", "uint8", "int32", "float16", "bfloat16", "float32", "float64"])
    @pytest.mark.parametrize(
        ("reducer", "fn"),
        [(te.sum, np.add), (te.prod, np.multiply), (te.max, np.maximum), (te.min, np.minimum)],
    )
    def test_known_reducers_stay_in_their_type(self, t: str, reducer: Any, fn: Any) -> None:
        x = te.placeholder((4, 6), dtype=t, name="x")
        k = te.reduce_axis(6)
        y = te.compute((4,), lambda i: reducer(x[i, k], axis=k))
        data = random_inputs(ComputeDAG.of(y), 1, "integer")["x"]
        got = out(y, x=data)
        assert got.dtype == data.dtype
        assert (got == fn.reduce(data, axis=1, dtype=data.dtype)).all()

    def test_any_and_all(self) -> None:
        x = te.placeholder((4, 3), dtype="bool", name="x")
        k = te.reduce_axis(3)
        data = np.array([[0, 0, 0], [0, 1, 0], [1, 1, 1], [1, 1, 0]], bool)
        assert (out(te.compute((4,), lambda i: te.any(x[i, k], axis=k)), x=data) == data.any(1)).all()
        assert (out(te.compute((4,), lambda i: te.all(x[i, k], axis=k)), x=data) == data.all(1)).all()

    def test_softmax_in_three_stages_gives_intermediates_too(self) -> None:
        x = te.placeholder((3, 9), name="x")
        k, m = te.reduce_axis(9), te.reduce_axis(9)
        most = te.compute((3,), lambda i: te.max(x[i, k], axis=k), name="most")
        e = te.compute((3, 9), lambda i, j: te.exp(x[i, j] - most[i]), name="e")
        total = te.compute((3,), lambda i: te.sum(e[i, m], axis=m), name="total")
        y = te.compute((3, 9), lambda i, j: e[i, j] / total[i], name="y")
        data = np.random.default_rng(0).standard_normal((3, 9)).astype("f")
        got = evaluate(ComputeDAG.of(y), {"x": data})
        assert list(got) == ["most", "e", "total", "y"]
        np.testing.assert_allclose(got["y"].sum(1), 1, rtol=1e-6)

    def test_gather(self) -> None:
        x = te.placeholder((5, 3), name="x")
        n = te.placeholder((4,), dtype="int32", name="n")
        y = te.compute((4, 3), lambda i, j: x[n[i], j])
        data = np.arange(15, dtype="f").reshape(5, 3)
        at = np.array([4, 0, 0, 2], "i4")
        assert (out(y, x=data, n=at) == data[at]).all()
        with pytest.raises(
            TensorError, match=r"stage 'compute': index 0 of 'x' becomes 9; its shape is \(5, 3\)"
        ):
            out(y, x=data, n=np.array([0, 1, 9, 2], "i4"))

    def test_empty_and_scalar(self) -> None:
        x = te.placeholder((4, 0), name="x")
        k = te.reduce_axis(0)
        assert (
            out(te.compute((4,), lambda i: te.sum(x[i, k], axis=k)), x=np.zeros((4, 0), "f")).tolist()
            == [0] * 4
        )
        assert (
            out(te.compute((4,), lambda i: te.max(x[i, k], axis=k)), x=np.zeros((4, 0), "f")).tolist()
            == [-inf] * 4
        )
        assert out(te.compute((0,), lambda i: x[i, i]), x=np.zeros((4, 0), "f")).shape == (0,)
        s = te.placeholder((), name="s")
        assert out(te.compute((), lambda: s() * 2), s=np.array(3, "f"))[()] == 6

    def test_a_stage_that_reads_nothing(self) -> None:
        assert out(te.compute((2, 3), lambda i, j: i * 10 + j)).tolist() == [[0, 1, 2], [10, 11, 12]]
        assert out(te.compute((2,), lambda i: 7)).tolist() == [7, 7]


class TestMasks:
    X = te.placeholder((4,), name="x")

    def test_reads_of_the_side_not_taken_are_free(self) -> None:
        x = self.X
        y = te.compute((8,), lambda i: te.if_then_else(i < 4, x[i], te.if_then_else(i > 5, x[i - 6], -1.0)))
        assert out(y, x=np.arange(4, dtype="f")).tolist() == [0, 1, 2, 3, -1, -1, 0, 1]

    def test_a_wrong_guard_is_found(self) -> None:
        x = self.X
        y = te.compute((8,), lambda i: te.if_then_else(i < 5, x[i], 0.0), name="y")
        with pytest.raises(TensorError) as caught:
            out(y, x=np.zeros(4, "f"))
        assert str(caught.value) == (
            "stage 'y': index 0 of 'x' becomes 4; its shape is (4,). Guard the read with te.if_then_else."
        )
        low = te.compute((4,), lambda i: x[i - 1], name="low")
        with pytest.raises(TensorError, match="becomes -1"):
            out(low, x=np.zeros(4, "f"))

    def test_infinities_of_the_side_not_taken_do_not_leak(self) -> None:
        x = self.X
        y = te.compute((4,), lambda i: te.if_then_else(x[i] > 0, te.log(x[i]), 0.0))
        assert out(y, x=np.array([-1, 0, 1, 1], "f")).tolist() == [0, 0, 0, 0]


class TestBlocks:
    @pytest.mark.parametrize("points", [1, 7, 40, 1000])
    def test_any_block_gives_the_same(self, points: int, monkeypatch: pytest.MonkeyPatch) -> None:
        x, w = (
            te.placeholder((5, 6, 4), dtype="int32", name="x"),
            te.placeholder((6, 4), dtype="int32", name="w"),
        )
        k, m = te.reduce_axis(6), te.reduce_axis(4)
        y = te.compute((5,), lambda i: te.sum(x[i, k, m] * w[k, m], axis=(k, m)), name="y")
        pair = te.compute((5,), lambda i: argmax((k * 4 + m, x[i, k, m]), axis=(k, m)), name="pair")
        z = te.compute((5, 6, 4), lambda i, j, n: x[i, j, n] + y[i], name="z")
        dag = ComputeDAG.of([z, *pair])
        inputs = random_inputs(dag, 3)
        want = evaluate(dag, inputs)
        monkeypatch.setattr(reference, "POINTS_PER_BLOCK", points)
        for name, value in evaluate(dag, inputs).items():
            assert (value == want[name]).all()

    def test_an_identity_is_applied_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reference, "POINTS_PER_BLOCK", 1)
        from_ten = te.comm_reducer(lambda x, y: x + y, lambda t: te.const(10, t), name="from_ten")
        x = te.placeholder((4,), name="x")
        k = te.reduce_axis(4)
        assert out(te.compute((), lambda: from_ten(x[k], axis=k)), x=np.ones(4, "f"))[()] == 14


class TestReducersOfOnesOwn:
    def test_names_mean_nothing(self) -> None:
        minus = te.comm_reducer(lambda x, y: x - y, lambda t: te.const(0, t), name="sum")
        x = te.placeholder((4,), name="x")
        k = te.reduce_axis(4)
        assert out(te.compute((), lambda: minus(x[k], axis=k)), x=np.ones(4, "f"))[()] == -4

    def test_order_is_that_of_the_axes(self) -> None:
        last = te.comm_reducer(lambda x, y: y, lambda t: te.const(-1, t), name="last")
        x = te.placeholder((3, 2, 5), name="x")
        k, m = te.reduce_axis(2), te.reduce_axis(5)
        y = te.compute((3,), lambda i: last(x[i, k, m], axis=(k, m)))
        data = np.arange(30, dtype="f").reshape(3, 2, 5)
        assert (out(y, x=data) == data[:, 1, 4]).all()


def examples() -> dict[str, Any]:
    x, w = te.placeholder((3, 6), name="x"), te.placeholder((6, 2), name="w")
    h, b = te.placeholder((3, 6), "bfloat16", name="h"), te.placeholder((3, 6), "bool", name="b")
    n, u = te.placeholder((3, 6), "int8", name="n"), te.placeholder((3, 6), "uint8", name="u")
    k = te.reduce_axis(6, name="k")
    return {
        "matmul": te.compute((3, 2), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k)),
        "bfloat16": te.compute((3, 6), lambda i, j: h[i, j] * h[i, 5 - j] + 1),
        "bool": te.compute((3, 6), lambda i, j: te.any(b[i, j], ~b[2 - i, j])),
        "int8": te.compute((3, 6), lambda i, j: (n[i, j] * 50) // 7 - n[i, j] % 5),
        "uint8": te.compute((3, 6), lambda i, j: (u[i, j] - 5) >> 1 | u[i, 0] & 3),
        "mixed": te.compute((3, 6), lambda i, j: te.if_then_else(b[i, j], n[i, j] * u[i, j], j) + i),
        "math": te.compute(
            (3, 6), lambda i, j: te.erf(x[i, j]) + te.sigmoid(x[i, j]) * te.round(x[i, j] * 3)
        ),
        "guarded": te.compute(
            (5, 6), lambda i, j: te.if_then_else(te.all(i > 0, i < 4), x[i - 1, j], float("nan"))
        ),
        "nan": te.compute((3, 6), lambda i, j: te.maximum(te.sqrt(x[i, j]), 0.5)),
        "max": te.compute((3,), lambda i: te.max(x[i, k] * 2, axis=k)),
        "argmax": te.compute((3,), lambda i: argmax((k, x[i, k]), axis=k)),
    }


class TestAgainstTheInterpreter:
    """Two definitions of te that share no code but the math functions."""

    @pytest.mark.parametrize("name", examples())
    def test_same_bits(self, name: str) -> None:
        tensor = examples()[name]
        dag = ComputeDAG.of(tensor)
        for kind in ("integer", "normal") if name != "matmul" else ("integer",):
            inputs = random_inputs(dag, 5, kind)
            want = evaluate(dag, inputs)
            arrays = {
                **inputs,
                **{b.name: np.zeros(b.shape, b.dtype.numpy) for s in dag.stages for b in s.buffers},
            }
            run_program(naive(dag), arrays, strict=True)
            for b in dag.outputs:
                np.testing.assert_array_equal(arrays[b.name], want[b.name])


class TestAccuracy:
    def test_accumulate_computes_in_float64(self) -> None:
        x = te.placeholder((1000,), name="x")
        k = te.reduce_axis(1000)
        y = te.compute((), lambda: te.sum(x[k] * x[k], axis=k), name="y")
        data = np.random.default_rng(0).standard_normal(1000).astype("f")
        exact = out(y, x=data, accumulate=np.float64)
        assert exact.dtype == np.float64
        assert exact == pytest.approx((data.astype(np.float64) ** 2).sum(), rel=1e-14)
        assert out(y, x=data).dtype == np.float32

    def test_accumulate_leaves_integers_alone(self) -> None:
        n = te.placeholder((4,), dtype="int8", name="n")
        got = out(te.compute((4,), lambda i: n[i] + 100), n=np.full(4, 100, "i1"), accumulate=np.float64)
        assert got.dtype == np.int8
        assert got[0] == -56


class TestInputs:
    def dag(self) -> ComputeDAG:
        ts = [
            te.placeholder((50,), t, name=t)
            for t in ("float32", "float16", "bfloat16", "int8", "uint8", "int64", "bool")
        ]
        return ComputeDAG.of(te.compute((50,), lambda i: tuple(t[i] for t in ts)))

    def test_one_seed_gives_one_answer(self) -> None:
        one, two, other = (random_inputs(self.dag(), s) for s in (1, 1, 2))
        assert all((one[n] == two[n]).all() for n in one)
        assert not (one["float32"] == other["float32"]).all()

    def test_types_and_ranges(self) -> None:
        dag = self.dag()
        for b in dag.inputs:
            for kind in ("normal", "integer"):
                a = random_inputs(dag, 0, kind)[b.name]
                assert a.shape == b.shape
                assert a.dtype == b.dtype.numpy
        whole = random_inputs(dag, 0, "integer")
        assert set(whole["float32"].tolist()) == {-2, -1, 0, 1, 2}
        assert set(whole["bfloat16"].tolist()) == {-1, 0, 1}
        assert 0 <= whole["uint8"].min() <= whole["uint8"].max() <= 8
        assert set(whole["bool"].tolist()) == {False, True}

    def test_refusals(self) -> None:
        dag = self.dag()
        with pytest.raises(ArgumentError, match=r"inputs of kind 'odd' are unknown\. Known: normal, integer"):
            random_inputs(dag, 0, "odd")
        with pytest.raises(ArgumentError, match="input 'float32' is missing; given are none"):
            evaluate(dag, {})
        arrays = random_inputs(dag, 0)
        arrays["int8"] = arrays["int8"].astype("i4")
        with pytest.raises(
            ArgumentError, match=r"input 'int8' is int32 of shape \(50,\); expected int8 of shape \(50,\)"
        ):
            evaluate(dag, arrays)


def test_selects_are_lazy_in_stored_programs() -> None:
    """The guard of a read survives as a Select in the DAG."""
    x = te.placeholder((4,), name="x")
    y = te.compute((8,), lambda i: te.if_then_else(i < 4, x[i], 0.0))
    assert isinstance(ComputeDAG.of(y).stages[0].bodies[0], Select)

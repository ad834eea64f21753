"""The DAG: order, names, arguments, canonical form."""

from __future__ import annotations

from typing import Any

import pytest

from autotensor import te
from autotensor.base.errors import TensorError
from autotensor.ir.expr import Load
from autotensor.te.dag import ComputeDAG
from autotensor.te.terms import flops


def matmul(names: str = "ABC", axes: str = "ijk") -> list[te.Tensor]:
    a = te.placeholder((4, 8), name=names[0])
    b = te.placeholder((8, 4), name=names[1])
    k = te.reduce_axis(8, name=axes[2])
    c = te.compute(
        (4, 4), lambda *i: te.sum(a[i[0], k] * b[k, i[1]], axis=k), name=names[2], axis_names=tuple(axes[:2])
    )
    return [a, b, c]


class TestOf:
    def test_a_matmul(self) -> None:
        dag = ComputeDAG.of(matmul())
        assert [b.name for b in dag.inputs] == ["A", "B"]
        assert [b.name for b in dag.outputs] == ["C"]
        assert dag.args == ("A", "B", "C")
        (c,) = dag.stages
        assert [a.name for a in c.axes] == ["i", "j"]
        assert [a.name for a in c.reduce_axes] == ["k"]
        assert [b.name for b in c.reads()] == ["A", "B"]
        assert c.combiner is not None
        assert c.combiner.name == "sum"
        assert (c.points(), flops(c), dag.flops()) == (128, 256, 256)

    def test_placeholders_that_are_not_listed_come_first(self) -> None:
        a, b, c = matmul()
        assert ComputeDAG.of(c).args == ("A", "B", "C")
        assert ComputeDAG.of([c, b]).args == ("A", "C", "B")
        assert [x.name for x in ComputeDAG.of([b, a, c]).inputs] == ["B", "A"]

    def test_producers_come_first_and_each_once(self) -> None:
        x = te.placeholder((4,), name="x")
        y = te.compute((4,), lambda i: x[i] + 1, name="y")
        p = te.compute((4,), lambda i: y[i] * 2, name="p")
        q = te.compute((4,), lambda i: y[i] * p[i], name="q")
        dag = ComputeDAG.of([x, q])
        assert [s.name for s in dag.stages] == ["y", "p", "q"]
        assert [s.name for s in dag.consumers(dag.stage("y"))] == ["p", "q"]
        assert dag.producer(dag.stage("y").buffers[0]) is dag.stage("y")
        assert dag.producer(dag.inputs[0]) is None
        assert [b.name for b in ComputeDAG.of([x, q, y]).outputs] == ["q", "y"]

    def test_long_chains(self) -> None:
        t = x = te.placeholder((1,), name="x")
        for _ in range(3000):
            t = te.compute((1,), lambda i, t=t: t[i] + 1, name="t")
        assert len(ComputeDAG.of([x, t]).stages) == 3000

    def test_names_are_made_unique(self) -> None:
        x, y = te.placeholder((4,), name="x"), te.placeholder((4,), name="x")
        k, m = te.reduce_axis(4, name="k"), te.reduce_axis(4, name="k")
        z = te.compute((4,), lambda i: te.sum(x[k] * y[m], axis=(k, m)), name="x")
        dag = ComputeDAG.of([x, y, z])
        assert dag.args == ("x", "x_1", "x_2")
        assert [a.name for a in dag.stages[0].reduce_axes] == ["k", "k_1"]

    def test_names_of_further_outputs_are_unique_too(self) -> None:
        x = te.placeholder((4,), name="C_v1")
        c = te.compute((4,), lambda i: (x[i], x[i] + 1), name="C")
        assert len(set(ComputeDAG.of([x, *c]).args)) == 3

    def test_bodies_speak_of_buffers_and_axis_names(self) -> None:
        dag = ComputeDAG.of(matmul())
        first = next(n for n in dag.stages[0].loads() if n.buffer.name == "A")
        assert isinstance(first, Load)
        assert [v.name for v in first.indices] == ["i", "k"]  # type: ignore[attr-defined]
        assert first.buffer is dag.inputs[0]

    def test_one_output_of_several(self) -> None:
        x = te.placeholder((4,), name="x")
        _, q = te.compute((4,), lambda i: (x[i], x[i] + 1), name="pair")
        dag = ComputeDAG.of([x, q])
        assert [b.name for b in dag.stages[0].buffers] == ["pair", "pair_v1"]
        assert [b.name for b in dag.outputs] == ["pair_v1"]

    def test_constants(self) -> None:
        x = te.placeholder((4,), name="x")
        w = te.placeholder((4,), name="w", constant=True)
        packed = te.compute((2, 2), lambda o, i: w[o * 2 + i], name="packed")
        y = te.compute((4,), lambda i: x[i] * packed[i // 2, i % 2], name="y")
        dag = ComputeDAG.of([x, w, y])
        assert dag.constants == {"w"}
        assert dag.constant_stages() == {"packed"}
        assert ComputeDAG.of([x, w, y, packed]).constant_stages() == set()  # an output runs at every call

    @pytest.mark.parametrize(
        ("args", "message"),
        [
            (lambda a, b, c: [a, b], "nothing to compute: every argument is a placeholder."),
            (
                lambda a, b, c: [c, te.placeholder((1,), name="z")],
                "placeholder 'z' is listed but nothing reads it.",
            ),
            (lambda a, b, c: [c, 3], "arguments must be tensors, got int. Write [A, B, C], not their ops."),
            (lambda a, b, c: [a, a, b, c], "the arguments list a tensor twice: A, A, B, C."),
        ],
    )
    def test_refusals(self, args: Any, message: str) -> None:
        with pytest.raises(TensorError) as caught:
            ComputeDAG.of(args(*matmul()))
        assert str(caught.value) == message

    def test_an_axis_outside_of_its_reduction(self) -> None:
        a = te.placeholder((4, 8), name="A")
        k = te.reduce_axis(8, name="k")
        c = te.compute((4,), lambda i: a[i, k], name="C")
        with pytest.raises(TensorError) as caught:
            ComputeDAG.of([a, c])
        assert str(caught.value) == (
            "compute 'C' uses axis 'k' outside the reduction that it belongs to. "
            "Pass it as axis= of te.sum (or another reducer)."
        )

    def test_unknown_stages_and_foreign_tensors(self) -> None:
        dag = ComputeDAG.of(matmul())
        with pytest.raises(TensorError, match="there is no stage 'D'; there are C"):
            dag.stage("D")
        with pytest.raises(TensorError, match="tensor 'A' does not belong to this schedule"):
            dag.buffer_of(matmul()[0])


class TestWithArgs:
    def test_another_order(self) -> None:
        a, b, c = matmul()
        dag = ComputeDAG.of([a, b, c]).with_args([c, b, a])
        assert dag.args == ("C", "B", "A")
        assert [x.name for x in dag.inputs] == ["B", "A"]

    def test_an_intermediate_becomes_an_output(self) -> None:
        x = te.placeholder((4,), name="x")
        y = te.compute((4,), lambda i: x[i] + 1, name="y")
        z = te.compute((4,), lambda i: y[i] + 1, name="z")
        dag = ComputeDAG.of([x, z]).with_args([x, y, z])
        assert [b.name for b in dag.outputs] == ["y", "z"]

    def test_refusals(self) -> None:
        a, b, c = matmul()
        with pytest.raises(TensorError, match="the arguments lack 'A', 'B'"):
            ComputeDAG.of([a, b, c]).with_args([c])
        with pytest.raises(TensorError, match="the arguments list a tensor twice: A, A, B, C"):
            ComputeDAG.of([a, b, c]).with_args([a, a, b, c])


class TestCanonical:
    def test_names(self) -> None:
        dag, names = ComputeDAG.of(matmul()).canonical()
        assert dag.args == ("a0", "a1", "t0")
        assert [a.name for a in dag.stages[0].all_axes] == ["i0", "i1", "r0"]
        assert names == {"A": "a0", "B": "a1", "C": "t0", "C.i": "i0", "C.j": "i1", "C.k": "r0"}

    def test_renamed_programs_are_equal_data(self) -> None:
        one = ComputeDAG.of(matmul("ABC", "ijk")).canonical()[0]
        two = ComputeDAG.of(matmul("XYZ", "yxr")).canonical()[0]
        assert one == two
        assert hash(one) == hash(two)
        assert one.stages[0].bodies[0] is two.stages[0].bodies[0]

    def test_names_that_look_canonical_are_not_mixed_up(self) -> None:
        one = ComputeDAG.of(matmul("ABC", "ijk")).canonical()[0]
        two = ComputeDAG.of([*matmul(["t0", "a0", "a1"], ["i1", "i0", "r0"])]).canonical()[0]  # type: ignore[arg-type]
        assert one == two

    def test_it_is_idempotent(self) -> None:
        dag = ComputeDAG.of(matmul()).canonical()[0]
        assert dag.canonical()[0] == dag

    def test_flops_of_constants_do_not_count(self) -> None:
        w = te.placeholder((4,), name="w", constant=True)
        x = te.placeholder((4,), name="x")
        scaled = te.compute((4,), lambda i: w[i] * 2, name="scaled")
        y = te.compute((4,), lambda i: x[i] * scaled[i] + te.exp(x[i]), name="y")
        assert ComputeDAG.of([x, w, y]).flops() == 12

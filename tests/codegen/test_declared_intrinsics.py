"""Declared instructions: which loop nests fit, and the boxes that an instruction gets."""

from __future__ import annotations

import pytest

from autotensor import te
from autotensor.base.errors import LoweringError
from autotensor.codegen.declared_intrinsics import Declared
from autotensor.ir.stmt import Seq, Stmt
from autotensor.lowering.intrinsic_declaration import declared
from autotensor.lowering.pipeline import lower_nest


def product() -> Declared:
    A, B = te.placeholder((4, 8), name="A"), te.placeholder((4, 2), name="B")
    k = te.reduce_axis(4, name="k")
    C = te.compute((8, 2), lambda i, j: te.sum(A[k, i] * B[k, j], axis=k), name="C")
    return declared("toy.gemm", C, [A, B], reset="toy.zero")


def inner(body, shapes=((12, 16), (12, 6)), order=(1, 0, 2), factors=(8, 2, 4)) -> Stmt:
    """The loops inside the tiles of a product of larger matrices; `order` is of the loops i, j, k."""
    A, B = (te.placeholder(s, name=n) for s, n in zip(shapes, "AB", strict=True))
    k = te.reduce_axis(12, name="k")
    C = te.compute((16, 6), lambda i, j: te.sum(body(A, B, i, j, k), axis=k), name="C")
    s = te.create_schedule(C)
    axes = [*C.op.axis, *C.op.reduce_axis]
    pairs = [s[C].split(a, factor=f) for a, f in zip(axes, factors, strict=True)]
    (io, ii), (jo, ji), (ko, ki) = pairs
    s[C].reorder(io, jo, ko, *((ii, ji, ki)[n] for n in order))
    body_ = lower_nest(s.state).run[0].body
    while not isinstance(body_, Seq):
        body_ = body_.body
    return body_.stmts[1].body


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_boxes(order: tuple[int, ...]) -> None:
    c, a, b = product().boxes(inner(lambda A, B, i, j, k: A[k, i] * B[k, j], order=order))
    assert [box.buffer.name for box in (c, a, b)] == ["C", "A", "B"]
    assert [box.extents for box in (c, a, b)] == [(8, 2), (4, 8), (4, 2)]
    steps = [[{v.name: n for v, n in d.terms.items()} for d in box.begin] for box in (c, a, b)]
    assert steps == [[{"C:i.0": 8}, {"C:j.0": 2}], [{"C:k.0": 4}, {"C:i.0": 8}], [{"C:k.0": 4}, {"C:j.0": 2}]]


def test_products_in_the_other_order_fit() -> None:
    assert product().boxes(inner(lambda A, B, i, j, k: B[k, j] * A[k, i]))[1].buffer.name == "A"


@pytest.mark.parametrize(
    "nest",
    [
        lambda: inner(lambda A, B, i, j, k: A[k, i] + B[k, j]),  # another function
        lambda: inner(lambda A, B, i, j, k: A[k, i] * A[k, i]),  # a dimension without its loop
        lambda: inner(lambda A, B, i, j, k: A[i, k] * B[k, j], shapes=((16, 12), (12, 6))),  # not transposed
        lambda: inner(lambda A, B, i, j, k: A[k, i] * B[k, j], factors=(8, 2, 6)),  # another size
        lambda: inner(lambda A, B, i, j, k: A[k, i + j] * B[k, j], shapes=((12, 21), (12, 6))),  # two loops
        lambda: inner(lambda A, B, i, j, k: A[k, 2 * i] * B[k, j], shapes=((12, 31), (12, 6))),  # steps
    ],
)
def test_other_meanings(nest) -> None:
    with pytest.raises(LoweringError, match=r"tensorize: toy.gemm does not fit\n(.|\n)*It computes\n"):
        product().boxes(nest())


def test_a_sums_beginning() -> None:
    gemm = product()
    assert gemm.reset is not None
    box = gemm.begins(gemm.reset)
    assert box is not None
    assert (box.buffer.name, gemm.reset_name) == ("C", "toy.zero")
    assert gemm.begins(gemm.update) is None


def test_a_meaning_is_one_stage() -> None:
    A = te.placeholder((4,), name="A")
    twice = te.compute((4,), lambda i: A[i] * 2.0, name="twice")
    with pytest.raises(LoweringError, match=r"the meaning of toy.two has 2 stages; it must have one"):
        declared("toy.two", te.compute((4,), lambda i: twice[i] + 1.0), [A])

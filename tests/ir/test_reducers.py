"""Reducers joined into one, and each of them alone."""

from __future__ import annotations

from typing import Any

from autotensor import te
from autotensor.ir.expr import Combiner, Reduce
from autotensor.ir.reducers import alone, beside


def reducer(of: Any, dtype: str = "float32") -> Combiner:
    x, k = te.placeholder((8,), dtype, name="x"), te.reduce_axis(8, name="k")
    made = of(x[k], axis=k)
    assert isinstance(made, Reduce)
    return made.combiner


def argmax() -> Combiner:
    def larger(a: Any, b: Any) -> Any:
        return te.select(a[1] >= b[1], a[0], b[0]), te.maximum(a[1], b[1])

    pair = te.comm_reducer(larger, lambda t, u: (te.const(-1, t), te.min_value(u)), name="argmax")
    x, k = te.placeholder((8,), name="x"), te.reduce_axis(8, name="k")
    return pair((k.var, x[k]), axis=k)[0].combiner  # type: ignore[no-any-return]


def test_beside_and_alone_undo_each_other() -> None:
    own = te.comm_reducer(lambda a, b: a + b + a * b, lambda t: te.const(0, t), name="own")
    parts = [reducer(te.sum), reducer(te.max, "int32"), reducer(own)]
    pair = beside(parts)
    found = [alone(pair, n) for n in range(3)]
    assert found[:2] == parts[:2]
    assert found[2] is not None
    assert (found[2].result, found[2].name) == (parts[2].result, "sum_max_own_2")


def test_a_result_that_needs_others_is_not_alone() -> None:
    both = beside([argmax(), reducer(te.sum)])
    assert alone(both, 0) is None
    assert [getattr(alone(both, n), "name", None) for n in (1, 2)] == ["max", "sum"]

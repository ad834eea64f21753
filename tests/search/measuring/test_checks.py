"""The checks of results: tolerances, exactness on integers, poisoned fences, inputs that are indices."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autotensor import te
from autotensor.search.measuring.candidate_memory import Fenced, Need, Slab, same_bytes
from autotensor.search.measuring.checks import (
    compare,
    compare_wide,
    exact_on_integers,
    index_limits,
    make_inputs,
    output_bounds,
)
from autotensor.search.measuring.measure_request import rotation_copies
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import evaluate

F32 = np.dtype(np.float32)


def values(*numbers: float, dtype: str = "float32") -> Any:
    return np.array(numbers, dtype)


@pytest.mark.parametrize(
    ("got", "want", "bound", "complaint"),
    [
        (values(1, 2), values(1, 2), 1e-6, ""),
        (values(1, 2.001), values(1, 2), 1e-3, ""),
        (
            values(1, 2.01),
            values(1, 2),
            1e-3,
            "2.00999999 instead of 2: error 0.0025, allowed 0.001, 1 such elements",
        ),
        (values(0, 1e-7), values(0, 0), 1e-3, "instead of 0: error inf"),
        (values(0, 0), values(0, 0), 1e-3, ""),
        (values(1, math.nan), values(1, 2), 1e-3, "element 1 is nan instead of 2.0, 1 such elements"),
        (values(math.inf, 2), values(1, 2), 1e-3, "element 0 is inf instead of 1.0"),
        (values(math.nan, 2), values(math.inf, 2), 1e-3, ""),  # neither is finite
        (values(5, 2), values(math.inf, 2), 1e-3, "element 0 is 5.0 instead of inf"),
        (values(1, 2), values(1, 2), 0.0, ""),
        (values(-0.0), values(0.0), 0.0, ""),
        (values(1, 2.0000002), values(1, 2), 0.0, "element 1 is 2.00000024 instead of 2"),
        (values(3, 4, dtype="int8"), values(3, -4, dtype="int8"), 0.0, "element 1 is 4 instead of -4"),
        (values(*range(2000), dtype="int64"), values(1, *range(1, 2000), dtype="int64"), math.inf, ""),
        (values(*range(2000), dtype="int64"), values(*[0] * 2000, dtype="int64"), math.inf, "of all differ"),
    ],
)
def test_compare(got: Any, want: Any, bound: float, complaint: str) -> None:
    verdict = compare(got, want, bound)
    assert complaint in verdict.complaint
    assert bool(complaint) == bool(verdict.complaint)
    assert bool(complaint) == (verdict.error > verdict.allowed)


def test_terms_that_cancel_count() -> None:
    """An error of 1e-5 in a result of 1e-4 whose terms were as large as 10."""
    got, want = values(1.1e-4), values(1e-4)
    assert compare(got, want, 1e-4).complaint
    assert not compare(got, want, 1e-4, terms=10.0).complaint
    assert compare(values(1e-2), want, 1e-4, terms=10.0).complaint
    assert not compare(values(1e-7), values(0), 1e-4, terms=10.0).complaint


def test_a_bool_that_was_never_written_is_noticed() -> None:
    (fenced,) = Slab().place([Need("x", (4,), np.dtype(bool))])
    fenced.trap()
    assert compare(fenced.array, np.ones(4, bool), 0.0).complaint
    assert compare(fenced.array, np.zeros(4, bool), 0.0).complaint


def matmul(dtype: str = "float32", length: int = 64) -> Any:
    a, b = te.placeholder((4, length), dtype, "a"), te.placeholder((length, 4), dtype, "b")
    r = te.reduce_axis((0, length), name="r")
    return te.compute((4, 4), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")


def on_x(fn: Callable[[Any], Any]) -> Any:
    x = te.placeholder((8,), name="x")
    return te.compute((8,), lambda i: fn(x[i]), name="y")


@pytest.mark.parametrize(
    ("tensor", "exact"),
    [
        (matmul(), True),
        (matmul("int8"), True),
        (matmul("float16"), True),
        (matmul("float16", 4096), False),  # sums to 4096: more than eleven bits
        (matmul("bfloat16"), True),
        (matmul("bfloat16", 512), False),
        (on_x(lambda x: te.maximum(x * 2.0 + 0.5, 0.0) - 1.0), True),
        (on_x(lambda x: x * 0.1), False),
        (on_x(lambda x: x / 3.0), False),
        (on_x(te.exp), False),
        (on_x(lambda x: te.if_then_else(x > 0.0, x, -x)), True),
    ],
)
def test_exact_on_integers(tensor: Any, exact: bool) -> None:
    dag = ComputeDAG.of([tensor])
    assert exact_on_integers(dag) is exact
    if exact:  # then a wider accumulator changes nothing
        inputs = make_inputs(dag, "integer", 0)
        narrow, wide = evaluate(dag, inputs), evaluate(dag, inputs, accumulate=np.float64)
        for name, array in narrow.items():
            assert np.array_equal(array.astype(np.float64), wide[name].astype(np.float64))


def test_two_convolutions_in_a_row_may_round() -> None:
    a = te.placeholder((2, 4096), name="a")
    r, q = te.reduce_axis((0, 4096), name="r"), te.reduce_axis((0, 4096), name="q")
    b = te.compute((2, 4096), lambda i, j: te.sum(a[i, r] * a[i, j], axis=r), name="b")
    c = te.compute((2,), lambda i: te.sum(b[i, q] * b[i, q], axis=q), name="c")
    assert not exact_on_integers(ComputeDAG.of([c]))


def test_indices_stay_in_bounds() -> None:
    table, which = te.placeholder((7, 3), name="table"), te.placeholder((500,), "int32", "which")
    dag = ComputeDAG.of([te.compute((500, 3), lambda i, j: table[which[i], j], name="out")])
    assert index_limits(dag) == {"which": 7}
    drawn = make_inputs(dag, "normal", 3)["which"]
    assert (drawn.min(), drawn.max()) == (0, 6)


def test_indices_that_are_moved_stay_in_bounds_too() -> None:
    table, which = te.placeholder((7, 3), name="table"), te.placeholder((500,), "int32", "which")
    dag = ComputeDAG.of([te.compute((500, 3), lambda i, j: table[which[i] - 2, j], name="out")])
    drawn = make_inputs(dag, "normal", 3)["which"]
    assert (drawn.min(), drawn.max()) == (2, 8)


def test_positive_inputs() -> None:
    dag = ComputeDAG.of([on_x(te.log)])
    assert (make_inputs(dag, "positive", 0)["x"] >= 0.1).all()


@pytest.mark.parametrize(
    ("got", "exact", "error", "complaint"),
    [
        (values(1, 2), values(1, 2, dtype="float64"), 0.0, ""),
        (values(1, 2.5, -4), values(1, 2.4, -4, dtype="float64"), 0.025, ""),  # of 4, not of 2.4
        (
            values(1, 2.8, -4),
            values(1, 2.4, -4, dtype="float64"),
            0.1,
            "2.79999995 instead of 2.4 in float64",
        ),
        (values(1, 3, 5), values(1, 2, 4, dtype="float64"), 0.25, "allowed 0.05, 2 such elements"),
        (values(0, 0), values(0, 0, dtype="float64"), 0.0, ""),
        (values(0, 1e-9), values(0, 0, dtype="float64"), math.inf, "error inf of the largest element"),
        (values(1, math.nan), values(1, 2, dtype="float64"), math.inf, "element 1 is nan instead of 2.0"),
        (values(1, math.inf), values(1, 1e39, dtype="float64"), 0.0, ""),  # no float32 is larger
        (values(1, 2), values(1, math.inf, dtype="float64"), math.inf, "element 1 is 2.0 instead of inf"),
        (values(math.nan, 2), values(math.nan, 2, dtype="float64"), 0.0, ""),
        (values(dtype="float32"), values(dtype="float64"), 0.0, ""),
    ],
)
def test_compare_wide(got: Any, exact: Any, error: float, complaint: str) -> None:
    verdict = compare_wide(got, exact, 0.05)
    assert verdict.error == pytest.approx(error, rel=1e-6)
    assert complaint in verdict.complaint
    assert bool(complaint) == bool(verdict.complaint) == (verdict.error > verdict.allowed)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bool"])
@pytest.mark.parametrize("bound", [0.0, 1e-4, math.inf])
def test_stretches_find_what_the_whole_shows(
    dtype: str, bound: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every kind of mistake at every place: the verdict does not depend on the size of the parts that are
    checked."""
    want = (np.arange(1, 12) % 5 * (1 if dtype == "bool" else 7)).astype(dtype)
    places = [*range(len(want)), (2, 9), (0, 3, 10)]
    wrong: list[Any] = [want]
    for place in places:
        for value in [1, 0] if dtype in ("int8", "bool") else [1.5, 7.001, math.nan, math.inf]:
            wrong.append(want.copy())
            wrong[-1][np.array(place)] = value
    pairs = [(a, b) for w in wrong for a, b in ((w, want), (want, w))]
    wide = dtype.startswith("float")

    def verdicts() -> list[Any]:
        return [(compare(a, b, bound), compare_wide(a, b, 1e-3) if wide else None) for a, b in pairs]

    whole = verdicts()
    assert any(v.complaint for v, _ in whole)
    for stretch in (1, 2, 4):
        monkeypatch.setattr("autotensor.search.measuring.candidate_memory.STRETCH", stretch)
        assert verdicts() == whole


def test_comparing_needs_no_memory_to_speak_of() -> None:
    """The arrays have eight megabytes each. Formerly, three more arrays of that size were made."""
    want = np.random.default_rng(0).standard_normal(1 << 21, dtype=np.float32)
    got, exact = want * np.float32(1 + 1e-7), want.astype(np.float64)
    for judge in (
        lambda: compare(got, want, 1e-4).complaint,
        lambda: compare(want, want, 0.0).complaint,
        lambda: compare_wide(got, exact, 1e-4).complaint,
        lambda: "" if same_bytes(want, want) else "other bytes",
    ):
        tracemalloc.start()
        assert judge() == ""
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < want.nbytes / 2


def test_arrays_of_other_sizes_are_not_compared() -> None:
    with pytest.raises(ValueError, match="arrays of 2 and 3 elements cannot be compared"):
        compare(values(1, 2), values(1, 2, 3), 1e-4)


def test_a_tolerance_given_is_for_floats_only() -> None:
    dag = ComputeDAG.of([matmul()])
    assert output_bounds(dag, 0.25) == {"c": 0.25}
    assert 0 < output_bounds(dag)["c"] < 1e-4
    assert output_bounds(ComputeDAG.of([matmul("int8")]), 0.25) == {"c": 0.0}


@pytest.mark.parametrize("shift", [0, 1])
def test_fences(shift: int) -> None:
    slab = Slab()
    for _ in range(2):  # the second time in used memory
        x, w = slab.place([Need("x", (5, 3), F32), Need("w", (9,), F32, read_only=True)], shift)
        assert [f.address % 64 for f in (x, w)] == [4 * shift] * 2
        assert (x.complaint(), w.complaint()) == ("", "")
        x.trap()
        w.array[...] = 1.0
        assert np.isnan(x.array).all()
        assert np.isnan(beyond(w)).all()  # a stray read spoils the answer
        assert not np.isnan(beyond(x)).any()
        x.after[3] = 0
        assert x.complaint() == "it wrote up to 4 bytes beyond the end of 'x'"
        w.before[-4:] = 0
        assert w.complaint() == "it wrote up to 4 bytes before the start of 'w'"
        x.array[...] = 7.0


def beyond(f: Fenced) -> Any:
    return f.after[:64].view(F32)


def test_weights_rotate_through_more_than_the_last_cache() -> None:
    from autotensor.base.target import host_caches

    last = host_caches()[-1]
    for size in (1 << 16, 1 << 20, 9 << 20):
        copies = rotation_copies(size, "graph")
        assert 1 <= copies <= 512
        assert copies * size <= 160 << 20
        assert copies * size > 2 * last or copies == 512 or (copies + 1) * size > 160 << 20
    assert rotation_copies(1 << 30, "graph") == 1

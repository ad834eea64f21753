"""Functions of run-time extents: one program, called with arrays of any extent in the range."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotensor as at
from autotensor import te
from autotensor.base.errors import ArgumentError, InputError
from autotensor.codegen.llvm import backend as llvm_backend
from autotensor.runtime.open_module import OpenModule

Array = np.ndarray[Any, Any]
n = te.var("n", range=(1, 70))
m = te.var("m", range=(1, 50))
k8 = te.var("k", range=(8, 64), multiple_of=8)
EXTENTS = (
    (1, 1, 8),
    (70, 50, 64),
    (1, 50, 16),
    (70, 1, 24),
    (13, 31, 8),
    (6, 16, 40),
    (64, 48, 56),
    (7, 33, 64),
)


def whole(rng: np.random.Generator, *shape: int) -> Array:
    return rng.integers(-4, 5, shape).astype(np.float32)


def product(rows: Any, columns: Any, terms: Any) -> list[te.Tensor]:
    a, b = te.placeholder((rows, terms), name="A"), te.placeholder((terms, columns), name="B")
    k = te.reduce_axis(terms, name="k")
    return [a, b, te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]


def softmax(rows: Any, columns: Any) -> list[te.Tensor]:
    x = te.placeholder((rows, columns), name="x")
    k, r = te.reduce_axis(columns, name="k"), te.reduce_axis(columns, name="r")
    top = te.compute((rows,), lambda i: te.max(x[i, k], axis=k), name="top")
    e = te.compute((rows, columns), lambda i, j: te.exp(x[i, j] - top[i]), name="e")
    total = te.compute((rows,), lambda i: te.sum(e[i, r], axis=r), name="total")
    return [x, te.compute((rows, columns), lambda i, j: e[i, j] / total[i], name="y")]


def layer_norm(rows: Any, columns: Any) -> list[te.Tensor]:
    x = te.placeholder((rows, columns), name="x")
    k, r = te.reduce_axis(columns, name="k"), te.reduce_axis(columns, name="r")
    count = te.cast("float32", columns)
    s = te.compute((rows,), lambda i: te.sum(x[i, k], axis=k), name="s")
    d = te.compute((rows, columns), lambda i, j: x[i, j] - s[i] / count, name="d")
    v = te.compute((rows,), lambda i: te.sum(d[i, r] * d[i, r], axis=r), name="v")
    return [x, te.compute((rows, columns), lambda i, j: d[i, j] * te.rsqrt(v[i] / count + 1e-5), name="y")]


def images(batch: Any) -> list[te.Tensor]:
    x, w = te.placeholder((batch, 9, 9, 8), name="x"), te.placeholder((3, 3, 8, 16), name="w", constant=True)
    r, q, c = (te.reduce_axis(e, name=a) for a, e in (("r", 3), ("q", 3), ("c", 8)))
    y = te.compute(
        (batch, 7, 7, 16),
        lambda b, i, j, o: te.sum(x[b, i + r, j + q, c] * w[r, q, c, o], axis=[r, q, c]),
        name="y",
    )
    return [x, w, y]


@pytest.mark.parametrize("columns", [50, 96])
def test_products_of_every_number_of_rows(columns: int) -> None:
    """Each number of rows in the last tile, in the first block of tiles and after it. Nothing is stored after
    the last row."""
    rows, r = te.var("rows", range=(1, 512)), np.random.default_rng(5)
    a, k = te.placeholder((rows, 32), name="A"), te.reduce_axis(32, name="k")
    w = te.placeholder((32, columns), name="W", constant=True)
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * w[k, j], axis=k), name="C")
    values = whole(r, 32, columns)
    f = at.build([a, w, te.compute((rows, columns), lambda i, j: c[i, j] + 1.0, name="D")]).bind(W=values)
    for count in (*range(1, 130), 255, 256, 257, 509, 511, 512):
        x, given = whole(r, count, 32), np.full((count + 16, columns), 7, np.float32)
        f(x, out=given[:count])
        assert np.array_equal(given[:count], x @ values + 1), count
        assert (given[count:] == 7).all(), count


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "dims",
    [(n, m, k8), (n, 48, 64), (64, m, 32), (24, 40, k8)],
    ids=["all open", "rows", "columns", "terms"],
)
def test_products_are_exact_at_all_extents(dims: tuple[Any, Any, Any], threads: int) -> None:
    f = at.build(product(*dims), target=f"llvm -threads={threads}")
    rng = np.random.default_rng(0)
    for chosen in EXTENTS:
        rows, columns, terms = (d if isinstance(d, int) else c for d, c in zip(dims, chosen, strict=True))
        a, b = whole(rng, rows, terms), whole(rng, terms, columns)
        assert np.array_equal(f(a, b), a @ b), chosen


@pytest.mark.parametrize("threads", [1, 3])
def test_rows_of_any_length(threads: int) -> None:
    soft = at.build(softmax(n, m), target=f"llvm -threads={threads}")
    norm = at.build(layer_norm(n, m), target=f"llvm -threads={threads}")
    rng = np.random.default_rng(1)
    for rows, columns, _ in EXTENTS:
        x = whole(rng, rows, columns)
        e = np.exp(x - x.max(1, keepdims=True))
        np.testing.assert_allclose(soft(x), e / e.sum(1, keepdims=True), rtol=1e-5)
        want = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
        np.testing.assert_allclose(norm(x), want, rtol=1e-4, atol=1e-4)


def test_batches_of_a_convolution_have_the_bits_of_each_alone() -> None:
    b = te.var("b", range=(1, 6))
    w = whole(np.random.default_rng(2), 3, 3, 8, 16)
    f = at.build(images(b)).bind(w=w)
    for batch in range(1, 7):
        x = whole(np.random.default_rng(batch), batch, 9, 9, 8)
        assert np.array_equal(f(x), at.build(images(batch)).bind(w=w)(x))


def test_no_extent_is_compiled_for(monkeypatch: pytest.MonkeyPatch) -> None:
    f = at.build(product(n, m, k8))

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("something was compiled")

    monkeypatch.setattr(llvm_backend, "build", refuse)
    for rows, columns, terms in EXTENTS:
        f(np.ones((rows, terms), np.float32), np.ones((terms, columns), np.float32))
    with pytest.raises(AssertionError):
        at.build(product(3, 4, 5), target="llvm -threads=1 -mcpu=x86-64-v2")


def test_main_loops_have_the_register_tiles_of_the_greatest_extent() -> None:
    def tile(rows: Any) -> str:
        f = at.build(product(rows, 64, 64), target="llvm -threads=1")
        found = re.search(r"register\(.*?\)", f.source("ir"))
        assert found is not None
        return found[0]

    assert tile(n) == tile(70)


def test_outputs_may_be_given_and_named() -> None:
    f = at.build(product(n, m, k8))
    a, b, c = np.ones((3, 8), np.float32), np.ones((8, 5), np.float32), np.zeros((3, 5), np.float32)
    assert f(a, b, c) is None
    assert (c == 8).all()
    assert f(B=b, A=a, out=c) is c
    assert f(a, B=b).shape == (3, 5)
    assert len(f.time([a, b], repeat=2, min_seconds=0.001)) == 2


def test_it_is_saved_pickled_copied_and_called_by_many(tmp_path: Path) -> None:
    f = at.build(images(te.var("b", range=(1, 6)))).bind(w=np.ones((3, 3, 8, 16), np.float32))
    f.save(tmp_path / "open.atm")
    loaded = at.load(tmp_path / "open.atm")
    assert isinstance(loaded, OpenModule)
    assert "x: float32[b, 9, 9, 8]" in repr(loaded)
    assert "b from 1 to 6" in repr(loaded)
    for g in (loaded, pickle.loads(pickle.dumps(f)), copy.copy(f), copy.deepcopy(f)):
        assert (g(np.ones((5, 9, 9, 8), np.float32)) == 72).all()
    with ThreadPoolExecutor(4) as pool:
        shapes = [np.ones((1 + i % 6, 9, 9, 8), np.float32) for i in range(100)]
        assert all(
            (y == 72).all() and len(y) == len(x) for x, y in zip(shapes, pool.map(f, shapes), strict=True)
        )


def test_it_is_neither_one_of_several_shapes_nor_a_c_library(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="by_shape: C takes a range of shapes by itself"):
        at.by_shape([PRODUCT])
    with pytest.raises(InputError, match="a C library takes one set of shapes"):
        at.write_c(PRODUCT, tmp_path)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: f(z(71, 8), z(8, 2)), "axis 0 of argument 'A' is 71; it is compiled for n from 1 to 70."),
        (lambda f: f(z(0, 8), z(8, 2)), "axis 0 of argument 'A' is 0; it is compiled for n from 1 to 70."),
        (lambda f: f(z(3, 12), z(12, 2)), "'A' is 12; it is compiled for k from 8 to 64 in steps of 8."),
        (
            lambda f: f(z(3, 8), z(16, 2)),
            "argument 'B' has shape [16, 2]; expected [k, m], which is [8, 2] for n = 3 (axis 0 of 'A'), "
            "k = 8 (axis 1 of 'A'), m = 2 (axis 1 of 'B').",
        ),
        (lambda f: f(z(3), z(8, 2)), "argument 'A' has 1 axis; expected [n, k]."),
        (lambda f: f(z(3, 8)), "got 1, without B"),
        (lambda f: f(z(3, 8), z(8, 2), z(3, 3)), "argument 'C' is float32[3, 3]; expected float32[3, 2]."),
        (lambda f: f(z(3, 8).astype(np.float64), z(8, 2)), "argument 'A' is float64[3, 8]; expected float32"),
    ],
)
def test_refusals(call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        call(PRODUCT)
    assert message in str(caught.value)


def z(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


PRODUCT = at.build(product(n, m, k8))


def test_the_signature_names_the_extents_that_a_call_chooses() -> None:
    f = at.build(softmax(n, m))
    assert str(f.signature) == "(x: float32[n, m]) -> (y: float32[n, m])"
    assert f.signature.inputs[0].shape == (70, 50)

"""A vector that is added to every row of a register tile is computed once."""

from __future__ import annotations

import re

import numpy as np

import autotensor as at
from autotensor import te

RNG = np.random.default_rng(0)


def product(value):
    """A product of bytes, and a function of a sum and of numbers for its column."""
    X = te.placeholder((56, 64), "int32", name="X")
    W = te.placeholder((64, 32), "int32", name="W", constant=True)
    B, C = (te.placeholder((32,), "int32", name=n, constant=True) for n in "BC")
    k = te.reduce_axis(64, name="k")
    S = te.compute((56, 32), lambda i, j: te.sum(X[i, k] * W[k, j], axis=k), name="S")
    Y = te.compute((56, 32), lambda i, j: value(S[i, j], B[j], C[j]), name="Y")
    return at.build([X, W, B, C, Y], target="llvm -threads=1")


FORMS = (
    lambda s, b, c: s - c * 120 + b,
    lambda s, b, c: b - (c * 3 - s),
    lambda s, b, c: (s - b) - c,
    lambda s, b, c: b - s - c,
    lambda s, b, c: s + s - b + c,
)


def test_all_forms_have_their_bits():
    x, w, b, c = (RNG.integers(-(2**31), 2**31, n, np.int32) for n in ((56, 64), (64, 32), 32, 32))
    with np.errstate(over="ignore"):
        s = x @ w
        for form in FORMS:
            got = product(form).bind(W=w, B=b, C=c)(x)
            assert np.array_equal(got, form(s, b, c).astype(np.int32))


def test_a_zero_point_and_a_bias_are_one_addition():
    text = product(FORMS[0]).source("llvm")
    run = text[text.index("@run.") :]
    rows = re.findall(r"store <\d+ x i32>", run)
    assert len(rows) > 4
    # at most four vectors of columns, or two in the loop and in the rows behind it
    assert len(re.findall(r"sub <\d+ x i32>", run)) <= 4

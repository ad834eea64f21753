"""Derivatives of expressions: their form, every function of te, ties."""

from __future__ import annotations

import numpy as np
import pytest
from finite_differences import check_gradients

from autotensor import te
from autotensor.autodiff import gradients
from autotensor.autodiff.derivatives import FLAT, SLOPES, joined, partials
from autotensor.base.dtype import float64
from autotensor.graph.build import call, input
from autotensor.graph.evaluate import evaluate
from autotensor.graph.ir import Graph
from autotensor.ir.expr import MATH, Load, Var
from autotensor.ir.func import Buffer

A, B, G = (Load(Buffer(n, (8,), float64), (Var("i"),)) for n in "abg")

# where each function is smooth
RANGES = {
    "log": (0.5, 3), "log2": (0.5, 3), "log10": (0.5, 3), "log1p": (-0.5, 3), "sqrt": (0.5, 3),
    "rsqrt": (0.5, 3), "asin": (-0.8, 0.8), "acos": (-0.8, 0.8), "atanh": (-0.8, 0.8), "acosh": (1.2, 3),
    "pow": (0.5, 2), "tan": (-1, 1),
}  # fmt: skip
BINARY = ("pow", "atan2", "fmod", "floordiv", "floormod")


def shown(body: te.Tensor, of: Load) -> str:
    return str(joined(partials(body, G)[of]))


def test_a_product_rule_on_paper() -> None:
    assert shown(A * te.exp(B), A) == "g[i] * exp(b[i])"
    assert shown(A * te.exp(B), B) == "g[i] * a[i] * exp(b[i])"


def test_each_distinct_element_gets_the_sum_of_its_uses() -> None:
    assert shown(A * A, A) == "g[i] * a[i] + g[i] * a[i]"


def test_a_derivative_stands_under_the_conditions_of_its_reading() -> None:
    i = Var("i")
    body = te.select(i >= 1, te.select(i < 7, A * B, 0.0), A)
    guarded = partials(body, G)[A]
    assert [len(conditions) for conditions in guarded] == [1, 2] or len(guarded) == 2
    assert "if" in shown(body, A) or "select" in shown(body, A)


def test_integers_and_comparisons_pass_nothing_on() -> None:
    body = te.select(A > B, te.cast("float64", te.cast("int32", A)), 2.0)
    assert partials(body, G) == {}


@pytest.mark.parametrize("name", [m for m in MATH if m not in ("isnan", "isinf")])
def test_every_function_of_te_equals_finite_differences(name: str) -> None:
    rng = np.random.default_rng(MATH.index(name))
    low, high = RANGES.get(name, (-2.0, 2.0))
    count = 2 if name in BINARY else 1
    xs = [input((5,), "float64", f"x{n}") for n in range(count)]
    y = call(lambda *t: te.compute((5,), lambda i: te.call(name, *(x[i] for x in t)), name="y"), *xs)
    arrays = [rng.uniform(low, high, 5) for _ in xs]
    assert check_gradients(xs, [y], arrays, rng) == count
    assert name in SLOPES or name in FLAT or name in (*BINARY, "rounded")


def slope_at(formula: object, *values: float) -> list[float]:
    xs = [input((1,), "float64", f"x{n}") for n in range(len(values))]
    y = call(lambda *t: te.compute((1,), lambda i: formula(*(x[i] for x in t)), name="y"), *xs)  # type: ignore[operator]
    found = evaluate(Graph(tuple(xs), gradients(y, xs), "g"), *(np.array([v]) for v in values))
    return [float(f[0]) for f in found]


def test_ties_are_shared_by_variables_and_won_by_numbers() -> None:
    assert slope_at(te.maximum, 2.0, 2.0) == [0.5, 0.5]
    assert slope_at(te.minimum, 2.0, 2.0) == [0.5, 0.5]
    assert slope_at(lambda x: te.maximum(x, 0), 0.0) == [0.0]
    assert slope_at(lambda x: te.abs(x), 0.0) == [0.0]


def test_nothing_infinite_comes_from_the_side_that_is_not_taken() -> None:
    def guarded(x: object) -> object:
        return te.select(x > 0, te.sqrt(te.select(x > 0, x, 1.0)), 0.0)  # type: ignore[operator]

    assert slope_at(guarded, 0.0) == [0.0]
    assert slope_at(lambda x: te.select(x > 0, te.sqrt(x), 0.0), 0.0) == [0.0]


def test_powers_at_zero() -> None:
    assert slope_at(lambda x: te.pow(x, 2.0), 0.0) == [0.0]
    assert slope_at(lambda x: te.pow(x, 0.0), 0.0) == [0.0]
    assert slope_at(lambda x: te.pow(x, 3.0), -2.0) == [12.0]
    assert slope_at(lambda x: te.pow(x, -1.0), -2.0) == [-0.25]
    assert slope_at(lambda x: te.pow(x, 0.5), 4.0) == [0.25]
    assert slope_at(lambda x: te.pow(x, 0.5), 0.0) == [np.inf]
    assert slope_at(te.pow, -2.0, 2.0) == [-4.0, 0.0]  # the exponent of a negative base has no slope

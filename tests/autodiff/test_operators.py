"""Every operator of the library × every sample case, against finite differences in float64."""

from __future__ import annotations

import numpy as np
import pytest
from finite_differences import check_gradients, wide

import autotensor as at
from autotensor.autodiff import gradients
from autotensor.autodiff.body_gradients import differentiate
from autotensor.autodiff.gradient_table import RULES
from autotensor.graph.build import input
from autotensor.graph.evaluate import evaluate
from autotensor.graph.ir import Apply, Graph, GraphNode, Input, apply
from autotensor.operators import OPERATORS, Case

NAMES = [
    n for n in OPERATORS.names() if n != "stop_gradient"
]  # its gradient is not its derivative, by design


def written(name: str, case: Case, seed: int) -> tuple[list[Input], list[GraphNode], list[np.ndarray]]:
    arrays = [wide(a) for a in case.arrays(np.random.default_rng(seed))]
    inputs = [input(a.shape, str(a.dtype), f"x{n}") for n, a in enumerate(arrays)]
    first = apply(name, inputs, dict(case.attrs))
    results = [apply(name, inputs, dict(case.attrs), n) for n in range(first.results)]
    return inputs, [y for y in results if str(y.dtype) == "float64"], arrays


@pytest.mark.parametrize("name", NAMES)
def test_gradient_equals_finite_differences(name: str) -> None:
    compared = 0
    for case in OPERATORS.get(name).cases:
        if dict(case.attrs).get("rounded"):
            continue  # a staircase, whose finite differences come from its steps
        inputs, outputs, arrays = written(name, case, seed=1)
        if outputs:
            compared += check_gradients(inputs, outputs, arrays, np.random.default_rng(2), 1e-4)
    floats = any("float32" in (c.dtypes or ("float32",)) for c in OPERATORS.get(name).cases)
    gives_floats = any(written(name, c, 1)[1] for c in OPERATORS.get(name).cases)
    assert compared > 0 or not (floats and gives_floats)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_compiled_gradients_equal_the_reference(name: str) -> None:
    """Gradients that went through partition, schedules and LLVM, in the operator's own types."""
    for case in OPERATORS.get(name).cases[-2:]:
        arrays = case.arrays(np.random.default_rng(1))
        inputs = [input(a.shape, str(a.dtype), f"x{n}") for n, a in enumerate(arrays)]
        first = apply(name, inputs, dict(case.attrs))
        wanted = [x for x in inputs if x.dtype.is_float]
        if not (first.dtype.is_float and wanted):
            continue
        g = input(first.shape, first.dtype, "g")
        slopes = gradients(first, wanted, [g])
        graph = Graph((*inputs, g), slopes, "backward", tuple(f"d{n}" for n in range(len(slopes))))
        seed = np.asarray(np.random.default_rng(2).standard_normal(g.shape), g.dtype.numpy)
        given = (*(np.asarray(a) for a in arrays), seed)
        found = at.compile_model(graph, db=":memory:")(*given)
        for got, want in zip(found if len(slopes) > 1 else [found], evaluate(graph, *given), strict=True):
            scale = max(1.0, float(np.abs(want).max(initial=0)))
            np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5 * scale, err_msg=str(case))


@pytest.mark.parametrize("name", sorted(RULES))
def test_rules_by_hand_equal_what_the_body_gives(name: str) -> None:
    """A rule may be faster or easier to read than the derivative of the body, but must give the same
    value."""
    case = next(c for c in OPERATORS.get(name).cases if written(name, c, 0)[1])
    inputs, outputs, arrays = written(name, case, seed=3)
    node = outputs[0]
    assert isinstance(node, Apply)
    g = input(node.shape, "float64", "g")
    wanted = [k for k, x in enumerate(inputs) if x.dtype.is_float]
    derived = differentiate(node, g, wanted)
    by_hand = {k: RULES[name](node, g, k) for k in wanted}
    assert set(derived) == {k for k, part in by_hand.items() if part is not None}
    seed = np.random.default_rng(4).standard_normal(node.shape)
    for k in derived:
        part = by_hand[k]
        assert part is not None
        graph = Graph((*inputs, g), (derived[k], part), "both", ("derived", "by_hand"))
        want, got = evaluate(graph, *arrays, seed)
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11)

"""Attention with a cache: unfilled places are not read, and loops end at the filled length."""

from __future__ import annotations

import re

import numpy as np
import pytest

import autotensor as at
from autotensor import te
from autotensor.base.errors import TensorError
from autotensor.operators import OPERATORS, TensorType

OP = OPERATORS.get("cached_attention")
CAPACITY, DEPTH = 40, 16


def arrays(rows: int, tokens: int, position: int, kept: str = "float32") -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = [(2, 3, n, DEPTH) for n in (rows, tokens, tokens, CAPACITY, CAPACITY)]
    q, k, v, keys, values = (rng.standard_normal(s, dtype=np.float32) for s in shapes)
    return [q, k, v, keys.astype(kept), values.astype(kept), np.array([position])]


def compiled(given: list[np.ndarray]) -> at.Module:
    inputs = [te.placeholder(a.shape, str(a.dtype), f"x{n}") for n, a in enumerate(given)]
    return at.build([*inputs, OP.compute(*inputs)], target="llvm -threads=2")


@pytest.mark.parametrize("kept", ["float32", "float16"])
@pytest.mark.parametrize(("rows", "tokens"), [(2, 1), (1, 1), (8, 1), (10, 5)])
@pytest.mark.sample(3)
def test_places_that_are_not_filled(rows: int, tokens: int, kept: str) -> None:
    given = arrays(rows, tokens, 0, kept)
    f = compiled(given)
    for position in (0, 1, 17, CAPACITY - tokens):
        given[5] = np.array([position])
        wide = [a.astype(np.float32) for a in given[:5]]
        for x in given[3:5]:
            x[:, :, position:] = np.nan
        np.testing.assert_allclose(f(*given), OP.reference(*wide, given[5]), rtol=2e-5, atol=2e-6)
        for x, whole in zip(given[3:5], wide[3:], strict=True):
            x[...] = whole


@pytest.mark.parametrize("position", [-1, CAPACITY + 1, 1 << 62])
def test_positions_outside_read_nothing_outside(position: int) -> None:
    given = arrays(2, 1, position)
    whole = np.array([min(max(position, 0), CAPACITY)])
    np.testing.assert_allclose(compiled(given)(*given), OP.reference(*given[:5], whole), rtol=2e-5, atol=2e-6)


def test_sums_end_with_what_is_filled() -> None:
    text = compiled(arrays(2, 1, 0)).source("ir")
    assert re.search(r"for mixed_old\w*_j_0 in range\(\w+limit0( // \d+)?\)", text)


def test_a_scale_that_turns_the_order() -> None:
    types = [TensorType.of(a.shape, str(a.dtype)) for a in arrays(2, 1, 0)]
    with pytest.raises(TensorError, match=r"cached_attention: scale is -1\.0, expected a number above 0"):
        OP.types(tuple(types), {"scale": -1.0})

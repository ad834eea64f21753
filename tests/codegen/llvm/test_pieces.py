"""Constant tails of vectors are moved in pieces where masked instructions are slow."""

from __future__ import annotations

import re

import numpy as np
import pytest
from fences import ended_by, fenced

import autotensor as at
from autotensor import te
from autotensor.base.errors import ArtifactError
from autotensor.runtime.module import Module


def copied_rows(columns: int, mcpu: str) -> Module:
    """y = 2x for three rows of so many columns, in vectors of eight."""
    x = te.placeholder((3, columns), name="x")
    y = te.compute((3, columns), lambda i, j: x[i, j] * 2.0, name="y")
    s = te.create_schedule(y)
    s["y"].split("j", factors=[8])
    s["y"].vectorize("j.1")
    return at.build(s, [x, y], f"llvm -mcpu={mcpu} -threads=1")


@pytest.mark.parametrize("columns", range(1, 17))
@pytest.mark.parametrize("mcpu", ["x86-64-v3", "znver1"])
@pytest.mark.sample(12)
def test_tails_of_every_length_are_moved_and_nothing_beyond_them(columns: int, mcpu: str) -> None:
    try:
        f = copied_rows(columns, mcpu)
    except ArtifactError as error:
        if "which this processor lacks" not in str(error):
            raise
        pytest.skip(str(error))
    x = np.arange(3 * columns, dtype=np.float32).reshape(3, columns)
    np.testing.assert_array_equal(f(x), 2 * x)
    out = np.zeros_like(x)
    assert ended_by(lambda: f(fenced(x), out=fenced(out))) == 0


@pytest.mark.parametrize(
    ("columns", "mcpu", "masked"),
    [(10, "znver1", 0), (15, "znver1", 0), (10, "x86-64-v3", 0), (15, "x86-64-v3", 3)],
)
def test_masks_are_left_where_joining_pieces_of_a_load_gains_nothing(
    columns: int, mcpu: str, masked: int
) -> None:
    """Each of three rows has one tail, of 2 or of 7 columns."""
    asm = copied_rows(columns, mcpu).source("asm")
    assert len(re.findall("vmaskmovps", asm)) in (masked, bool(masked))  # one, if the rows are a loop


@pytest.mark.parametrize("mcpu", ["x86-64-v3"])
def test_lanes_of_loop_variables_become_floats_in_32_bits(mcpu: str) -> None:
    """AVX2 has no instruction that converts lanes of 64 bits."""
    x = te.placeholder((64,), name="x")
    y = te.compute((64,), lambda i: x[i] * te.cast("float32", i * i - 3), name="y")
    s = te.create_schedule(y)
    s["y"].split("i", factors=[8])
    s["y"].vectorize("i.1")
    f = at.build(s, [x, y], f"llvm -mcpu={mcpu} -threads=1")
    i = np.arange(64)
    np.testing.assert_array_equal(f(np.ones(64, np.float32)), (i * i - 3).astype(np.float32))
    assert "vcvtsi2ss" not in f.source("asm")

"""Products of whole numbers of 4 and 8 bits, packed in bytes, by dot instructions: they are exact, and stay
in registers."""

from __future__ import annotations

import random

import numpy as np
import pytest

import autotensor as at
from autotensor import te
from autotensor.base.target import parse
from autotensor.te.dag import ComputeDAG
from schedules.generate import generate

PAIRS, FOURS = "llvm -threads=2 -mcpu=znver3", "llvm -threads=2 -mcpu=cascadelake"


def scaled(m: int, n: int, groups: int, length: int, bits: int, kind: str = "int8") -> list[te.Tensor]:
    """Y[i, j] = Σ_g S[j, g] * Σ_k q[j, g, k] * X[i, g, k], q packed in the bytes of W."""
    each = 8 // bits
    W = te.placeholder((n, groups, length), "uint8", name="W", constant=True)
    S = te.placeholder((n, groups), name="S", constant=True)
    X = te.placeholder((m, groups, length * each), kind, name="X")
    g, v, e = te.reduce_axis(groups, "g"), te.reduce_axis(length, "v"), te.reduce_axis(each, "e")

    def part(i, j, g):
        q = W[j, g, v].astype("int32")
        if bits == 8:
            return te.sum(q * X[i, g, v].astype("int32"), axis=v)
        q = q >> (e * bits).astype("int32") & (1 << bits) - 1
        return te.sum(q * X[i, g, v * each + e].astype("int32"), axis=[v, e])

    P = te.compute((m, n, groups), part, name="P")
    Y = te.compute((m, n), lambda i, j: te.sum(P[i, j, g].astype("float32") * S[j, g], axis=g), name="Y")
    return [W, S, X, Y]


def by_dots(args: list[te.Tensor], target: str):
    """Sketches of the rule that use a dot instruction, with its name."""
    every = generate(ComputeDAG.of(args), parse(target))
    found = [(s, t) for s in every for t in s.steps if type(t).__name__ == "Tensorize"]
    return [(s, t.instruction) for s, t in found]


@pytest.mark.parametrize("kind", ["int8", "int16"])
@pytest.mark.parametrize(
    "shape",
    [
        (1, 40, 3, 16, 4),
        (5, 33, 2, 16, 4),
        (3, 64, 2, 8, 8),
        (1, 8, 1, 4, 4),
        (2, 19, 3, 64, 8),
        (1, 24, 2, 8, 2),
    ],
)
@pytest.mark.sample(4)
def test_sums_are_exact(shape, kind):
    """Scales are powers of two, so that float32 rounds nothing."""
    args = scaled(*shape, kind=kind)
    (sketch, name), *_ = by_dots(args, PAIRS)
    assert name == "x86.vpmaddwd.256"
    rng, choice = np.random.default_rng(0), random.Random(0)
    m, n, groups, length, bits = shape
    w = rng.integers(0, 256, (n, groups, length)).astype(np.uint8)
    scale = 2.0 ** rng.integers(-3, 3, (n, groups)).astype(np.float32)
    top = 127 if kind == "int8" else 400
    x = rng.integers(-top - 1, top + 1, (m, groups, length * 8 // bits)).astype(kind)
    q = np.stack([w >> s & (1 << bits) - 1 for s in range(0, 8, bits)], axis=-1).reshape(n, groups, -1)
    wanted = np.einsum("igk,jgk,jg->ij", x.astype(float), q.astype(float), scale.astype(float))
    for decisions in (sketch.defaults(), sketch.random(choice), sketch.random(choice)):
        s = te.create_schedule(args[-1])
        for step in sketch.fill(decisions).steps:
            s.do(step)
        f = at.build(s, args, "llvm -threads=2").bind(W=w, S=scale)
        np.testing.assert_array_equal(f(x), wanted)


@pytest.mark.parametrize(
    ("target", "kind", "name"),
    [
        (PAIRS, "int8", "x86.vpmaddwd.256"),
        (PAIRS, "int16", "x86.vpmaddwd.256"),
        (FOURS, "int8", "x86.vpdpbsud.512"),
        (FOURS, "int16", "x86.vpmaddwd.512"),
    ],
)
def test_which_instruction(target, kind, name):
    assert by_dots(scaled(1, 64, 2, 16, 4, kind), target)[0][1] == name


def test_numbers_stay_in_registers():
    text = at.build(scaled(1, 64, 4, 16, 4), target="llvm -threads=1 -mcpu=znver3").source("nest")
    assert "P_numbers = local(" in text
    assert "W_words_packed" in text
    assert 'instruction="x86.vpmaddwd.256"' in text


@pytest.mark.parametrize("shape", [(1, 64, 2, 6, 4), (1, 64, 2, 3, 8)])
def test_groups_that_are_no_whole_words_are_left_alone(shape):
    assert not by_dots(scaled(*shape), PAIRS)

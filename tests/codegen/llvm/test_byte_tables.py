"""Tables of 256 bytes: by permutations of registers where there is the instruction, by loads elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

import autotensor as at
from autotensor import te
from autotensor.base.target import parse
from autotensor.codegen.llvm.backend import needs
from autotensor.codegen.llvm.lanes.byte_tables import FEATURE

RNG = np.random.default_rng(0)


def table_of(shape, kind="uint8", entries=256):
    X = te.placeholder(shape, "uint8", name="X")
    T = te.placeholder((entries,), kind, name="T", constant=True)
    Y = te.compute(shape, lambda *i: T[te.cast("int32", X[i])], name="Y")
    return [X, T, Y]


@pytest.mark.parametrize("shape", [(64,), (3, 64), (5, 37), (16,), (2, 200), (1000,), (9, 3)])
@pytest.mark.parametrize("kind", ["uint8", "int8", "int16"])
@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64-v3"])
@pytest.mark.sample(12)
def test_every_byte_finds_its_element(shape, kind, target):
    x = RNG.integers(0, 256, shape).astype("uint8")
    t = RNG.integers(-128, 128, 256).astype(kind)
    assert np.array_equal(at.build(table_of(shape, kind), target=target).bind(T=t)(x), t[x])


def test_one_instruction_takes_lanes_of_two_registers():
    fits = FEATURE in needs(parse("llvm"))
    for entries, permuted in ((256, fits), (300, False)):
        text = at.build(table_of((4, 128), entries=entries)).source("llvm")
        assert ("vpermi2var" in text) == permuted
    assert "vpermi2var" not in at.build(table_of((4, 128)), target="llvm -mcpu=x86-64-v3").source("llvm")


def test_every_processor_with_the_instruction_is_known():
    assert FEATURE in needs(parse("llvm -mcpu=znver4"))
    assert FEATURE not in needs(parse("llvm -mcpu=x86-64-v4"))

"""`-denormals=flush`: denormals are zeros inside a call, and only there."""

from __future__ import annotations

import numpy as np
import pytest

import autotensor as at
from autotensor.base.errors import TargetError
from autotensor.base.target import Target, parse
from autotensor.codegen.llvm.denormals import KEPT, flushing
from autotensor.graph.build import input, ops

TINY = np.array([1e-39, -1e-39, 3e-38, 1e-37, 1.0, np.inf, np.nan, 0.0], np.float32)


def halved(target, n=8):
    return at.compile_model(ops.multiply(input((n,)), np.float32(0.5)), target=target)


def test_denormals_are_kept_by_default():
    np.testing.assert_array_equal(halved("llvm")(TINY), TINY * np.float32(0.5))


def test_flushed_ones_are_zeros_of_their_sign():
    got = halved("llvm -denormals=flush")(TINY)
    want = TINY * np.float32(0.5)
    least = np.finfo(np.float32).tiny
    want = np.where(np.abs(want) < least, np.copysign(np.float32(0), want), want)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


def test_inputs_that_are_denormal_count_as_zero():
    f = at.compile_model(ops.multiply(input((1,)), np.float32(1e30)), target="llvm -denormals=flush")
    assert f(np.array([1e-39], np.float32))[0] == 0


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_every_thread_flushes_and_the_callers_numbers_stay(threads):
    n = 1 << 20
    f = halved("llvm -denormals=flush", n)
    f.threads = threads
    tiny = np.full(n, 1e-38, np.float32)
    assert not f(tiny).any()
    assert (tiny * np.float32(0.5)).all(), "NumPy keeps its denormals"
    assert halved("llvm", n)(tiny).all()


def test_a_saved_model_flushes_too(tmp_path):
    f = halved("llvm -denormals=flush")
    f.save(tmp_path / "f.atm")
    np.testing.assert_array_equal(at.load(tmp_path / "f.atm")(TINY), f(TINY))


def test_the_option():
    flush = parse("llvm -denormals=flush")
    assert flush.key() == parse("llvm").key()
    assert Target.from_json(flush.to_json()) == flush
    assert flushing(parse("llvm")) == KEPT
    with pytest.raises(TargetError, match=r"denormals 'off' is unknown\. Known: keep, flush\."):
        parse("llvm -denormals=off")
    with pytest.raises(TargetError, match="autotensor cannot set this on a riscv64"):
        flushing(parse("llvm -mtriple=riscv64-unknown-linux-gnu -denormals=flush"))

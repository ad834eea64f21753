"""Scalar functions: the same names and sentences in te and in both styles."""

from __future__ import annotations

import pytest

from autotensor.base.functions import ABOUT, FUNCTIONS, binary, unary
from autotensor.flow import ops as flow
from autotensor.imperative import ops as imperative
from autotensor.operators import OPERATORS
from autotensor.te import math

SPELLED = {"negative": "neg"}  # TensorFlow's name ──▶ the library's


SENTENCES = ABOUT | {n: f.about for n, f in FUNCTIONS.items() if f.arity == 1}


def functions(module):
    """The functions of one value that a language has, by its own names."""
    return {
        n: f for n, f in vars(module).items() if getattr(f, "__code__", None) is unary("exp", str).__code__
    }


@pytest.mark.parametrize("module", [math, flow, imperative], ids=["te", "flow", "imperative"])
def test_each_is_called_as_what_it_is(module):
    found = functions(module)
    assert len(found) >= 8
    for name, function in found.items():
        own = SPELLED.get(name, name)
        assert (function.__name__, function.__doc__) == (own, SENTENCES[own])


@pytest.mark.parametrize("module", [flow, imperative], ids=["flow", "imperative"])
def test_each_of_a_style_is_an_operator(module):
    for function in functions(module).values():
        assert function.__name__ in OPERATORS


def test_none_is_written_for_nobody():
    used = {f.__name__ for m in (math, flow, imperative) for f in functions(m).values()}
    assert used == set(SENTENCES)


@pytest.mark.parametrize("name", [n for n, f in FUNCTIONS.items() if f.arity == 2])
def test_those_of_two_values_take_them_in_order(name):
    shown = binary(name, lambda *said: said)
    assert (shown(1, 2), shown.__name__, shown.__doc__) == ((name, 1, 2), name, FUNCTIONS[name].about)

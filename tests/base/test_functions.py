"""Scalar functions: the same names and sentences in te and in both styles."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from autotensor import flow, imperative, te
from autotensor.base.functions import ABOUT, FUNCTIONS, binary
from autotensor.flow.ops import SPELLING
from autotensor.operators import OPERATORS

STYLES = pytest.mark.parametrize("style", [flow, imperative], ids=["flow", "imperative"])
SENTENCES = ABOUT | {n: f.about for n, f in FUNCTIONS.items()}


@pytest.mark.parametrize("name", sorted({*FUNCTIONS} - {"floordiv", "floormod"}))
def test_te_has_each_with_its_sentence(name):
    function = getattr(te, name)
    assert (function.__name__, function.__doc__) == (name, FUNCTIONS[name].about)


@STYLES
@pytest.mark.parametrize("name", sorted({*SENTENCES} & {*OPERATORS}))
def test_a_style_has_each_that_is_an_operator(style, name):
    function = getattr(style, name)
    assert (function.__name__, function.__doc__) == (name, SENTENCES[name])
    assert name in style.__all__
    assert name in dir(style)
    assert pickle.loads(pickle.dumps(function)) is function


def test_tensors_list_them_as_methods():
    assert {*dir(imperative.tensor([1.0]))} >= {"exp", "maximum", "reshape"}


def test_no_sentence_is_written_for_nobody():
    assert {*ABOUT} <= {*OPERATORS}
    assert not {*ABOUT} & {*FUNCTIONS}


@pytest.mark.parametrize("name", SPELLING.names())
def test_an_operator_computes_the_same_in_each_style_and_as_a_method(name):
    operator = OPERATORS.get(SPELLING.others.get(name, name))
    case = operator.cases[0]
    arrays = case.arrays(np.random.default_rng(5))
    expected = operator.reference(*arrays, **case.attrs)
    with flow.Session() as session:
        ran = session.run(
            getattr(flow, name)(*(flow.constant(a, dtype=a.dtype) for a in arrays), **case.attrs)
        )
    tensors = [imperative.tensor(a) for a in arrays]
    results = [ran]
    if name not in SPELLING.others:
        results.append(getattr(imperative, name)(*tensors, **case.attrs).numpy())
        results.append(getattr(tensors[0], name)(*tensors[1:], **case.attrs).numpy())
    for result in results:
        np.testing.assert_allclose(
            result.astype(np.float64), np.asarray(expected, np.float64), rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize(
    ("owner", "said"),
    [
        (flow, "module 'autotensor.flow' has no attribute 'sofmax'"),
        (imperative, "module 'autotensor.imperative' has no attribute 'sofmax'"),
        (te.math, "module 'autotensor.te.math' has no attribute 'sofmax'"),
        (imperative.tensor(1.0), "'Tensor' object has no attribute 'sofmax'"),
    ],
)
def test_a_name_that_is_none_is_an_error_of_its_owner(owner, said):
    with pytest.raises(AttributeError, match=said):
        owner.sofmax  # noqa: B018


@pytest.mark.parametrize("name", [n for n, f in FUNCTIONS.items() if f.arity == 2])
def test_those_of_two_values_take_them_in_order(name):
    shown = binary(name, lambda *said: said)
    assert (shown(1, 2), shown.__name__, shown.__doc__) == ((name, 1, 2), name, FUNCTIONS[name].about)

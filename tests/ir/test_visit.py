"""Searches for nodes of a class visit only parts that contain some, and find the same nodes as a whole
walk."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotensor.base.dtype import float32, int64
from autotensor.ir.expr import Binary, Cast, Const, Expr, Load, Select, Symbol, Unary, Var, const
from autotensor.ir.func import Buffer
from autotensor.ir.node import Node
from autotensor.ir.stmt import Alloc, For, ForKind, If, Seq, Stmt, Store
from autotensor.ir.visit import collect, contains, walk

A = Buffer("a", (8,), float32)
CLASSES = (
    Node,
    Expr,
    Stmt,
    Binary,
    Cast,
    Const,
    Load,
    Select,
    Symbol,
    Unary,
    Var,
    For,
    If,
    Seq,
    Store,
    Alloc,
)

indices = st.recursive(
    st.sampled_from([Var("i"), Symbol("n", int64, 1, 9), const(3)]),
    lambda e: st.one_of(st.builds(lambda a, b: a + b, e, e), st.builds(lambda a: -a, e)),
    max_leaves=4,
)
values = st.recursive(
    st.one_of(st.builds(lambda i: Load(A, (i,)), indices), st.just(const(1.0, float32))),
    lambda e: st.one_of(
        st.builds(lambda a, b: a * b, e, e),
        st.builds(lambda i, a, b: Select(i < 2, a, b), indices, e, e),
        st.builds(lambda i: Cast(float32, i), indices),
    ),
    max_leaves=6,
)
statements = st.recursive(
    st.builds(lambda i, e, m: Store(A, (i,), e, m), indices, values, st.sampled_from([None, Var("i") < 3])),
    lambda s: st.one_of(
        st.builds(lambda a, b: Seq((a, b)), s, s),
        st.builds(lambda i, a: If(i < 4, a), indices, s),
        st.builds(lambda e, a: For(Var("j"), const(0), e, ForKind.SERIAL, a), indices, s),
        st.builds(lambda a: Alloc(A, a), s),
    ),
    max_leaves=5,
)


@given(statements)
def test_it_finds_what_a_walk_finds(s):
    for cls in CLASSES:
        found = tuple(n for n in walk(s) if isinstance(n, cls))
        assert collect(s, cls) == found
        assert contains(s, cls) == bool(found)


def test_a_class_that_is_derived_later_counts():
    class Later(Var):
        pass

    assert contains(Later("x") + 1, Var)
    assert not contains(Var("x") + 1, Later)


@pytest.mark.parametrize("cls", [Load, Stmt])
def test_what_is_not_there_is_not_looked_for(cls, monkeypatch):
    e = (Var("i") + 1) * 2
    monkeypatch.setattr(Binary, "_children", lambda self: pytest.fail("looked"))
    assert collect(e, cls) == ()

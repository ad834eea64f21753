"""Different nodes have different texts: always with types, and without where all is int64."""

import random

from hypothesis import given, settings
from int_expressions import condition, drawn, int_expr, vector

from autotensor.base.dtype import bool_, float32, int32, int64
from autotensor.ir.expr import Binary, Broadcast, Call, Const, Load, Neg, Op, Ramp, Unary, Var, const
from autotensor.ir.func import Buffer, Scope
from autotensor.ir.node import Node
from autotensor.ir.printer import to_text
from autotensor.ir.stmt import NOTHING, Alloc, Barrier, Evaluate, For, ForKind, If, Let, Stmt, Store, seq

BUFFERS = (Buffer("A", (8, 8), int64), Buffer("B", (8,), int64), Buffer("B", (8,), int64, Scope.LOCAL))
FLOATS = (0.0, -0.0, 1.0, 1.5, 0.1, 1e30, float("inf"), float("nan"))
NAMES = ("i", "i.0", "i_0", "i.0*", "for", "min", "(a*b)", "a_b")


def float_expr(pick, depth=2):
    kind = pick(("const", "load", "call", "sum", "negated", "masked")) if depth else "const"
    match kind:
        case "load":
            return Load(Buffer("F", (8,), float32), (int_expr(pick, depth=1),))
        case "masked":
            return Load(Buffer("F", (8,), float32), (int_expr(pick, depth=1),), condition(pick, depth=0))
        case "call":
            return Call(pick(("exp", "sqrt")), (float_expr(pick, depth - 1),), float32)
        case "sum":
            sides = float_expr(pick, depth - 1), float_expr(pick, depth - 1)
            return Binary(pick((Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.MAX)), *sides)
        case "negated":
            return Unary(Neg.NEG, float_expr(pick, depth - 1))
        case _:
            return const(pick(FLOATS), float32)


def names(pick):
    return Var(pick(NAMES), pick((int64, int32)))


def store(pick, depth):
    buffer = pick(BUFFERS)
    indices = tuple(int_expr(pick, depth=1) for _ in buffer.shape)
    value = int_expr(pick, depth=depth)
    if pick((True, False)):
        value = Binary(pick((Op.ADD, Op.MUL, Op.SUB)), Load(buffer, indices), value)
    if pick((True, False, False)) and len(indices) == 1:
        lanes = pick((4, 8))
        return Store(buffer, (Ramp(indices[0], pick((1, 2)), lanes),), Broadcast(value, lanes))
    return Store(buffer, indices, value, pick((None, None, condition(pick, depth=0))))


def stmt(pick, depth=2):
    kind = pick(("store", "loop", "seq", "alloc", "if", "let", "small")) if depth else "store"
    match kind:
        case "loop":
            kind = pick(tuple(ForKind))
            begin = pick((const(0), const(2), Var("a")))
            extent = pick((const(4), int_expr(pick, depth=1)))
            thread = pick(("threadIdx.x", "blockIdx.x")) if kind is ForKind.THREAD else ""
            return For(Var(pick(("i", "j"))), begin, extent, kind, stmt(pick, depth - 1), thread)
        case "seq":
            return seq(*(stmt(pick, depth - 1) for _ in range(pick((0, 2, 3)))))
        case "alloc":
            return Alloc(pick(BUFFERS), stmt(pick, depth - 1))
        case "if":
            otherwise = pick((None, NOTHING, stmt(pick, depth - 1)))
            return If(condition(pick, depth=0), stmt(pick, depth - 1), otherwise)
        case "let":
            return Let(Var(pick(("i", "j"))), int_expr(pick, depth=1), stmt(pick, depth - 1))
        case "small":
            return pick((Barrier(), Barrier("shared"), NOTHING, Evaluate(int_expr(pick, depth=1))))
        case _:
            return store(pick, 1)


def node(pick) -> Node:
    make = pick((int_expr, condition, vector, float_expr, names, stmt, stmt))
    return make(pick)


def assert_distinct(nodes, **options):
    seen = {}
    for n in nodes:
        text = to_text(n, **options)
        key = text, isinstance(n, Stmt)  # `f(x)` may be a value or a statement that computes one
        assert seen.setdefault(key, n) is n, text


@settings(max_examples=100, deadline=None)
@given(drawn(lambda pick: (node(pick), node(pick))))
def test_two_nodes(pair):
    assert_distinct(pair, types=True)


def test_many_small_nodes():
    pick = random.Random(0).choice
    assert_distinct([node(pick) for _ in range(3000)], types=True)


def test_many_small_nodes_of_one_type_need_no_types():
    pick = random.Random(1).choice
    assert_distinct([int_expr(pick, depth=2) for _ in range(2000)])
    assert_distinct([stmt(pick) for _ in range(1000)])


def test_constants():
    ints = [const(n, t) for n in (0, 1, -1) for t in (int64, int32)]
    assert_distinct([*ints, *(const(v, float32) for v in FLOATS), Const(True, bool_)], types=True)

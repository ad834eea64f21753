"""Derivatives of one expression with respect to the elements that it reads.

    body = select(c, a[i] * exp(b[i]), 0)        seed = g
        a[i]:  under (c,)  g * exp(b[i])
        b[i]:  under (c,)  g * a[i] * exp(b[i])

This is reverse mode over the expression; each distinct node is visited once. A derivative holds only where
its element is read. So it stands under the conditions of the selects on the way, outermost first. These
conditions may also protect the elements that the derivative reads (padding reads `x[i - 1]` only inside).
Integers and bools have no derivative.

At a tie, `max(a, b)` gives each side half of the adjoint. If one side is a constant, the constant gets all of
it, so that relu'(0) is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import reduce

from autotensor.base.errors import GraphError
from autotensor.ir.expr import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Neg,
    Op,
    Select,
    Unary,
    call,
    cast,
    const,
    inverted,
    select,
)

Conditions = tuple[Expr, ...]  # outermost first
Guarded = dict[Conditions, Expr]  # conditions → the sum of the terms under them
Step = tuple[Expr, Conditions, Expr]  # a child, conditions under which it is read, its derivative


def partials(body: Expr, seed: Expr) -> dict[Load, Guarded]:
    """`seed` times the derivative of the body with respect to every float element it reads.

    Raises GraphError for a function without a derivative.
    """
    order = _parents_first(body)
    adjoint: dict[Expr, Guarded] = {node: {} for node in order}
    if body in adjoint:
        adjoint[body][()] = seed
    found: dict[Load, Guarded] = {}
    for node in order:
        if isinstance(node, Load):
            found[node] = adjoint[node]
            continue
        for conditions, value in adjoint[node].items():
            for child, more, derivative in _steps(node, value):
                if child in adjoint:
                    _add(adjoint[child], (*conditions, *more), derivative)
    return {load: guarded for load, guarded in found.items() if guarded}


def joined(guarded: Guarded) -> Expr:
    """The sum of all parts, each 0 where its conditions do not hold."""
    parts = [under(conditions, value) for conditions, value in guarded.items()]
    return reduce(lambda a, b: a + b, parts)


def under(conditions: Sequence[Expr], value: Expr) -> Expr:
    """The value where all conditions hold, else 0. An inner condition is computed only where the outer
    conditions hold."""
    zero = const(0, value.dtype)
    for condition in reversed(conditions):
        value = select(condition, value, zero)
    return value


def _add(into: Guarded, conditions: Conditions, value: Expr) -> None:
    # A condition that occurs twice on the way is kept once.
    key = tuple(dict.fromkeys(conditions))
    into[key] = into[key] + value if key in into else value


def _parents_first(body: Expr) -> list[Expr]:
    """Nodes between the body and the elements it reads. Each node comes after all nodes that use it."""
    reaches: dict[Expr, bool] = {}
    order: list[Expr] = []
    stack: list[tuple[Expr, bool]] = [(body, False)]
    while stack:
        node, ready = stack.pop()
        if node in reaches and not ready:
            continue
        if not ready:
            reaches[node] = False
            stack.append((node, True))
            stack.extend((c, False) for c in _operands(node))
        else:
            reaches[node] = isinstance(node, Load) or any(reaches[c] for c in _operands(node))
            if reaches[node]:
                order.append(node)
    return order[::-1]


def _operands(node: Expr) -> list[Expr]:
    """The float operands on which the node's value depends smoothly."""
    match node:
        case Binary(_, a, b):
            parts: tuple[Expr, ...] = (a, b)
        case Select(_, a, b):
            parts = (a, b)
        case Unary(_, a) | Cast(_, a):
            parts = (a,)
        case Call(_, args):
            parts = args
        case _:
            parts = ()
    return [p for p in parts if p.dtype.is_float] if node.dtype.is_float else []


def _steps(node: Expr, g: Expr) -> Iterator[Step]:
    """The derivative for each operand; `g` is the derivative for the node."""
    match node:
        case Binary(op, a, b):
            for child, d in zip((a, b), _binary(op, a, b, node, g), strict=True):
                yield child, (), d
        case Unary(Neg.NEG, a):
            yield a, (), -g
        case Select(c, a, b):
            yield a, (c,), g
            yield b, (inverted(c),), g
        case Cast(_, a):
            yield a, (), cast(a.dtype, g)
        case Call("rounded", (a,)):
            yield a, (), g
        case Call(name, args):
            for child, slope in zip(args, _slopes(name, args, node), strict=True):
                if slope is not None:
                    yield child, (), g * slope


def _binary(op: Op, a: Expr, b: Expr, whole: Expr, g: Expr) -> tuple[Expr, Expr]:
    match op:
        case Op.ADD:
            return g, g
        case Op.SUB:
            return g, -g
        case Op.MUL:
            return g * b, g * a
        case Op.DIV:
            return g / b, -(g * whole) / b
        case Op.MAX:
            return _winner(a > b, a, b, g), _winner(b > a, b, a, g)
        case Op.MIN:
            return _winner(a < b, a, b, g), _winner(b < a, b, a, g)
    raise GraphError(f"{op.value!r} of floats has no derivative.")  # floats have no other operators


def _winner(wins: Expr, own: Expr, other: Expr, g: Expr) -> Expr:
    """`g` where this side wins, half of it at a tie with another variable."""
    zero = const(0, g.dtype)
    if isinstance(own, Const) or isinstance(other, Const):
        return select(wins, g, zero)
    return select(wins, g, select(own.equal(other), g * 0.5, zero))


Slope = Callable[[Expr, Expr], Expr]  # (argument, value) → derivative


def _sign(x: Expr) -> Expr:
    one, zero = const(1, x.dtype), const(0, x.dtype)
    return select(x > 0, one, select(x < 0, -one, zero))


# function of one argument → its derivative, from the argument x and the value y
SLOPES: dict[str, Slope] = {
    "exp": lambda x, y: y,
    "exp2": lambda x, y: y * math.log(2),
    "log": lambda x, y: 1 / x,
    "log2": lambda x, y: 1 / (x * math.log(2)),
    "log10": lambda x, y: 1 / (x * math.log(10)),
    "log1p": lambda x, y: 1 / (x + 1),
    "expm1": lambda x, y: y + 1,
    "sqrt": lambda x, y: 0.5 / y,
    "rsqrt": lambda x, y: y * y * y * -0.5,
    "sin": lambda x, y: call("cos", x),
    "cos": lambda x, y: -call("sin", x),
    "tan": lambda x, y: y * y + 1,
    "asin": lambda x, y: call("rsqrt", 1 - x * x),
    "acos": lambda x, y: -call("rsqrt", 1 - x * x),
    "atan": lambda x, y: 1 / (x * x + 1),
    "sinh": lambda x, y: call("cosh", x),
    "cosh": lambda x, y: call("sinh", x),
    "tanh": lambda x, y: 1 - y * y,
    "asinh": lambda x, y: call("rsqrt", x * x + 1),
    "acosh": lambda x, y: call("rsqrt", x * x - 1),
    "atanh": lambda x, y: 1 / (1 - x * x),
    "erf": lambda x, y: call("exp", -(x * x)) * (2 / math.sqrt(math.pi)),
    "sigmoid": lambda x, y: y * (1 - y),
    "abs": lambda x, y: _sign(x),
}
FLAT = frozenset({"floor", "ceil", "round", "trunc"})  # their slope is 0 wherever it exists


def _slopes(name: str, args: tuple[Expr, ...], value: Expr) -> tuple[Expr | None, ...]:
    """The derivative with respect to every argument; None where it is 0."""
    if name in FLAT:
        return (None,)
    if name in SLOPES:
        return (SLOPES[name](args[0], value),)
    a, b = args
    zero = const(0, value.dtype)
    match name:
        case "pow":
            # x**0 is 1 everywhere, also at 0; the exponent has a slope for positive bases only.
            base = select(b.equal(zero), zero, b * call("pow", a, b - 1))
            return base, select(a > 0, value * call("log", a), zero)
        case "atan2":
            square = a * a + b * b
            return b / square, -a / square
        case "fmod":
            return const(1, value.dtype), -call("trunc", a / b)
        case "floormod":
            return const(1, value.dtype), -call("floordiv", a, b)
        case "floordiv":
            return None, None
    raise GraphError(  # a new function needs a derivative; a test goes through all of MATH
        f"te.{name} has no derivative.", fix="Add it to SLOPES in autodiff/derivatives.py."
    )

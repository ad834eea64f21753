"""Computes: tensors defined by a function of their axes.

    k = te.reduce_axis((0, 64), name="k")
    C = te.compute((32, 32), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")

A body is an expression over the axes; a reduction (`te.sum`, …) is allowed only at its top.
Several outputs come from a function that returns a tuple, or from a reducer over tuples (argmax).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

from autotensor.base.absent_names import takes_its_names
from autotensor.base.dtype import DType, bool_
from autotensor.base.errors import TensorError
from autotensor.ir.arithmetic import called
from autotensor.ir.expr import (
    FALSE,
    TRUE,
    Binary,
    Combiner,
    Expr,
    Op,
    Reduce,
    Var,
    all_of,
    any_of,
    as_expr,
    binary,
    cast,
    const,
    max_value,
    maximum,
    min_value,
    minimum,
    select,
)
from autotensor.ir.printer import to_text
from autotensor.ir.reducers import OPERATORS
from autotensor.ir.visit import MOST_NESTED, contains, height, walk
from autotensor.te.tensor import AxisKind, Compute, IterVar, check_name, check_shape


@takes_its_names("te.reduce_axis", {"thread_tag": "Leave it out: s[C].bind binds loops to threads."})
def reduce_axis(dom: Any, name: str = "k") -> IterVar:
    """An axis to sum over: `reduce_axis(64)` or `reduce_axis((0, 64))`.

    Raises TensorError for a range that does not start at 0.
    """
    pair = isinstance(dom, (tuple, list)) and len(dom) == 2
    if isinstance(dom, range) or (isinstance(dom, (tuple, list)) and not pair) or isinstance(name, int):
        raise TensorError(
            f"reduce_axis takes an extent or a pair, not {dom!r}{f' and {name}' * (name != 'k')}.",
            fix="Write te.reduce_axis(64) or te.reduce_axis((0, 64)).",
        )
    begin, end = dom if pair else (0, dom)
    if begin != 0:
        raise TensorError(
            f"reduce_axis {name!r} starts at {begin}.", fix="Start at 0 and add the offset to the indices."
        )
    (extent,) = check_shape(end, f"reduce_axis {name!r}")
    return IterVar(check_name(name), extent, AxisKind.REDUCE)


@takes_its_names("te.compute", {"varargs_names": "Leave it out: axes are called as the function calls them."})
def compute(
    shape: Any,
    fcompute: Callable[..., Any],
    name: str = "compute",
    tag: str = "",
    axis_names: Sequence[str] = (),
    attrs: Mapping[str, Any] | None = None,
) -> Any:
    """A tensor whose element at (i, j, …) is `fcompute(i, j, …)`; several tensors if it returns a tuple.

    shape: ints, or () for a scalar. The axes get the names of the function's parameters. attrs: a parameter
    of TVM; every attribute is refused.
    Raises TensorError when the function takes another number of axes than the shape has, a reduction is not
    at the top of the body, outputs reduce differently, or the expression is nested too deep.
    """
    if attrs:
        raise TensorError(
            f"compute {name!r}: attrs={sorted(attrs)} has no meaning here.",
            fix="Leave it out; a weight, whose layout is free, is te.placeholder(shape, constant=True).",
        )
    extents = check_shape(shape, f"compute {name!r}")
    names = tuple(axis_names) or _parameter_names(fcompute, len(extents), name)
    if len(names) != len(extents):
        raise TensorError(
            f"compute {name!r} has {len(extents)} axes but {len(names)} names for them: {', '.join(names)}."
        )
    axes = tuple(
        IterVar(check_name(n), e, AxisKind.SPATIAL) for n, e in zip(_distinct(names), extents, strict=True)
    )
    try:
        result = called(fcompute, *(a.var for a in axes))
    except IndexError as error:
        if "valid indices" not in str(error):
            raise
        raise TensorError(
            f"compute {name!r}: an axis indexes a NumPy array, which takes numbers.",
            fix="Make it an argument: te.placeholder(shape).",
        ) from error
    except TypeError as error:
        if "__array_ufunc__" not in str(error):
            raise
        raise TensorError(
            f"compute {name!r}: a function of NumPy, which computes with numbers, was given an expression.",
            fix="Write te.exp for numpy.exp, te.sqrt for numpy.sqrt, and so on.",
        ) from error
    several = isinstance(result, (tuple, list))
    bodies = tuple(as_expr(r) for r in (result if several else (result,)))
    _check_height(bodies, name)
    reduces = _reduction_axes(bodies, name)
    wanted = tuple(range(len(bodies)))
    if isinstance(bodies[0], Reduce):
        # the stage computes all results of the reducer, requested or not
        wanted = tuple(b.index for b in bodies if isinstance(b, Reduce))
        first = bodies[0]
        bodies = tuple(
            Reduce(first.combiner, first.sources, first.axes, n) for n in range(len(first.sources))
        )
    op = Compute(check_name(name), axes, reduces, bodies, tag)
    outputs = tuple(op.output(n) for n in range(len(bodies)))
    return tuple(outputs[n] for n in wanted) if several else outputs[wanted[0]]


def _parameter_names(fn: Callable[..., Any], rank: int, name: str) -> tuple[str, ...]:
    parameters = list(inspect.signature(fn).parameters.values())
    if True in [p.kind is p.VAR_POSITIONAL for p in parameters]:
        fixed = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        return (*fixed, *(f"i{n}" for n in range(len(fixed), rank)))
    required = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty]
    if len(required) != rank:
        arguments = f"{len(required)} argument{'s' * (len(required) != 1)}"
        raise TensorError(
            f"compute {name!r} has {rank} axes but its function takes {arguments} "
            f"({', '.join(p.name for p in required)})."
        )
    return tuple(p.name for p in required)


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"i{n}" if names.count(x) > 1 or x == "_" else x for n, x in enumerate(names))


def _check_height(bodies: tuple[Expr, ...], name: str) -> None:
    for body in bodies:
        if len(list(islice(walk(body), MOST_NESTED + 1))) <= MOST_NESTED:
            continue  # no more nodes than that, so no more levels
        if (levels := height(body)) > MOST_NESTED:
            raise TensorError(
                f"compute {name!r}: its expression is nested {levels} deep; at most {MOST_NESTED} fit.",
                fix="Give some of its parts computes of their own; schedules inline them where that pays.",
            )


def _contains_reduce(exprs: tuple[Expr, ...]) -> bool:
    return True in [contains(e, Reduce) for e in exprs]


def _reduction_axes(bodies: tuple[Expr, ...], name: str) -> tuple[IterVar, ...]:
    """Reduce axes of the bodies, checked: a reduction is the whole body, and all outputs share it."""
    tops = [b for b in bodies if isinstance(b, Reduce)]
    for body in bodies:
        inner = body.sources if isinstance(body, Reduce) else (body,)
        if _contains_reduce(inner):
            raise TensorError(
                f"compute {name!r}: a reduction must be the whole body, not part of an expression.",
                fix="Give the reduction a compute of its own and use its result.",
            )
    if not tops:
        return ()
    first = tops[0]
    same = [
        t.combiner is first.combiner and t.sources == first.sources and t.axes == first.axes for t in tops
    ]
    if len(tops) != len(bodies) or False in same:
        raise TensorError(
            f"compute {name!r}: several outputs must come from one reduction over the same axes."
        )
    return tuple(first.axes)


# -- reducers ------------------------------------------------------------------------------------------------


@takes_its_names("te.comm_reducer", {})
def comm_reducer(
    fcombine: Callable[..., Any], fidentity: Callable[..., Any], name: str = "reduce"
) -> Callable[..., Any]:
    """A user's own reducer: `fcombine(x, y)` joins two partial results, `fidentity(dtype)` gives the first.

    For tuples, both functions take and return tuples, and the reducer is called with a tuple of sources:

        def larger(x, y):
            return te.select(x[1] >= y[1], x[0], y[0]), te.maximum(x[1], y[1])

        argmax = te.comm_reducer(larger, lambda t0, t1: (te.const(-1, t0), te.min_value(t1)), name="argmax")
        T = te.compute((m,), lambda i: argmax((k.var, A[i, k]), axis=k))      # gives two tensors
    """

    @takes_its_names(f"te.{name}", {})
    def reducer(expr: Any, axis: Any = None, where: Any = None, init: Any = None) -> Any:
        if init is not None:
            raise TensorError(
                f"{name} starts from its identity; init= is not taken.",
                fix="Leave it out, and join the value with the result in a second te.compute.",
            )
        if axis is None:
            raise TensorError(
                f"{name} has no axis to reduce.",
                fix=f'k = te.reduce_axis(n, name="k") makes one; then {name}(A[i, k], axis=k).',
            )
        axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
        if len({id(a) for a in axes}) != len(axes):
            raise TensorError(f"{name}: a reduce axis is listed twice.")
        for a in axes:
            if not isinstance(a, IterVar) or a.kind is not AxisKind.REDUCE:
                pair = {"max": "te.maximum(a, b)", "min": "te.minimum(a, b)"}.get(name)
                also = f" {pair} is the {name} of two expressions." if pair else ""
                raise TensorError(
                    f"{name}: axis {to_text(a) if isinstance(a, Expr) else repr(a)} is not a reduce axis.",
                    fix=f"Make it with te.reduce_axis.{also}",
                )
        several = isinstance(expr, (tuple, list))
        sources = tuple(as_expr(e) for e in (expr if several else (expr,)))
        combiner = _combiner(name, fcombine, fidentity, tuple(s.dtype for s in sources), several)
        if where is not None:  # an element that is left out becomes the identity, which changes nothing
            kept = as_expr(where)
            sources = tuple(select(kept, s, e) for s, e in zip(sources, combiner.identity, strict=True))
        outs = tuple(Reduce(combiner, sources, axes, n) for n in range(len(sources)))
        return outs if several else outs[0]

    reducer.__name__ = reducer.__qualname__ = name
    reducer.__doc__ = (
        f"The {name} of an expression over one reduce axis or several: {name}(A[i, k], axis=k).\n\n"
        "where: a condition; elements for which it is false are left out. "
        "It is the whole body of a compute. Raises TensorError for an axis that is not a reduce axis."
    )
    return reducer


def _combiner(
    name: str,
    fcombine: Callable[..., Any],
    fidentity: Callable[..., Any],
    types: tuple[DType, ...],
    several: bool,
) -> Combiner:
    lhs = tuple(Var(f"lhs{n}", t) for n, t in enumerate(types))
    rhs = tuple(Var(f"rhs{n}", t) for n, t in enumerate(types))
    try:
        if several:
            result, identity = called(fcombine, lhs, rhs), fidentity(*types)
        else:
            result, identity = (called(fcombine, lhs[0], rhs[0]),), (fidentity(types[0]),)
    except TypeError as error:
        if not several and "subscriptable" in str(error):
            raise TensorError(
                f"reducer {name!r} takes its arguments apart, but it was called with one value.",
                fix=f"Call it with a tuple: {name}((k, A[i, k]), axis=k).",
            ) from error
        raise TensorError(
            f"reducer {name!r} cannot be made: {error}.",
            fix="It takes two functions: te.comm_reducer(lambda x, y: x * y, lambda t: te.const(1, t)).",
        ) from error
    if len(result) != len(types) or len(identity) != len(types):
        raise TensorError(
            f"reducer {name!r} joins {len(result)} values and starts from {len(identity)}; "
            f"its sources are {len(types)}."
        )
    results = tuple(cast(t, as_expr(r, t)) for r, t in zip(result, types, strict=True))
    identities = tuple(cast(t, as_expr(e, t)) for e, t in zip(identity, types, strict=True))
    # These names promise an operator, so no other reducer may have one of them.
    known = isinstance(results[0], Binary) and {results[0].a, results[0].b} == {lhs[0], rhs[0]}
    if name in OPERATORS and not (known and not several and results[0].op is OPERATORS[name]):  # type: ignore[attr-defined]
        name = f"{name}_of_{len(types)}"
    return Combiner(name, lhs, rhs, results, identities)


def _sum_identity(t: DType) -> Expr:
    return const(0, t)


sum = comm_reducer(lambda x, y: x + y, _sum_identity, name="sum")
prod = comm_reducer(lambda x, y: x * y, lambda t: const(1, t), name="prod")
max = comm_reducer(maximum, min_value, name="max")
min = comm_reducer(minimum, max_value, name="min")
_any = comm_reducer(lambda x, y: binary(Op.OR, x, y), lambda t: FALSE, name="any")
_all = comm_reducer(lambda x, y: binary(Op.AND, x, y), lambda t: TRUE, name="all")


def any(*args: Any, axis: Any = None) -> Expr:
    """`any(a, b, …)`: some condition holds; `any(expr, axis=k)`: a reduction."""
    if axis is None:
        return any_of(*args)
    return _any(cast(bool_, as_expr(args[0])), axis=axis)  # type: ignore[no-any-return]


def all(*args: Any, axis: Any = None) -> Expr:
    """`all(a, b, …)`: every condition holds; `all(expr, axis=k)`: a reduction."""
    if axis is None:
        return all_of(*args)
    return _all(cast(bool_, as_expr(args[0])), axis=axis)  # type: ignore[no-any-return]

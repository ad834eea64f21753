"""Translates te programs to loops for numba, as a person would write them: a loop nest for every stage.

    text(dag, 2)     def run(a0, a1): …        compiled(dag, 2)(*arrays)     the results, new arrays

The outermost loop is `prange`. A pointwise value with a single reader is written inside the reader's
expression. If the terms of a sum lie side by side along the summed axis, the sum is kept in a variable.
Otherwise the last axis of the result is the innermost loop.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from autotensor.ir.affine import stride
from autotensor.ir.expr import Binary, Call, Cast, Compare, Const, Expr, Load, Neg, Op, Select, Unary, Var
from autotensor.ir.func import Buffer
from autotensor.ir.rewrite import substitute, transform
from autotensor.ir.simplify import simplify
from autotensor.ir.visit import walk
from autotensor.te.dag import ComputeDAG
from autotensor.te.stage import StageOp
from peers.peer_spec import Skip, cache_folder

HEAD = """import numba
import numpy as np

f32 = np.float32


@numba.njit(parallel=True, fastmath=True, cache=True)
def run({arguments}):"""


def compiled(dag: ComputeDAG, threads: int) -> Callable[..., Any]:
    """The program as a function. numba compiles it for these types once on each machine."""
    code = text(dag, threads)
    name = f"program_{hashlib.sha256(code.encode()).hexdigest()[:16]}"
    # the source is in a file, because numba keeps the code next to it
    path = Path(cache_folder(), "numba", f"{name}.py")
    path.parent.mkdir(exist_ok=True)
    path.write_text(code)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    run: Callable[..., Any] = module.run
    return run


def text(dag: ComputeDAG, threads: int) -> str:
    """The function's source. Raises Skip for programs with recurrences or reductions of several values."""
    if dag.carried:
        raise Skip("nobody has written loops for it")
    short, _ = dag.canonical()
    lines = [HEAD.format(arguments=", ".join(b.name for b in short.inputs))]
    for s in _joined(short):
        if len(s.bodies) != 1:
            raise Skip("a stage of several values")
        lines += [f"    {line}" for line in _nest(s, threads)]
    lines.append(f"    return {', '.join(b.name for b in short.outputs)}")
    return "\n".join(lines) + "\n"


def _joined(dag: ComputeDAG) -> list[StageOp]:
    """The stages, without those that are inside the expression of their only reader."""
    read = Counter(n.buffer for s in dag.stages for b in s.bodies for n in walk(b) if isinstance(n, Load))
    inside: dict[Buffer, StageOp] = {}

    def at_home(node: object) -> Expr | None:
        if isinstance(node, Load) and node.buffer in inside:
            s = inside[node.buffer]
            # own names for the axes, then the indices in their place
            there = {a.var: Var(f"{s.name}_{a.name}") for a in s.axes}
            return substitute(
                substitute(s.bodies[0], there), dict(zip(there.values(), node.indices, strict=True))
            )
        return None

    kept = []
    for s in dag.stages:
        bodies = tuple(simplify(transform(b, at_home)) for b in s.bodies)
        now = StageOp(s.name, s.axes, s.reduce_axes, bodies, s.combiner, s.buffers)
        b = s.buffers[0]
        if len(bodies) == 1 and s.combiner is None and read[b] == 1 and b not in dag.outputs:
            inside[b] = now
        else:
            kept.append(now)
    return kept


def _nest(s: StageOp, threads: int) -> list[str]:
    """The loops of a stage."""
    (b,), (body,) = s.buffers, s.bodies
    shape = tuple(a.extent for a in s.axes)
    lines = [f"{b.name} = np.empty({shape}, np.{b.dtype})"]
    place = f"{b.name}[{', '.join(a.name for a in s.axes)}]"
    if s.combiner is None:
        return lines + _loops([(a.name, str(a.extent)) for a in s.axes], [f"{place} = {_text(body)}"])
    sums = [(a.name, str(a.extent)) for a in s.reduce_axes]
    (left,), (right,), (result,), (identity,) = (
        s.combiner.lhs, s.combiner.rhs, s.combiner.result, s.combiner.identity,
    )  # fmt: skip
    first = _text(identity)

    def joined(so_far: str) -> str:
        return f"{so_far} = {_text(result, {left: so_far, right: _text(body)})}"

    spatial = [(a.name, str(a.extent)) for a in s.axes]
    if not _along(body, s.axes[-1].var) or _along(body, s.reduce_axes[-1].var) > _along(body, s.axes[-1].var):
        inner = ["total = " + first, *_loops(sums, [joined("total")], parallel=False), f"{place} = total"]
        return lines + _loops(spatial, inner)
    name, extent = spatial[-1]
    if len(spatial) > 1:
        row = [(name, extent)]
        return lines + _loops(
            spatial[:-1],
            [
                *_loops(row, [f"{place} = {first}"], parallel=False),
                *_loops([*sums, *row], [joined(place)], parallel=False),
            ],
        )
    part = [(name, f"p * {extent} // {threads}, (p + 1) * {extent} // {threads}")]
    every = [
        *_loops(part, [f"{place} = {first}"], parallel=False),
        *_loops([*sums, *part], [joined(place)], parallel=False),
    ]
    return lines + _loops([("p", str(threads))], every)


def _along(body: Expr, var: Var) -> int:
    """The number of reads that go along the axis element by element."""
    loads = {n for n in walk(body) if isinstance(n, Load)}
    return sum(bool(n.indices) and stride(n.indices[-1], var) == 1 for n in loads)


def _loops(axes: list[tuple[str, str]], inner: list[str], parallel: bool = True) -> list[str]:
    lines = []
    for n, (name, extent) in enumerate(axes):
        lines.append(
            f"{'    ' * n}for {name} in {'numba.prange' if parallel and not n else 'range'}({extent}):"
        )
    return [*lines, *(f"{'    ' * len(axes)}{line}" for line in inner)]


def _text(e: Expr, env: Mapping[Expr, str] | None = None) -> str:
    """An expression in Python."""
    known = env or {}

    def go(e: Expr) -> str:
        if e in known:
            return known[e]
        match e:
            case Var(name):
                return name
            case Const(value, t):
                if not t.is_float:
                    return repr(value)
                return f"f32({value!r})" if abs(value) < float("inf") else f"f32({'-' * (value < 0)}np.inf)"
            case Binary(Op.MIN | Op.MAX as op, a, b):
                return f"{op.value}({go(a)}, {go(b)})"
            case Binary(op, a, b):
                word = {Op.AND: "and", Op.OR: "or"}.get(op, op.value) if a.dtype.is_bool else op.value
                return f"({go(a)} {word} {go(b)})"
            case Compare(op, a, b):
                return f"({go(a)} {op.value} {go(b)})"
            case Unary(op, a):
                return f"({'-' if op is Neg.NEG else 'not '}{go(a)})"
            case Select(cond, a, b):
                return f"({go(a)} if {go(cond)} else {go(b)})"
            case Cast(t, a):
                return f"np.{t}({go(a)})"
            case Call(name, args):
                return f"np.{name}({', '.join(map(go, args))})"
            case Load(buffer, indices, None):
                return f"{buffer.name}[{', '.join(map(go, indices))}]"
        raise Skip(f"{type(e).__name__} has no loops")

    return go(e)

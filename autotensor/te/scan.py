"""Loops that carry state: a tensor of which each step is computed from steps before it.

    s = te.placeholder((T, n), name="s")                        stands for the results of earlier steps
    y = te.scan(te.compute((1, n), lambda t, i: x[0, i]),       the first step, or the first few
                te.compute((T, n), lambda t, i: 0.9 * s[t - 1, i] + x[t, i]),
                s)

A step may read any step before it under a condition that says so: Σ_k select(k < t, l[t, k] * s[k, i], 0).
The update may use other computes that read the state (the gates of a recurrent layer), each with the step as
its first axis. In the DAG the state is a buffer of its own, so that stages stay in order; `carried` says to
which result the earlier steps in this buffer belong. Source: `te.scan` of TVM.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from autotensor.base.absent_names import takes_its_names
from autotensor.base.errors import TensorError
from autotensor.ir.affine import affine
from autotensor.ir.bounds import Bounds, Interval, bounds
from autotensor.ir.expr import Load, Select, select
from autotensor.ir.func import Buffer
from autotensor.ir.node import Node, children
from autotensor.te.stage import StageOp
from autotensor.te.symbols import symbols_of
from autotensor.te.tensor import AxisKind, Compute, IterVar, Placeholder, Tensor, check_name

Carried = tuple[
    tuple[Buffer, Buffer], ...
]  # (the buffer from which a step reads earlier steps, the result whose steps this buffer holds)


@takes_its_names("te.scan", {})
def scan(
    init: Any, update: Any, state_placeholder: Any, inputs: Any = None, name: str = "scan", tag: str = ""
) -> Any:
    """A tensor that is computed step by step: first as `init` says, then as `update` does.

    init: [steps, …], the first steps. update: [T, …], any later step; it reads `state_placeholder`, of the
    same shape, at earlier steps: s[t - 1, …]. For several states, each argument is a list, all states have
    one shape, and the result is a list. inputs: the other tensors, as in TVM; not needed.
    Raises TensorError for shapes and types that do not fit.
    """
    firsts, updates, states = (_listed(x) for x in (init, update, state_placeholder))
    if not firsts or len({len(firsts), len(updates), len(states)}) != 1:
        raise TensorError(
            f"scan {name!r}: {len(firsts)} init, {len(updates)} update and {len(states)} state tensors.",
            fix="Give as many of each.",
        )
    shape = states[0].shape
    if symbols := symbols_of(*shape):
        raise TensorError(
            f"scan {name!r}: extent {symbols[0]} is known at run time only; a scan takes numbers.",
            fix="Write a number for the te.var.",
        )
    for a, u, s in zip(firsts, updates, states, strict=True):
        _check(name, shape, a, u, s)
    axes = tuple(
        IterVar(n, e, AxisKind.SPATIAL)
        for n, e in zip(("t", *(f"i{k}" for k in range(len(shape) - 1))), shape, strict=True)
    )
    at = tuple(a.var for a in axes)
    bodies = tuple(select(at[0] < a.shape[0], a[at], u[at]) for a, u in zip(firsts, updates, strict=True))
    op = Compute(check_name(name), axes, (), bodies, tag, tuple(s.op for s in states))  # type: ignore[misc]
    outputs = [op.output(n) for n in range(len(bodies))]
    return outputs if isinstance(state_placeholder, (list, tuple)) else outputs[0]


def _listed(x: Any) -> list[Tensor]:
    return list(x) if isinstance(x, (list, tuple)) else [x]


def _check(name: str, shape: tuple[int, ...], first: Tensor, update: Tensor, state: Tensor) -> None:
    if not isinstance(state.op, Placeholder):
        raise TensorError(f"scan {name!r}: state {state.name!r} is computed; it must be a placeholder.")
    if state.shape != shape or not shape:
        raise TensorError(
            f"scan {name!r}: states have shapes {shape} and {state.shape}; all must have one, steps first."
        )
    if update.shape != shape or not first.shape or first.shape[1:] != shape[1:]:
        raise TensorError(
            f"scan {name!r}: state {state.name!r} has shape {shape}, its init {first.shape} and its update "
            f"{update.shape}.",
            fix="Init differs in the number of steps only, update in nothing.",
        )
    if not 0 < first.shape[0] <= shape[0]:
        raise TensorError(f"scan {name!r}: init has {first.shape[0]} of {shape[0]} steps; give at least one.")
    if len({first.dtype, update.dtype, state.dtype}) != 1:
        raise TensorError(
            f"scan {name!r}: state, init and update of {state.name!r} have types {state.dtype}, "
            f"{first.dtype} and {update.dtype}.",
            fix="Cast them to one.",
        )


def before_of(result: str) -> str:
    """The canonical name of the buffer that holds the earlier steps of `result`."""
    return f"{result}.before"


# -- in a DAG ----------------------------------------------------------------------------------------------


def steps_of(host: StageOp, stages: Sequence[StageOp], carried: Carried) -> tuple[StageOp, ...]:
    """The stages that each step of a recurrence computes anew: producers first, `host` itself last.

    There are none if `host` carries no state.
    """
    known = {before for before, after in carried if after in host.buffers}
    if not known:
        return ()
    found = []
    for s in stages:
        if s is host or any(b in known for b in s.reads()):
            found.append(s)
            known.update(s.buffers)
        if s is host:
            break
    return tuple(found)


def hosts(stages: Iterable[StageOp], carried: Carried) -> tuple[StageOp, ...]:
    """The stages that carry state from step to step."""
    return tuple(s for s in stages if any(after in s.buffers for _, after in carried))


def check_steps(stages: Sequence[StageOp], outputs: Sequence[Buffer], carried: Carried) -> None:
    """Raises TensorError if a step reads values that do not exist yet, or if another stage reads values that
    the steps compute on their way.
    """
    for host in hosts(stages, carried):
        first = first_steps(host)
        inside = steps_of(host, stages, carried)
        before = {b for b, after in carried if after in host.buffers}
        mine = {b: s for s in inside for b in s.buffers}
        for s in inside:
            if not s.axes or s.axes[0].extent != host.axes[0].extent:
                raise TensorError(
                    f"scan {host.name!r}: {s.name!r} reads its state; its first axis must be the steps, "
                    f"{host.axes[0].extent} of them."
                )
            for load in _too_late(s, before, first):
                t = s.axes[0].name
                raise TensorError(
                    f"scan {host.name!r}: {s.name!r} reads its state at {load.indices[0]}; it can read steps "
                    f"{t} - 1 to {t} - {first}, as many as init has.",
                    fix=f"Say of others that they are before it: te.select(k < {t}, s[k], 0.0).",
                )
            for load in s.loads():
                if load.buffer in mine and load.buffer not in before and load.indices[0] is not s.axes[0].var:
                    raise TensorError(
                        f"scan {host.name!r}: {s.name!r} reads {load.buffer.name!r} of another step, "
                        f"{load.indices[0]}.",
                        fix="Make it a state of the scan, too.",
                    )
        for s in stages:
            if s not in inside and any(b in mine and mine[b] is not host for b in s.reads()):
                raise TensorError(
                    f"scan {host.name!r}: {s.name!r} reads what its steps compute on their way.",
                    fix="Make it a state of the scan.",
                )
        if lost := [b.name for b in outputs if b in mine and mine[b] is not host]:
            raise TensorError(
                f"scan {host.name!r}: {lost[0]!r}, which its steps compute on their way, is a result.",
                fix="Make it a state of the scan.",
            )


def _too_late(s: StageOp, before: Collection[Buffer], first: int) -> Iterator[Load]:
    """Reads of the state at a step that, under the conditions around them, may not be before their own."""
    far = [x for x in s.loads() if x.buffer in before and not 1 <= (steps_back(x, s) or 0) <= first]
    if not far:
        return
    t, *others = s.all_axes
    ranges = {a.var: Interval(0, a.extent - 1) for a in others}
    known = bounds({**ranges, t.var: Interval(first, t.extent - 1)})
    for load, here in (found for body in s.bodies for found in _with_conditions(body, known)):
        step = load.indices[0] if load in far else None
        if step is not None and not (here.decide(step < t.var) and here.decide(step >= 0)):
            yield load


def _with_conditions(e: Node, known: Bounds) -> Iterator[tuple[Load, Bounds]]:
    """The loads of an expression, each with the bounds that the choices around it give."""
    if isinstance(e, Select):
        yield from _with_conditions(e.cond, known)
        yield from _with_conditions(e.then, known.assuming(e.cond))
        yield from _with_conditions(e.otherwise, known.assuming(e.cond, False))
        return
    if isinstance(e, Load):
        yield e, known
    for c in children(e):
        yield from _with_conditions(c, known)


def steps_back(load: Load, s: StageOp) -> int | None:
    """How many steps before its own step a stage reads; None if the load's first index is of another form."""
    a = affine(load.indices[0])
    if a is None or dict(a.terms) != {s.axes[0].var: 1}:
        return None
    return -int(a.constant)


def first_steps(host: StageOp) -> int:
    """How many steps of a scan's stage `init` gives."""
    cond = host.bodies[0].cond  # type: ignore[attr-defined]
    return int(cond.b.value)

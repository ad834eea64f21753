"""Loops over steps in a graph: what one step computes, said once.

    def step(h, x):                             nodes: a state [batch, n], a step of a sequence [batch, n]
        return [ops.tanh(ops.dense(h, u) + x)]

    (hs,), (h,) = over_steps(step, [h0], [xs])  xs: [steps, batch, n] ──▶ hs: [steps, batch, n]

Few steps are written out: each is kernels of its own, which all threads share, and which are the same for all
steps and so tuned once. Many are one scan, whose code does not grow with them. For that the te computes of
the step's operators get the steps as their first axis: states are read one step before, sequences at the
step. What a step reads of the graph outside (weights) is the same for all steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count

from autotensor import te
from autotensor.base.errors import TensorError
from autotensor.graph.build import call, input, ops
from autotensor.graph.infer_types import compute_te
from autotensor.graph.ir import Apply, GraphNode, topological
from autotensor.ir.expr import Expr, Load, Var
from autotensor.ir.rewrite import transform
from autotensor.te import AxisKind, Compute, IterVar, Tensor

MOST_WRITTEN_OUT = 64  # steps
JOINED = 8  # steps that one kernel puts beside one another

Step = Callable[..., Sequence[GraphNode]]
# what stands for one step → of what it is a row, and which one at step t; None: it is no row
Reads = Mapping[Tensor, tuple[Tensor, Callable[[Var], Expr] | None]]


def over_steps(
    step: Step, states: Sequence[GraphNode], sequences: Sequence[GraphNode], reverse: bool = False
) -> tuple[tuple[GraphNode, ...], tuple[GraphNode, ...]]:
    """Each state after every step, [steps, …] in the order of the sequences; and each after the last.

    step: the states and one step of each sequence ──▶ the next states, all of one shape and type.
    states: before the first step. reverse: from the last step of the sequences to the first.
    Raises TensorError where states of many steps differ in shape or type, and for sequences of no steps.
    """
    steps = sequences[0].shape[0]
    if steps == 0:
        raise TensorError("over_steps: the sequences have no steps.", fix="Give at least one.")
    if steps > MOST_WRITTEN_OUT:
        found = _scanned(step, states, sequences, reverse)
        return found, tuple(at_step(s, 0 if reverse else steps - 1) for s in found)
    seen = []
    last = tuple(states)
    for t in reversed(range(steps)) if reverse else range(steps):
        last = tuple(step(*last, *(at_step(x, t) for x in sequences)))
        seen.append(last)
    return tuple(in_sequence(s) for s in zip(*(seen[::-1] if reverse else seen), strict=True)), last


# -- written out -------------------------------------------------------------------------------------------


def at_step(x: GraphNode, t: int) -> GraphNode:
    """x[t]."""
    return ops.reshape(ops.slice(x, (t,), (t + 1,)), x.shape[1:])


def in_sequence(steps: Sequence[GraphNode]) -> GraphNode:
    """[batch, width] of every step as [steps, batch, width]; a few at a time, each a case of a kernel."""
    parts: list[GraphNode] = [ops.reshape(s, (1, *s.shape)) for s in steps]
    while len(parts) > 1:
        groups = [parts[n : n + JOINED] for n in range(0, len(parts), JOINED)]
        parts = [ops.concat(*g, axis=0) if len(g) > 1 else g[0] for g in groups]
    return parts[0]


# -- one scan ----------------------------------------------------------------------------------------------


def _scanned(
    step: Step, states: Sequence[GraphNode], sequences: Sequence[GraphNode], reverse: bool
) -> tuple[GraphNode, ...]:
    before = [input(s.shape, s.dtype) for s in states]
    parts = [input(x.shape[1:], x.dtype) for x in sequences]
    after = step(*before, *parts)
    nodes, outside = _apart(after, [*before, *parts])
    steps = sequences[0].shape[0]

    def loop(*tensors: Tensor) -> tuple[Tensor, ...]:
        mine = iter(tensors)
        firsts, given = [next(mine) for _ in before], [next(mine) for _ in parts]
        leaves: dict[GraphNode, Tensor] = {
            n: te.placeholder(n.shape, n.dtype, name="leaf") for n in (*before, *parts)
        }
        values: dict[GraphNode, Tensor] = {**leaves, **dict(zip(outside, mine, strict=True))}
        made: dict[object, tuple[Tensor, ...]] = {}  # results of one application are nodes of their own
        for node in nodes:
            key = node.op, node.inputs, node.attrs
            if key not in made:
                made[key] = compute_te(node.op, [values[x] for x in node.inputs], node.attrs)
            values[node] = made[key][node.output]
        rows = [te.placeholder((steps, *s.shape), s.dtype, name="before") for s in states]

        def of_step(t: Var) -> Expr:
            return steps - 1 - t if reverse else t

        own = {leaves[n]: (x, of_step) for n, x in zip(parts, given, strict=True)}
        start = own | {leaves[n]: (f, None) for n, f in zip(before, firsts, strict=True)}
        later = own | {leaves[n]: (row, _before) for n, row in zip(before, rows, strict=True)}
        results = [values[a] for a in after]
        first, update = ([lift.result(r) for r in results] for lift in (_Lift(1, start), _Lift(steps, later)))
        found = te.scan(first, update, rows, name="states")
        return tuple(map(_turned, found) if reverse else found)

    found = call(loop, *states, *sequences, *outside, name="steps")
    return found if isinstance(found, tuple) else (found,)


def _apart(
    results: Sequence[GraphNode], leaves: Sequence[GraphNode]
) -> tuple[list[Apply], tuple[GraphNode, ...]]:
    """Nodes that depend on a leaf, in order, and what else they read."""
    inside: dict[GraphNode, None] = dict.fromkeys(leaves)
    nodes = []
    outside: dict[GraphNode, None] = {}
    for node in topological(results):
        if isinstance(node, Apply) and any(x in inside for x in node.inputs):
            inside[node] = None
            nodes.append(node)
            outside |= dict.fromkeys(x for x in node.inputs if x not in inside)
    outside |= dict.fromkeys(r for r in results if r not in inside)
    return nodes, tuple(outside)


class _Lift:
    """Te computes of one step with the steps as their first axis."""

    def __init__(self, rows: int, reads: Reads) -> None:
        self.rows = rows
        self.reads = {(id(t.op), t.index): how for t, how in reads.items()}
        self.made: dict[int, Compute | None] = {}  # None: is the same at all steps
        self.number = count()

    def result(self, t: Tensor) -> Tensor:
        """The tensor at every step."""
        op = self.of(t.op)
        if op is not None:
            return op.output(t.index)

        def same(r: Var, *i: Var) -> Expr:
            return self.load(r, Load(t, i))

        names = ("t", *(f"i{n}" for n in range(len(t.shape))))
        return te.compute((self.rows, *t.shape), same, name=f"same{next(self.number)}", axis_names=names)  # type: ignore[no-any-return]

    def load(self, r: Var, node: Load) -> Load:
        t = node.buffer
        assert isinstance(t, Tensor)
        if (id(t.op), t.index) in self.reads:
            of, row = self.reads[id(t.op), t.index]
            return Load(of, (*([row(r)] if row else ()), *node.indices), node.mask)
        op = self.of(t.op)
        return node if op is None else Load(op.output(t.index), (r, *node.indices), node.mask)

    def of(self, op: object) -> Compute | None:
        if not isinstance(op, Compute):
            return None
        if id(op) not in self.made:
            depends = any((id(t.op), t.index) in self.reads or self.of(t.op) for t in op.input_tensors)
            self.made[id(op)] = self.lifted(op) if depends else None
        return self.made[id(op)]

    def lifted(self, op: Compute) -> Compute:
        r = IterVar("t", self.rows, AxisKind.SPATIAL)

        def at_row(node: object) -> Expr | None:
            return self.load(r.var, node) if isinstance(node, Load) else None

        bodies = tuple(transform(b, at_row) for b in op.bodies)
        return Compute(
            f"{op.name}_{next(self.number)}", (r, *op.axes), op.reduce_axes, bodies, op.tag, op.states
        )


def _before(t: Var) -> Expr:
    return t - 1


def _turned(x: Tensor) -> Tensor:
    """The last step first."""
    names = ("t", *(f"i{n}" for n in range(len(x.shape) - 1)))
    return te.compute(  # type: ignore[no-any-return]
        x.shape, lambda t, *i: x[(x.shape[0] - 1 - t, *i)], name="turned", axis_names=names
    )

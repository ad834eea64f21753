"""Loops over steps in a graph: the computation of one step is written once.

    def step(h, x):                             nodes: a state [batch, n], a step of a sequence [batch, n]
        return [ops.tanh(ops.dense(h, u) + x)]

    (hs,), (h,) = over_steps(step, [h0], [xs])  xs: [steps, batch, n] ──▶ hs: [steps, batch, n]

Few steps are written out. Each step is then kernels of its own, which all threads share; the kernels are the
same for all steps, so they are tuned once. Many steps are one scan, whose code does not grow with their
number. For a scan, the te computes of the step's operators get the steps as their first axis: states are read
one step before, and sequences at the step itself. Values from outside that a step reads (weights) are the
same for all steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from math import prod

from autotensor import te
from autotensor.base.errors import TensorError
from autotensor.graph.build import call, input, ops
from autotensor.graph.infer_types import compute_te, type_text
from autotensor.graph.ir import Apply, GraphNode, topological
from autotensor.ir.expr import Expr, Load, Var
from autotensor.ir.rewrite import transform
from autotensor.te import AxisKind, Compute, IterVar, Tensor

MOST_WRITTEN_OUT = 64  # most steps that are written out
MOST_KEPT = 1 << 29  # most bytes for the states of all steps
JOINED = 8  # number of steps that one kernel joins

Step = Callable[..., Sequence[GraphNode]]
# the expression for an element of one step, at step t: (t, indices) → the element
Reads = Mapping[Tensor, Callable[[Var, tuple[Expr, ...]], Expr]]


def over_steps(
    step: Step, states: Sequence[GraphNode], sequences: Sequence[GraphNode], reverse: bool = False
) -> tuple[tuple[GraphNode, ...], tuple[GraphNode, ...]]:
    """Each result of every step, [steps, …] in the order of the sequences, and each state after the last one.

    step: the states and one step of each sequence ──▶ the next states, of the same shapes and types, and any
    other results of a step.
    states: before the first step. reverse: from the last step of the sequences to the first.
    Raises TensorError if a state changes its shape or type, or if the sequences have no steps.
    """
    steps = sequences[0].shape[0]
    if steps == 0:
        raise TensorError("over_steps: the sequences have no steps.", fix="Give at least one.")
    if is_loop(states, steps):
        return _looped(step, states, sequences, reverse)
    seen = []
    last = tuple(states)
    for t in reversed(range(steps)) if reverse else range(steps):
        made = tuple(step(*last, *(at_step(x, t) for x in sequences)))
        last = made[: len(states)]
        seen.append(made)
    return tuple(in_sequence(s) for s in zip(*(seen[::-1] if reverse else seen), strict=True)), last


def is_loop(states: Sequence[GraphNode], steps: int) -> bool:
    """Whether this many steps become a loop.

    A loop keeps the states of all steps, so they must not be large.
    """
    bytes_ = sum(prod(s.shape) * s.dtype.bytes for s in states)
    return steps > MOST_WRITTEN_OUT and steps * bytes_ <= MOST_KEPT


# -- written out -------------------------------------------------------------------------------------------


def at_step(x: GraphNode, t: int) -> GraphNode:
    """x[t]."""
    return ops.reshape(ops.slice(x, (t,), (t + 1,)), x.shape[1:])


def in_sequence(steps: Sequence[GraphNode]) -> GraphNode:
    """[batch, width] of every step as [steps, batch, width]; each kernel joins only a few steps."""
    parts: list[GraphNode] = [ops.reshape(s, (1, *s.shape)) for s in steps]
    while len(parts) > 1:
        groups = [parts[n : n + JOINED] for n in range(0, len(parts), JOINED)]
        parts = [ops.concat(*g, axis=0) if len(g) > 1 else g[0] for g in groups]
    return parts[0]


# -- one scan ----------------------------------------------------------------------------------------------


def _looped(
    step: Step, states: Sequence[GraphNode], sequences: Sequence[GraphNode], reverse: bool
) -> tuple[tuple[GraphNode, ...], tuple[GraphNode, ...]]:
    if len({s.shape for s in states}) > 1:
        return _of_one_shape(step, states, sequences, reverse)
    walk = _Walk(step, states, sequences, reverse)
    rows = walk.states() if states else ()  # without a state, steps do not wait for one another
    last = tuple(at_step(s, 0 if reverse else len_of(sequences) - 1) for s in rows)
    return (*rows, *walk.others(rows)), last


def _of_one_shape(
    step: Step, states: Sequence[GraphNode], sequences: Sequence[GraphNode], reverse: bool
) -> tuple[tuple[GraphNode, ...], tuple[GraphNode, ...]]:
    """States of several shapes as lines of one length, filled up with 0."""
    longest = max(prod(s.shape) for s in states)

    def line(x: GraphNode) -> GraphNode:
        short = ops.reshape(x, shape=(prod(x.shape),))
        return ops.pad(short, pads=((0, longest - short.shape[0]),))

    def shaped(lines: Sequence[GraphNode], *steps: int) -> list[GraphNode]:
        """Each [*steps, longest] ──▶ [*steps, *shape]."""
        whole = (0,) * len(steps)
        return [
            ops.reshape(ops.slice(x, (*whole, 0), (*steps, prod(s.shape))), shape=(*steps, *s.shape))
            for x, s in zip(lines, states, strict=True)
        ]

    def one(*given: GraphNode) -> list[GraphNode]:
        made = _checked(states, step(*shaped(given[: len(states)]), *given[len(states) :]))
        return [*map(line, made[: len(states)]), *made[len(states) :]]

    rows, last = _looped(one, [line(s) for s in states], sequences, reverse)
    count = len(states)
    return (*shaped(rows[:count], len_of(sequences)), *rows[count:]), tuple(shaped(last))


def _checked(states: Sequence[GraphNode], made: Sequence[GraphNode]) -> tuple[GraphNode, ...]:
    """The results of a step, after a check that the new states have the types of the old ones."""
    for old, new in zip(states, made, strict=False):
        if old.type != new.type:
            raise TensorError(
                f"over_steps: a state is {type_text(old.type)}, and after a step {type_text(new.type)}.",
                fix="Give it one shape and type.",
            )
    return tuple(made)


def len_of(sequences: Sequence[GraphNode]) -> int:
    """The number of steps."""
    return int(sequences[0].shape[0])


class _Walk:
    """The computation of one step, traced on inputs of one step and then put into loops."""

    def __init__(
        self, step: Step, states: Sequence[GraphNode], sequences: Sequence[GraphNode], reverse: bool
    ) -> None:
        self.first, self.sequences, self.reverse = states, sequences, reverse
        self.steps = len_of(sequences)
        self.before: list[GraphNode] = [input(s.shape, s.dtype) for s in states]
        self.parts: list[GraphNode] = [input(x.shape[1:], x.dtype) for x in sequences]
        made = _checked(states, step(*self.before, *self.parts))
        self.after, self.more = made[: len(states)], made[len(states) :]

    def states(self) -> tuple[GraphNode, ...]:
        """Each state after every step, in the order of the sequences."""
        inside = _Inside(self.after, [*self.before, *self.parts])
        given = [(n, x) for n, x in zip(self.parts, self.sequences, strict=True) if n in inside.read]

        def loop(*tensors: Tensor) -> tuple[Tensor, ...]:
            mine = iter(tensors)
            firsts, sequences = [next(mine) for _ in self.before], [next(mine) for _ in given]
            rows = [te.placeholder((self.steps, *s.shape), s.dtype, name="before") for s in self.before]

            def at(t: Var) -> Expr:
                return self.steps - 1 - t if self.reverse else t

            own = {n: _row(x, at) for (n, _), x in zip(given, sequences, strict=True)}
            start = own | {n: _same(f) for n, f in zip(self.before, firsts, strict=True)}
            later = own | {n: _row(x, lambda t: t - 1) for n, x in zip(self.before, rows, strict=True)}
            rest = [*mine]
            first, update = inside.lifted(1, start, rest), inside.lifted(self.steps, later, rest)
            found = te.scan(first, update, rows, name="states")
            return tuple(map(_turned, found) if self.reverse else found)

        return _several(call(loop, *self.first, *(x for _, x in given), *inside.outside, name="steps"))

    def others(self, rows: Sequence[GraphNode]) -> tuple[GraphNode, ...]:
        """The results of steps other than states, computed for all steps at once.

        rows: the states after every step, which are known by then.
        """
        known = dict(zip(self.after, rows, strict=True))
        asked = [x for x in dict.fromkeys(self.more) if x not in known]
        computed = [a for a in known if isinstance(a, Apply)]  # these are not computed again
        inside = _Inside(asked, [*self.before, *self.parts, *computed])
        back = range(len(rows))
        leaves = {n: x for n, x in zip(self.parts, self.sequences, strict=True) if n in inside.read}
        leaves |= {n: known[n] for n in computed if n in inside.read}
        earlier = [k for k in back if self.before[k] in inside.read]

        def at_once(*tensors: Tensor) -> list[Tensor]:
            mine = iter(tensors)
            reads = {n: _row(next(mine), lambda t: t) for n in leaves}
            for k in earlier:
                reads[self.before[k]] = self.row_before(next(mine), next(mine))
            return inside.lifted(self.steps, reads, [*mine])

        if asked:
            pairs = [x for k in earlier for x in (self.first[k], rows[k])]
            made = call(at_once, *leaves.values(), *pairs, *inside.outside, name="of_steps")
            known |= dict(zip(asked, _several(made), strict=True))
        return tuple(known[x] for x in self.more)

    def row_before(self, first: Tensor, rows: Tensor) -> Callable[[Var, tuple[Expr, ...]], Expr]:
        """A state before step t."""
        by = 1 if self.reverse else -1

        def read(t: Var, i: tuple[Expr, ...]) -> Expr:
            inner = t < self.steps - 1 if self.reverse else t > 0
            return te.select(inner, Load(rows, (t + by, *i)), Load(first, i))

        return read


def _row(x: Tensor, at: Callable[[Var], Expr]) -> Callable[[Var, tuple[Expr, ...]], Expr]:
    return lambda t, i: Load(x, (at(t), *i))


def _same(x: Tensor) -> Callable[[Var, tuple[Expr, ...]], Expr]:
    return lambda _, i: Load(x, i)


def _several(x: GraphNode | tuple[GraphNode, ...]) -> tuple[GraphNode, ...]:
    return x if isinstance(x, tuple) else (x,)


class _Inside:
    """The nodes between the leaves and the results, and all other values that these nodes read.

    Leaves are values that differ from step to step.
    """

    def __init__(self, results: Sequence[GraphNode], leaves: Sequence[GraphNode]) -> None:
        self.results = results
        inside: dict[GraphNode, None] = dict.fromkeys(leaves)
        self.nodes: list[Apply] = []
        outside: dict[GraphNode, None] = {}
        for node in topological(results, known=inside):
            if isinstance(node, Apply) and node not in inside and any(x in inside for x in node.inputs):
                self.nodes.append(node)
                inside[node] = None
                outside |= dict.fromkeys(x for x in node.inputs if x not in inside)
        outside |= dict.fromkeys(r for r in results if r not in inside)
        self.outside = tuple(outside)
        self.read = {x for n in self.nodes for x in n.inputs} | set(results)

    def lifted(
        self,
        rows: int,
        reads: Mapping[GraphNode, Callable[[Var, tuple[Expr, ...]], Expr]],
        outside: Sequence[Tensor],
    ) -> list[Tensor]:
        """The results at this many steps.

        reads: how to read each leaf. outside: values that are the same at all steps.
        """
        leaves = {n: te.placeholder(n.shape, n.dtype, name="leaf") for n in reads}
        values: dict[GraphNode, Tensor] = {**leaves, **dict(zip(self.outside, outside, strict=True))}
        made: dict[object, tuple[Tensor, ...]] = {}  # the results of one application are separate nodes
        for node in self.nodes:
            key = node.op, node.inputs, node.attrs
            if key not in made:
                made[key] = compute_te(node.op, [values[x] for x in node.inputs], node.attrs)
            values[node] = made[key][node.output]
        lift = _Lift(rows, {leaves[n]: how for n, how in reads.items()})
        return [lift.result(values[r]) for r in self.results]


class _Lift:
    """Te computes of one step, with the steps as an added first axis."""

    def __init__(self, rows: int, reads: Reads) -> None:
        self.rows = rows
        self.reads = {(id(t.op), t.index): how for t, how in reads.items()}
        self.made: dict[int, Compute | None] = {}  # None: the compute is the same at all steps
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

    def load(self, r: Var, node: Load) -> Expr:
        t = node.buffer
        assert isinstance(t, Tensor)
        if (id(t.op), t.index) in self.reads:
            return self.reads[id(t.op), t.index](r, node.indices)
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


def _turned(x: Tensor) -> Tensor:
    """x with its steps in reverse order."""
    names = ("t", *(f"i{n}" for n in range(len(x.shape) - 1)))
    return te.compute(  # type: ignore[no-any-return]
        x.shape, lambda t, *i: x[(x.shape[0] - 1 - t, *i)], name="turned", axis_names=names
    )

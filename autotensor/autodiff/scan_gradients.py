"""Scans backwards: the adjoint of every step of a recurrence is a recurrence from the last step to the first.

    y[t] = f(y[t-1], …)          adjoint[t] = g[t] + (adjoint of step t+1's reads of y[t])

    apart(scan)     the steps as ordinary stages over all steps at once: they read y in place of the state,
                    so they have no recurrence and are differentiated like other stages
    backwards(…)    the recurrence of the adjoints: row `reach + n` is the adjoint of step `last - n`

The first `reach` rows are zeros, so that every step can read rows before its own. An intermediate stage of a
step has one adjoint in each row. If steps read the state from several distances, it has one adjoint for each
distance. Source: backpropagation through time (Werbos, 1990).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

from autotensor import te
from autotensor.autodiff.derivatives import Guarded, joined, partials, under
from autotensor.autodiff.gradient_functions import Placeholders, Reading, reading_of
from autotensor.autodiff.inverse_accesses import invert
from autotensor.base.dtype import int64
from autotensor.base.errors import GraphError
from autotensor.graph.function import instantiate
from autotensor.ir.affine import affine
from autotensor.ir.expr import Expr, Load, Select, Var, const
from autotensor.ir.func import Buffer
from autotensor.ir.rewrite import substitute, transform
from autotensor.ir.visit import contains, free_vars
from autotensor.te import Tensor
from autotensor.te.dag import StageOp
from autotensor.te.scan import Carried, first_steps, steps_back, steps_of

# result n of a stage as one term of a sum, and the adjoint of that term, from the adjoint of the result
OneTerm = Callable[[StageOp, int, Load], tuple[Expr, Expr]]


@dataclass(frozen=True)
class Scan:
    """A recurrence. The stages of its steps are separate: each goes over all steps except the first ones."""

    host: StageOp
    states: Mapping[Buffer, Buffer]  # buffer of a state that steps read → the result that it belongs to
    first: tuple[StageOp, ...]  # for each result, the stage of the first steps
    steps: tuple[StageOp, ...]  # intermediate stages of later steps, producers first
    updates: tuple[StageOp, ...]  # for each result, the stage of later steps

    @property
    def length(self) -> int:
        """The number of steps, the first ones included."""
        return int(self.host.axes[0].extent)

    @property
    def given(self) -> int:
        """The number of first steps that are given."""
        return int(self.first[0].axes[0].extent)

    @property
    def reach(self) -> int:
        """The greatest number of steps that a step reads back; 1 if no step reads back."""
        return max(self.distances, default=1)

    @property
    def distances(self) -> tuple[int, ...]:
        """All numbers of steps that a step reads back, sorted."""
        found = {self.distance(x) for s in (*self.steps, *self.updates) for x in s.loads()}
        return tuple(sorted(d for d in found if d))

    def distance(self, load: Load) -> int:
        """The number of steps that a load reads back; 0 if it reads no state."""
        if load.buffer not in self.states:
            return 0
        index = affine(load.indices[0])
        assert index is not None  # `apart` has checked the reads
        return self.given - int(index.constant)


def scan_function(host: StageOp, stages: Sequence[StageOp], carried: Carried) -> Reading:
    """The recurrence alone, as a function."""
    reads = Placeholders()
    before = {after: b for b, after in carried}
    states = {before[b].name: te.placeholder(b.shape, b.dtype, name=f"{b.name}_before") for b in host.buffers}
    made: dict[str, Tensor] = dict(states)
    for s in steps_of(host, stages, carried):
        tensors = {b.name: made[b.name] if b.name in made else reads.of(b) for b in s.reads()}
        op = instantiate(s, tensors, tuple(x.op for x in states.values()) if s is host else ())
        made |= {b.name: op.output(n) for n, b in enumerate(s.buffers)}
    return reading_of(host.name, reads, [made[b.name] for b in host.buffers])


def apart(host: StageOp, stages: Sequence[StageOp], carried: Carried) -> Scan:
    """The recurrence of a stage of a DAG as `Scan`.

    Raises GraphError if a step does not read a constant number of steps back.
    """
    given = first_steps(host)
    states = {before: after for before, after in carried if after in host.buffers}
    for s in steps_of(host, stages, carried):
        for load in s.loads():
            if load.buffer in states and steps_back(load, s) is None:
                raise GraphError(
                    f"scan {host.name!r}: its steps read the state at {load.indices[0]}; gradients need a "
                    "constant number of steps back.",
                    fix=f"Read it at {s.axes[0].name} - 1, or at other constant distances.",
                )
    inside = [s for s in steps_of(host, stages, carried) if s is not host]
    later = {
        b: Buffer(b.name, (b.shape[0] - given, *b.shape[1:]), b.dtype) for s in inside for b in s.buffers
    }

    def shifted(s: StageOp) -> StageOp:
        steps = replace(s.axes[0], extent=s.axes[0].extent - given)
        old, new = s.axes[0].var, steps.var

        def own(node: object) -> Expr | None:
            if isinstance(node, Load) and node.buffer in later:
                return Load(later[node.buffer], (new, *node.indices[1:]), node.mask)
            return None

        bodies = tuple(transform(substitute(b, {old: new + given}), own) for b in s.bodies)
        return replace(
            s,
            axes=(steps, *s.axes[1:]),
            bodies=bodies,
            buffers=tuple(later.get(b, b) for b in s.buffers),
        )

    return Scan(
        host,
        states,
        _parts(host, given, True),
        tuple(map(shifted, inside)),
        _parts(shifted(host), given, False),
    )


def _parts(host: StageOp, given: int, first: bool) -> tuple[StageOp, ...]:
    """For each result, a stage of its first steps, or of its later steps."""
    rows = given if first else host.axes[0].extent
    axes = (replace(host.axes[0], extent=rows), *host.axes[1:])
    found = []
    for body, b in zip(host.bodies, host.buffers, strict=True):
        assert isinstance(body, Select)
        name = f"{b.name}_{'first' if first else 'update'}"
        mine, buffer = body.then if first else body.otherwise, Buffer(name, (rows, *b.shape[1:]), b.dtype)
        found.append(StageOp(name, axes, (), (mine,), None, (buffer,)))
    return tuple(found)


def backwards(
    scan: Scan, live: Collection[Buffer], grads: Mapping[Buffer, Buffer], one_term: OneTerm
) -> Reading:
    """The adjoints of live results: [reach + steps, …], last step first.

    live: the buffers whose adjoints are needed. grads: the given part of each adjoint, as result → buffer of
    its shape; a missing part is 0.
    Raises GraphError for a step that has no derivative.
    """
    walk = _Backwards(scan, live, one_term)
    return reading_of(f"d_{scan.host.name}", walk.reads, walk.scan_of(grads))


class _Backwards:
    """The te computes of the rows of a backward recurrence."""

    def __init__(self, scan: Scan, live: Collection[Buffer], one_term: OneTerm) -> None:
        self.scan, self.live, self.one_term = scan, live, one_term
        self.inside = {b for s in scan.steps for b in s.buffers}
        self.rows = scan.reach + scan.length
        self.reads = Placeholders()
        self.states = {
            b: te.placeholder((self.rows, *b.shape[1:]), b.dtype, name=f"later_{b.name}")
            for b in scan.host.buffers
            if b in live
        }

    def scan_of(self, grads: Mapping[Buffer, Buffer]) -> list[Tensor]:
        scan = self.scan
        parts: dict[Buffer, list[Tensor]] = {b: [] for b in self.states}
        for distance in scan.distances:
            self.add_parts(distance, parts)
        nothing, rows = [], []
        for b in self.states:

            def row(r: Var, *i: Var, b: Buffer = b) -> Expr:
                terms: list[Expr] = [p[(r, *i)] for p in parts[b]]
                if b in grads:
                    given = Load(self.reads.of(grads[b]), (scan.length - 1 + scan.reach - r, *i))
                    terms.append(under((r >= scan.reach,), given))
                return _total(terms, b)

            nothing.append(self.rows_of(f"none_{b.name}", scan.reach, b, lambda *_, b=b: _total((), b)))
            rows.append(self.rows_of(f"back_{b.name}", self.rows, b, row))
        found: list[Tensor] = te.scan(nothing, rows, [*self.states.values()], name=f"d_{scan.host.name}")
        return found

    def rows_of(self, name: str, rows: int, b: Buffer, body: Callable[..., Expr]) -> Tensor:
        names = ("r", *(f"i{n}" for n in range(len(b.shape) - 1)))
        return te.compute((rows, *b.shape[1:]), body, name=name, axis_names=names)  # type: ignore[no-any-return]

    def add_parts(self, distance: int, parts: dict[Buffer, list[Tensor]]) -> None:
        """Adds to `parts`, for each result's adjoint, the contributions of steps that read it from this
        distance."""
        scan = self.scan
        pending: dict[Buffer, list[Tensor]] = {b: [] for b in self.inside}
        for b, s in zip(scan.host.buffers, scan.updates, strict=True):
            if b in self.states:
                later = lambda r, *i, b=b: self.states[b][(r - distance, *i)]  # noqa: E731
                self.add_accesses(s, 0, later, distance, pending, parts)
        for s in reversed(scan.steps):
            for n, b in enumerate(s.buffers):
                if pending[b]:
                    adjoint = lambda r, *i, b=b: _total([p[(r, *i)] for p in pending[b]], b)  # noqa: E731
                    self.add_accesses(s, n, adjoint, distance, pending, parts)

    def add_accesses(
        self,
        s: StageOp,
        n: int,
        adjoint: Callable[..., Expr],
        distance: int,
        pending: dict[Buffer, list[Tensor]],
        parts: dict[Buffer, list[Tensor]],
    ) -> None:
        """Adds the contribution of result n of the stage to the stage's inputs.

        adjoint: the adjoint of the result, at row r and further indices. pending: contributions to the same
        step. parts: contributions to the step that is `distance` steps earlier.
        """
        own = Buffer(".adjoint", (1,), s.buffers[n].dtype)  # a name that no tensor has
        body, seed = self.one_term(s, n, Load(own, tuple(a.var for a in s.axes)))
        for load, guarded in partials(body, seed).items():
            if load.buffer in self.live and load.buffer in self.inside:
                pending[load.buffer].append(self.access(s, load, guarded, own, adjoint, distance))
            elif load.buffer in self.live and self.scan.distance(load) == distance:
                read = self.scan.states[load.buffer]
                parts[read].append(self.access(s, load, guarded, own, adjoint, distance))

    def access(
        self,
        s: StageOp,
        load: Load,
        guarded: Guarded,
        own: Buffer,
        adjoint: Callable[..., Expr],
        distance: int,
    ) -> Tensor:
        """The contribution of one access, in rows: row r belongs to the step whose adjoint is in row r.

        own: the buffer that stands for the stage's adjoint in `guarded`.
        """
        scan, buffer = self.scan, load.buffer
        assert isinstance(buffer, Buffer)
        steps = scan.length - scan.given
        axes = {a.var: a.extent for a in s.all_axes}

        def body(r: Var, *rest: Var) -> Expr:
            step = steps - 1 + scan.reach + distance - r
            place = (Var(".step", int64), *rest)  # a name that no axis has
            inverse = invert((s.axes[0].var, *load.indices[1:]), (steps, *buffer.shape[1:]), place, axes)
            open_ = {v: te.reduce_axis(n, f"r{k}") for k, (v, n) in enumerate(inverse.remaining.items())}
            swap = {v: x.var for v, x in open_.items()} | {place[0]: step}
            values = {v: substitute(e, swap) for v, e in inverse.values.items()}
            values = {**{v: x.var for v, x in open_.items()}, **values}

            def read(node: object) -> Expr | None:
                if not isinstance(node, Load) or not isinstance(node.buffer, Buffer):
                    return None
                return adjoint(r, *node.indices[1:]) if node.buffer is own else self.reads.load(node)

            slope, one = joined(guarded), const(1, own.dtype)
            # rows before the last step are 0, and stay 0 if the factor is the same at all steps
            factor = transform(slope, lambda n: one if isinstance(n, Load) and n.buffer is own else None)
            varies = s.axes[0].var in free_vars(factor) or contains(factor, Load)
            is_step = [r >= scan.reach + distance] * varies + [step >= 0] * (distance < scan.given)
            guards = [*is_step, *(transform(substitute(g, swap), read) for g in inverse.guards)]
            value = under(guards, transform(substitute(slope, values), read))
            return te.sum(value, axis=list(open_.values())) if open_ else value

        name = f"d_{s.name}_{scan.states.get(buffer, buffer).name}"
        return self.rows_of(name, self.rows, buffer, body)


def _total(terms: Sequence[Expr], b: Buffer) -> Expr:
    return reduce(add, terms) if terms else const(0, b.dtype)

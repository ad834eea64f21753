"""Tensor expressions as the rest of the system sees them: a DAG of named stages, as plain frozen data.

    te objects (identity)  ──ComputeDAG.of──▶  StageOp records over Buffers, by name

Every stage and axis has a unique name; if two want the name `k`, they become `k` and `k_1`. Bodies mention
their own axes as `Var(axis name)` and other tensors as `Load(Buffer)`. `canonical()` renames stages to t0…,
inputs to a0…, axes to i0…/r0…, so that equal computations are equal data, whatever names their authors chose.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autotensor.base.counted import few
from autotensor.base.dtype import DType, int64
from autotensor.base.errors import TensorError
from autotensor.base.names import free_name
from autotensor.ir.expr import Combiner, Expr, Load, Reduce, Symbol, Var, as_expr
from autotensor.ir.func import Buffer
from autotensor.ir.rewrite import substitute, transform
from autotensor.ir.visit import walk
from autotensor.te.scan import Carried, before_of, check_steps
from autotensor.te.stage import IterDef, StageOp
from autotensor.te.symbols import Extent, at_run_time, greatest, symbols_of
from autotensor.te.tensor import Compute, IterVar, Placeholder, Tensor
from autotensor.te.terms import flops


@dataclass(frozen=True, slots=True)
class ComputeDAG:
    """Stages, producers first; `inputs` and `outputs` in the order in which a caller passes them."""

    inputs: tuple[Buffer, ...]
    constants: frozenset[str]  # names of inputs whose value is given once
    stages: tuple[StageOp, ...]
    outputs: tuple[Buffer, ...]
    args: tuple[str, ...]  # names of inputs and outputs, in calling order
    # for scans: (the buffer from which a step reads earlier steps, the result whose steps this buffer holds)
    carried: Carried = ()
    # id(te op), index → Buffer
    tensors: Mapping[tuple[int, int], Buffer] = field(default_factory=dict, compare=False, repr=False)
    # te objects, kept alive: no other object may get their ids
    keep: tuple[object, ...] = field(default=(), compare=False, repr=False)

    @staticmethod
    def of(args: Tensor | Sequence[Tensor]) -> ComputeDAG:
        """The DAG of the computed tensors in `args`; the placeholders in `args` fix the calling order.

        Placeholders that are read but not listed come first, in order of use (so `of([C])` works).
        Raises TensorError when nothing is computed, or no stage reads a listed placeholder.
        """
        listed = tuple(args) if isinstance(args, (tuple, list)) else (args,)
        for t in listed:
            if not isinstance(t, Tensor):
                raise TensorError(
                    f"arguments must be tensors, got {type(t).__name__}.",
                    fix="Write [A, B, C], not their ops.",
                )
        if len({(id(t.op), t.index) for t in listed}) != len(listed):
            raise TensorError(f"the arguments list a tensor twice: {', '.join(t.name for t in listed)}.")
        return _build(listed)

    def __repr__(self) -> str:
        """One line: the stages' expressions alone would fill pages."""
        arrays = f"{few(b.name for b in self.inputs)} -> {few(b.name for b in self.outputs)}"
        return f"ComputeDAG({arrays}; stages {few(s.name for s in self.stages)})"

    def stage(self, name: str) -> StageOp:
        for s in self.stages:
            if s.name == name:
                return s
        raise TensorError(f"there is no stage {name!r}; there are {', '.join(s.name for s in self.stages)}.")

    def with_carried(self, more: Carried) -> ComputeDAG:
        """The same DAG with more carried results: schedules may compute a stage in steps like a scan."""
        return replace(self, carried=(*self.carried, *more)) if more else self

    def producer(self, buffer: Buffer) -> StageOp | None:
        """The stage that writes the buffer; None for inputs."""
        for s in self.stages:
            if buffer in s.buffers:
                return s
        return None

    def consumers(self, stage: StageOp) -> tuple[StageOp, ...]:
        return tuple(s for s in self.stages if any(b in stage.buffers for b in s.reads()))

    def symbols(self) -> tuple[Symbol, ...]:
        """The extents that are known at run time only, in order of appearance."""
        shapes = [e for b in self.inputs for e in b.extents]
        axes = [a.runtime for s in self.stages for a in s.all_axes if a.runtime is not None]
        return symbols_of(*shapes, *axes, *(n for s in self.stages for n in s.body_symbols))

    def flops(self) -> int:
        """Floating-point operations of the part that runs at every call."""
        fixed = self.constant_stages()
        return sum(flops(s) for s in self.stages if s.name not in fixed)

    def constant_stages(self) -> frozenset[str]:
        """Stages that depend on constants only; they are prepared, not run."""
        known = set(self.constants)
        found = set()
        for s in self.stages:
            reads = s.reads()
            if (
                reads
                and not s.is_open
                and all(b.name in known for b in reads)
                and not any(b in self.outputs for b in s.buffers)
            ):
                found.add(s.name)
                known.update(b.name for b in s.buffers)
        return frozenset(found)

    def canonical(self) -> tuple[ComputeDAG, dict[str, str]]:
        """The same DAG under canonical names, and the map from old to new names (`stage` and `stage.axis`).

        Reducers that te does not define get the name `reduce`. Tags are for people, so they are dropped.
        """
        names: dict[str, str] = {b.name: f"a{n}" for n, b in enumerate(self.inputs)}
        for n, s in enumerate(self.stages):
            names[s.name] = f"t{n}"
            for m, b in enumerate(s.buffers):
                names[b.name] = f"t{n}" if m == 0 else f"t{n}_v{m}"
            names.update({f"{s.name}.{a.name}": f"i{m}" for m, a in enumerate(s.axes)})
            names.update({f"{s.name}.{a.name}": f"r{m}" for m, a in enumerate(s.reduce_axes)})
        names.update({before.name: before_of(names[after.name]) for before, after in self.carried})
        names.update({f"{s.name}?": f"n{n}" for n, s in enumerate(self.symbols())})
        renamed = self.renamed(names)
        return replace(renamed, stages=tuple(_anonymous(s) for s in renamed.stages)), names

    def renamed(self, names: Mapping[str, str]) -> ComputeDAG:
        """The DAG with buffers, stages (`stage`) and axes (`stage.axis`) renamed; unknown names stay."""

        def buffer(b: Buffer) -> Buffer:
            extents = tuple(substitute(e, symbols) for e in b.extents)
            return Buffer(names.get(b.name, b.name), b.shape, b.dtype, b.scope, b.strides, (), 0, extents)

        symbols: dict[Var, Expr] = {
            s: Symbol(names.get(f"{s.name}?", s.name), s.type, s.least, s.most) for s in self.symbols()
        }

        def axis(s: StageOp, a: IterDef) -> IterDef:
            runtime = None if a.runtime is None else substitute(a.runtime, symbols)
            return replace(a, name=names.get(f"{s.name}.{a.name}", a.name), runtime=runtime)

        def stage(s: StageOp) -> StageOp:
            swap = {**symbols, **{a.var: axis(s, a).var for a in s.all_axes}}
            bodies = tuple(
                transform(
                    substitute(b, swap),
                    lambda n: Load(buffer(n.buffer), n.indices, n.mask) if isinstance(n, Load) else None,
                )
                for b in s.bodies
            )
            return StageOp(
                names.get(s.name, s.name),
                tuple(axis(s, a) for a in s.axes),
                tuple(axis(s, a) for a in s.reduce_axes),
                bodies,
                s.combiner,
                tuple(buffer(b) for b in s.buffers),
                s.tag,
            )

        return ComputeDAG(
            tuple(buffer(b) for b in self.inputs),
            frozenset(names.get(c, c) for c in self.constants),
            tuple(stage(s) for s in self.stages),
            tuple(buffer(b) for b in self.outputs),
            tuple(names.get(a, a) for a in self.args),
            tuple((buffer(before), buffer(after)) for before, after in self.carried),
            {key: buffer(b) for key, b in self.tensors.items()},
            self.keep,
        )

    def buffer_of(self, tensor: Tensor) -> Buffer:
        """The buffer of a te tensor of this DAG. Raises TensorError for anything else."""
        if not isinstance(tensor, Tensor):
            raise TensorError(
                f"arguments must be tensors, got {type(tensor).__name__}.",
                fix="Write [A, B, C], not their ops.",
            )
        found = self.tensors.get((id(tensor.op), tensor.index))
        if found is None:
            raise TensorError(f"tensor {tensor.name!r} does not belong to this schedule.")
        return found

    def with_args(self, args: Sequence[Tensor]) -> ComputeDAG:
        """The same computation with another calling order; every input and output must be listed once."""
        order = tuple(self.buffer_of(t).name for t in args)
        wanted = {b.name for b in (*self.inputs, *self.outputs)}
        if missing := wanted - set(order):
            raise TensorError(
                f"the arguments lack {', '.join(map(repr, sorted(missing)))}.",
                fix="List every input and every result.",
            )
        if len(set(order)) != len(order):
            raise TensorError(f"the arguments list a tensor twice: {', '.join(order)}.")
        extra = [t for t, name in zip(args, order, strict=True) if name not in wanted]
        # a requested intermediate becomes an output
        outputs = (*self.outputs, *(self.buffer_of(t) for t in extra))
        rank = {name: n for n, name in enumerate(order)}
        return replace(
            self,
            inputs=tuple(sorted(self.inputs, key=lambda b: rank[b.name])),
            outputs=tuple(sorted(outputs, key=lambda b: rank[b.name])),
            args=order,
        )


def _anonymous(s: StageOp) -> StageOp:
    """The stage without its tag and without the name of a user's reducer."""
    c = s.combiner
    if c is not None and c.name not in ("sum", "prod", "max", "min", "any", "all"):
        c = Combiner("reduce", c.lhs, c.rhs, c.result, c.identity)
    return replace(s, combiner=c, tag="")


def _topological(outputs: Iterable[Tensor]) -> list[object]:
    """Ops needed for the outputs, producers first (placeholders included).

    The function does not recurse, because chains may be long.
    """
    order: list[object] = []
    done: set[int] = set()
    stack: list[tuple[object, bool]] = [(t.op, False) for t in reversed(list(outputs))]
    while stack:
        op, expanded = stack.pop()
        if id(op) in done:
            continue
        if expanded or isinstance(op, Placeholder):
            done.add(id(op))
            order.append(op)
            continue
        stack.append((op, True))
        stack.extend((t.op, False) for t in reversed(op.input_tensors))  # type: ignore[attr-defined]
    return order


def placeholders_of(outputs: Iterable[Tensor]) -> list[Placeholder]:
    """The placeholders from which the tensors are computed, in order of use."""
    ops = _topological(outputs)
    states = _states(ops)
    return [op for op in ops if isinstance(op, Placeholder) and op not in states]


def _states(ops: Iterable[object]) -> dict[Placeholder, Tensor]:
    """The placeholders that stand for earlier steps of scans, each with the result whose steps these are."""
    return {s: op.output(n) for op in ops if isinstance(op, Compute) for n, s in enumerate(op.states)}


def _build(listed: tuple[Tensor, ...]) -> ComputeDAG:
    outputs = tuple(t for t in listed if not isinstance(t.op, Placeholder))
    if not outputs:
        listed_inputs = "every argument is a placeholder" if listed else "no tensor is given"
        raise TensorError(f"nothing to compute: {listed_inputs}.")
    ops = _topological(outputs)
    placeholders = {id(t.op): t for t in listed if isinstance(t.op, Placeholder)}
    for t in listed:
        if t.op in _states(ops):
            raise TensorError(
                f"{t.name!r} is the state of a scan; it is not an argument.", fix="Leave it out."
            )
        if isinstance(t.op, Placeholder) and t.op not in [op for op in ops if isinstance(op, Placeholder)]:
            raise TensorError(f"placeholder {t.name!r} is listed but nothing reads it.")
    taken: set[str] = set()
    tensors: dict[tuple[int, int], Buffer] = {}

    read: dict[int, Tensor] = {}
    for op in ops:
        if not isinstance(op, Placeholder):
            for t in op.input_tensors:  # type: ignore[attr-defined]
                if isinstance(t.op, Placeholder):
                    read.setdefault(id(t.op), t)
    before = _states(ops)
    read = {key: t for key, t in read.items() if t.op not in before}
    unlisted = [t for key, t in read.items() if key not in placeholders]
    inputs: list[Buffer] = []
    constants: set[str] = set()
    for t in (*unlisted, *placeholders.values()):
        assert isinstance(t.op, Placeholder)
        b = buffer_of_shape(free_name(t.op.name, taken), t.shape, t.dtype)
        tensors[id(t.op), 0] = b
        inputs.append(b)
        if t.op.constant:
            if b.extents:
                raise TensorError(
                    f"constant {t.op.name!r} has extents that are known at run time only; "
                    "it is prepared before any call.",
                    fix="Give it a shape of numbers, or leave out constant=True.",
                )
            constants.add(b.name)
    for state, result in before.items():
        tensors[id(state), 0] = buffer_of_shape(
            free_name(f"{result.op.name}.before", taken), result.shape, result.dtype
        )
    stages = [_stage(op, taken, tensors) for op in ops if not isinstance(op, Placeholder)]
    carried = tuple(
        (tensors[id(state), 0], tensors[id(op), n])
        for op in ops
        if isinstance(op, Compute)
        for n, state in enumerate(op.states)
        if (id(state), 0) in tensors
    )
    out_buffers = tuple(tensors[id(t.op), t.index] for t in outputs)
    args = (
        *(b.name for b in inputs[: len(unlisted)]),
        *(tensors[id(t.op), t.index].name for t in listed),
    )
    check_steps(stages, out_buffers, carried)
    return ComputeDAG(
        tuple(inputs),
        frozenset(constants),
        tuple(stages),
        out_buffers,
        args,
        carried,
        tensors,
        (*listed, *ops),
    )


def _stage(op: object, taken: set[str], tensors: dict[tuple[int, int], Buffer]) -> StageOp:
    assert isinstance(op, Compute)
    name = free_name(op.name, taken)
    used: set[str] = set()

    def axis(a: IterVar) -> IterDef:
        return IterDef(free_name(a.name, used), greatest(a.extent), a.kind, at_run_time(a.extent))

    axes = tuple(map(axis, op.axes))
    reduces = tuple(map(axis, op.reduce_axes))
    swap = {a.var: d.var for a, d in zip((*op.axes, *op.reduce_axes), (*axes, *reduces), strict=True)}

    def lower_load(node: object) -> Expr | None:
        if isinstance(node, Load) and isinstance(node.buffer, Tensor):
            return Load(tensors[id(node.buffer.op), node.buffer.index], node.indices, node.mask)
        return None

    tops = op.bodies
    combiner = None
    if isinstance(tops[0], Reduce):
        combiner = tops[0].combiner
        tops = tops[0].sources
    bodies = tuple(substitute(transform(b, lower_load), swap) for b in tops)
    _check_bound(name, bodies, {d.var for d in (*axes, *reduces)})
    shape = tuple(a.extent for a in op.axes)
    buffers = tuple(
        buffer_of_shape(name if n == 0 else free_name(f"{name}_v{n}", taken), shape, b.dtype)
        for n, b in enumerate(op.bodies)
    )
    for n, b in enumerate(buffers):
        tensors[id(op), n] = b
    return StageOp(name, axes, reduces, bodies, combiner, buffers, op.tag)


def buffer_of_shape(name: str, shape: tuple[Extent, ...], dtype: DType) -> Buffer:
    """The buffer of a te tensor's shape."""
    greatest_shape = tuple(map(greatest, shape))
    if not symbols_of(*shape):
        return Buffer(name, greatest_shape, dtype)
    return Buffer(name, greatest_shape, dtype, extents=tuple(as_expr(n, int64) for n in shape))


def _check_bound(name: str, bodies: tuple[Expr, ...], known: set[Var]) -> None:
    for body in bodies:
        for node in walk(body):
            if isinstance(node, Var) and node not in known and not isinstance(node, Symbol):
                raise TensorError(
                    f"compute {name!r} uses axis {node.name.split('#')[0]!r} outside the reduction "
                    "that it belongs to.",
                    fix="Pass it as axis= of te.sum (or another reducer).",
                )


__all__ = ["ComputeDAG", "IterDef", "StageOp", "buffer_of_shape", "placeholders_of"]

"""The te functions of backward passes: one per element access of a stage.

    stage      c[i, j]   = sum_k a[i, k] * b[k, j]
    access     a[i, k]     under () has the derivative  g[i, j] * b[k, j]
    function   da[b0, b1] = sum_j g[b0, j] * b[b1, j]               (the access does not use j)

Each is an ordinary `TeFunction`, so that a backward pass is fused, scheduled and tuned like a forward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autotensor import te
from autotensor.autodiff.derivatives import Guarded, joined, under
from autotensor.autodiff.inverse_accesses import invert
from autotensor.base.errors import GraphError, TensorError
from autotensor.graph.function import TeFunction, instantiate
from autotensor.ir.expr import Expr, Load, Var
from autotensor.ir.func import Buffer
from autotensor.ir.rewrite import substitute, transform
from autotensor.te import Compute, Tensor, placeholder
from autotensor.te.dag import ComputeDAG, StageOp
from autotensor.te.workload import Workload


@dataclass(frozen=True, slots=True)
class Reading:
    """A function and the values that it takes, in order."""

    function: TeFunction
    inputs: tuple[Buffer, ...]


class Placeholders:
    """One placeholder for every buffer that is read."""

    def __init__(self) -> None:
        self.made: dict[Buffer, Tensor] = {}

    def of(self, buffer: Buffer) -> Tensor:
        if buffer not in self.made:
            name = buffer.name.replace(".", "_")  # a state's name has dots
            self.made[buffer] = placeholder(buffer.shape, buffer.dtype, name=name)
        return self.made[buffer]

    def read(self, e: Expr) -> Expr:
        """The expression with placeholders in place of buffers."""
        return transform(e, self.load)

    def load(self, node: object) -> Expr | None:
        """The same load of the buffer's placeholder; None for a node that does not load a buffer."""
        if isinstance(node, Load) and isinstance(node.buffer, Buffer):
            return Load(self.of(node.buffer), node.indices, node.mask)
        return None


def stage_function(stage: StageOp) -> Reading:
    """The function of the stage alone."""
    reads = Placeholders()
    op = instantiate(stage, {b.name: reads.of(b) for b in stage.reads()})
    return reading_of(stage.name, reads, [op.output(n) for n in range(len(stage.buffers))])


def adjoint_function(name: str, stage: StageOp, load: Load, guarded: Guarded) -> Reading:
    """The whole contribution of one access of a stage to the adjoint of the tensor that it reads.

    guarded: the derivative at (axes, reduce axes) of the stage.
    """
    reads = Placeholders()
    axes = {a.var: a.extent for a in stage.all_axes}

    def body(*place: Var) -> Expr:
        inverse = invert(load.indices, load.buffer.shape, place, axes)
        open_ = {v: te.reduce_axis(n, f"r{k}") for k, (v, n) in enumerate(inverse.remaining.items())}
        swap = {v: r.var for v, r in open_.items()}
        values = {v: substitute(e, swap) for v, e in inverse.values.items()}
        guards = [substitute(g, swap) for g in inverse.guards]
        value = reads.read(under(guards, substitute(joined(guarded), values)))
        guards = [reads.read(g) for g in guards]
        return te.sum(value, axis=list(open_.values())) if open_ else value

    names = [f"b{n}" for n in range(len(load.buffer.shape))]
    return _made(name, reads, load.buffer.shape, body, names)


def function_over(
    name: str, shape: Sequence[int], body: Callable[..., Expr], axes: Sequence[str] = ()
) -> Reading:
    """A function whose body is written with buffers: `body(*indices)` may load from any buffer."""
    reads = Placeholders()
    names = tuple(axes) or tuple(f"i{n}" for n in range(len(shape)))
    return _made(name, reads, shape, lambda *i: reads.read(body(*i)), names)


def _made(
    name: str, reads: Placeholders, shape: Sequence[int], body: Callable[..., Expr], names: Sequence[str]
) -> Reading:
    try:
        result = te.compute(tuple(shape), body, name=name, axis_names=tuple(names))
    except TensorError as error:
        raise GraphError(
            f"the derivative {name!r} cannot be written: {error.what}",
            fix="Give the operator a gradient of its own: @operator(…, gradient=…).",
        ) from error
    return reading_of(name, reads, [result])


def reading_of(name: str, reads: Placeholders, results: list[Tensor]) -> Reading:
    """The function of results that were computed from those placeholders."""
    used, pending = set[int](), [*results]
    while pending:
        t = pending.pop()
        if id(t) not in used and isinstance(t.op, Compute):
            pending += t.op.input_tensors
        used.add(id(t))
    inputs = {b: t for b, t in reads.made.items() if id(t) in used}
    dag = ComputeDAG.of([*inputs.values(), *results])
    outputs = tuple(dag.buffer_of(r).name for r in results)
    return Reading(TeFunction(name, dag, outputs, Workload.of(dag).key), tuple(inputs))

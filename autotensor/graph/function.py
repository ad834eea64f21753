"""User te functions as operators of a graph.

    def swish(x):                              # an author's own operator
        return te.compute(x.shape, lambda *i: x[i] * te.sigmoid(x[i]), name="swish")

    y = call(swish, x)                         # a node of the graph, like any operator

The function is traced once, on placeholders; the graph keeps the trace. Two functions with the same name and
the same computation are the same function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotensor.base.errors import GraphError, TensorError
from autotensor.ir.expr import Const, Expr, Load, Reduce, Var
from autotensor.ir.func import Buffer
from autotensor.ir.node import Node, children
from autotensor.ir.rewrite import substitute, transform
from autotensor.operators import Kind, TensorType
from autotensor.operators.operator_helpers import broadcast_load
from autotensor.te import AxisKind, Compute, IterVar, Tensor, placeholder
from autotensor.te.dag import ComputeDAG, StageOp
from autotensor.te.index_bounds import check_reads
from autotensor.te.workload import Workload


@dataclass(frozen=True, slots=True, eq=False)
class TeFunction:
    """A traced te function: from `dag.inputs`, in order, to `outputs`."""

    name: str
    dag: ComputeDAG
    outputs: tuple[str, ...]  # buffer names, in the order of the function's results
    key: str  # the workload's key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TeFunction) and (self.name, self.key) == (other.name, other.key)

    def __hash__(self) -> int:
        return hash((self.name, self.key))

    def __repr__(self) -> str:
        return f"TeFunction({self.name}, {self.key[:8]})"

    @staticmethod
    def trace(fn: Callable[..., Any], inputs: Sequence[TensorType], name: str = "") -> TeFunction:
        """The trace of `fn` on placeholders of these types.

        Raises GraphError when `fn` fails, returns something that is not computed, or reads tensors other than
        its arguments.
        """
        name = name or getattr(fn, "__name__", "function").strip("<>")
        tensors = [placeholder(t.shape, t.dtype, name=f"x{n}") for n, t in enumerate(inputs)]
        try:
            result = fn(*tensors)
            results = tuple(result) if isinstance(result, (tuple, list)) else (result,)
            _check_computed(name, results)
            dag = ComputeDAG.of([*tensors, *results])
            check_reads(dag)
        except (TensorError, TypeError) as error:
            fix = error.fix if isinstance(error, TensorError) else ""
            what = error.what if isinstance(error, TensorError) else str(error)
            raise GraphError(f"call: function {name!r} on {_listed(inputs)}: {what}", fix=fix) from error
        if len(dag.inputs) != len(tensors):
            others = ", ".join(b.name for b in dag.inputs[: len(dag.inputs) - len(tensors)])
            raise GraphError(
                f"call: function {name!r} reads {others}, not an argument of it.",
                fix="Make it an argument.",
            )
        outputs = tuple(dag.buffer_of(r).name for r in results)
        return TeFunction(name, dag, outputs, Workload.of(dag).key)

    @property
    def types(self) -> tuple[TensorType, ...]:
        """Types of the results."""
        found = {b.name: b for s in self.dag.stages for b in s.buffers}
        return tuple(TensorType(found[n].shape, found[n].dtype) for n in self.outputs)

    @property
    def kind(self) -> Kind:
        """How the function may be fused.

        ELEMENTWISE if it provably is elementwise, ANCHOR (an operator that takes an epilogue) if it reduces.
        """
        if len(self.outputs) > 1 or self.dag.carried:
            return Kind.OPAQUE
        if any(s.is_reduction for s in self.dag.stages):
            return Kind.ANCHOR
        shape = self.types[0].shape
        return Kind.ELEMENTWISE if all(_elementwise(s, shape) for s in self.dag.stages) else Kind.INJECTIVE

    @property
    def pointwise(self) -> bool:
        """Whether an element depends only on the elements at the same place, and not on the place itself."""
        if self.kind is not Kind.ELEMENTWISE:
            return False
        return not any(_reads_position(b) for s in self.dag.stages for b in s.bodies)

    def over(self, inputs: Sequence[Tensor], shape: tuple[int, ...]) -> tuple[Tensor, ...]:
        """A pointwise function over another shape; the inputs broadcast against it."""
        made: dict[str, Tensor] = {b.name: t for b, t in zip(self.dag.inputs, inputs, strict=True)}
        for stage in self.dag.stages:
            axes = tuple(IterVar(f"i{n}", extent, AxisKind.SPATIAL) for n, extent in enumerate(shape))

            def read(node: object, axes: tuple[IterVar, ...] = axes) -> Expr | None:
                if not (isinstance(node, Load) and isinstance(node.buffer, Buffer)):
                    return None
                return broadcast_load(made[node.buffer.name], axes)

            op = Compute(stage.name, axes, (), tuple(transform(b, read) for b in stage.bodies), stage.tag)
            made[stage.buffers[0].name] = op.output(0)
        return tuple(made[n] for n in self.outputs)

    def compute(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The traced computation on other tensors of the same types."""
        made: dict[str, Tensor] = {b.name: t for b, t in zip(self.dag.inputs, inputs, strict=True)}
        made |= {b.name: placeholder(b.shape, b.dtype, name="state") for b, _ in self.dag.carried}
        carries = {after: made[before.name].op for before, after in self.dag.carried}
        for stage in self.dag.stages:
            op = instantiate(stage, made, tuple(carries[b] for b in stage.buffers if b in carries))
            made |= {b.name: op.output(n) for n, b in enumerate(stage.buffers)}
        return tuple(made[n] for n in self.outputs)


def _check_computed(name: str, results: Sequence[Any]) -> None:
    for r in results:
        if not isinstance(r, Tensor) or not isinstance(r.op, Compute):
            what = "one of its arguments" if isinstance(r, Tensor) else f"a {type(r).__name__}"
            raise GraphError(f"call: function {name!r} returns {what}.", fix="Return computed tensors.")


def _listed(types: Sequence[TensorType]) -> str:
    return ", ".join(f"{t.dtype}{list(t.shape)}" for t in types) or "nothing"


def instantiate(stage: StageOp, tensors: Mapping[str, Tensor], states: tuple[Any, ...] = ()) -> Compute:
    """The stage as a new te compute over the given tensors.

    states: for a scan, the tensors that hold its earlier steps.
    """
    axes = tuple(IterVar(a.name, a.extent, a.kind) for a in stage.axes)
    reduces = tuple(IterVar(a.name, a.extent, a.kind) for a in stage.reduce_axes)
    swap = {old.var: new.var for old, new in zip(stage.all_axes, (*axes, *reduces), strict=True)}

    def read(node: object) -> Expr | None:
        if isinstance(node, Load) and isinstance(node.buffer, Buffer):
            return Load(tensors[node.buffer.name], node.indices, node.mask)
        return None

    bodies: tuple[Expr, ...] = tuple(substitute(transform(b, read), swap) for b in stage.bodies)
    if stage.combiner is not None:
        bodies = tuple(Reduce(stage.combiner, bodies, reduces, n) for n in range(len(bodies)))
    return Compute(stage.name, axes, reduces, bodies, stage.tag, states)


def _elementwise(stage: StageOp, shape: tuple[int, ...]) -> bool:
    """Whether every element is computed from the elements in the same place (or from broadcast ones)."""
    if len(stage.buffers) != 1 or stage.buffers[0].shape != shape:
        return False
    return all(_aligned(load, stage) for load in stage.loads())


def _reads_position(body: Expr) -> bool:
    """Whether an axis is used for anything but an index."""
    stack: list[object] = [body]
    while stack:
        node = stack.pop()
        if isinstance(node, Var):
            return True
        if isinstance(node, Node) and not isinstance(node, Load):
            stack.extend(children(node))
    return False


def _aligned(load: Load, stage: StageOp) -> bool:
    axes = stage.axes[len(stage.axes) - len(load.indices) :]
    if len(axes) != len(load.indices):
        return False
    pairs = zip(load.indices, axes, load.buffer.shape, strict=True)
    return all(i is a.var if n == a.extent else n == 1 and isinstance(i, Const) for i, a, n in pairs)

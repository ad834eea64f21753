"""Operators without a rule: their te bodies are differentiated, stage by stage, into nodes of the graph.

    softmax = (max, exp, sum, share, product)     ──▶     the adjoints of these five, last first

Values of the forward pass that a stage's derivative needs are computed by separate nodes (equal nodes are
merged, so derivatives share them); the operator's own result is the forward node.

sum        every term gets the adjoint of the sum
max, min   terms that equal the result share its adjoint equally
others     the result is a function of one term (reducer_gradients.py), so `prod` is right with terms of 0
scans      a backward recurrence gives the adjoints of all steps (scan_gradients.py), then as for stages
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from autotensor.autodiff.derivatives import partials
from autotensor.autodiff.gradient_functions import Reading, adjoint_function, function_over, stage_function
from autotensor.autodiff.reducer_gradients import around, complaint
from autotensor.autodiff.scan_gradients import Scan, apart, backwards, scan_function
from autotensor.base.errors import GraphError
from autotensor.base.names import free_name
from autotensor.graph.function import TeFunction
from autotensor.graph.infer_types import compute_te
from autotensor.graph.ir import Apply, GraphNode, apply
from autotensor.ir.expr import Expr, Load, cast, const, select
from autotensor.ir.func import Buffer
from autotensor.ir.rewrite import substitute
from autotensor.te import AxisKind, Compute, placeholder, reduce_axis
from autotensor.te import sum as te_sum
from autotensor.te.dag import ComputeDAG, IterDef, StageOp
from autotensor.te.scan import Carried, hosts, steps_of

BEST = ("max", "min")
NOTHING: Mapping[str, GraphNode] = MappingProxyType({})


def differentiate(node: Apply, g: GraphNode, wanted: Collection[int]) -> dict[int, GraphNode]:
    """The adjoints of the inputs with the indices `wanted`, from the adjoint `g` of the node's result. An
    adjoint that is 0 is left out.

    Raises GraphError for a reducer whose result depends on the order in which terms are joined.
    """
    body = _body(node)
    if body.passes is not None:
        return {body.passes: g} if body.passes in wanted else {}
    return _Backward(node, body, wanted).run(g)


@dataclass(frozen=True, slots=True)
class _Body:
    """An application as stages over buffers."""

    stages: tuple[StageOp, ...]
    inputs: Mapping[Buffer, int]  # buffer → index of the input
    outputs: Mapping[Buffer, int]  # buffer → index of the result
    result: Buffer | None
    carried: Carried = ()
    passes: int | None = None  # index of the input that is the result, unchanged


def _body(node: Apply) -> _Body:
    if isinstance(node.op, TeFunction):
        dag = node.op.dag
        inputs = {b: n for n, b in enumerate(dag.inputs)}
        found = {b.name: b for s in dag.stages for b in s.buffers}
        results = [found[name] for name in node.op.outputs]
    else:
        tensors = [placeholder(x.shape, x.dtype, name=f"x{n}") for n, x in enumerate(node.inputs)]
        made = compute_te(node.op, tensors, node.attrs)
        for n, t in enumerate(tensors):
            if made[node.output] is t:
                return _Body((), {}, {}, None, passes=n)
        dag = ComputeDAG.of([t for t in made if isinstance(t.op, Compute)])
        inputs = {b: int(b.name[1:]) for b in dag.inputs}
        results = [dag.buffer_of(t) for t in made if isinstance(t.op, Compute)]
    stages = tuple(part for s in dag.stages for part in _terms_apart(s))
    outputs = {b: n for n, b in enumerate(results)}
    return _Body(stages, inputs, outputs, results[node.output], dag.carried)


def _terms_apart(stage: StageOp) -> tuple[StageOp, ...]:
    """Splits a reduction of computed terms, except a sum, into two stages: the terms, and a reduction of the
    stored terms. A comparison of a term with the maximum is right only if both have the same bits.
    """
    c = stage.combiner
    at = tuple(a.var for a in stage.all_axes)
    best = c is not None and c.name in ("max", "min")
    stored = isinstance(stage.bodies[0], Load) and (best or stage.bodies[0].indices == at)
    if c is None or c.name == "sum" or (len(stage.bodies) == 1 and stored):
        return (stage,)
    axes = tuple(IterDef(a.name, a.extent, AxisKind.SPATIAL) for a in stage.all_axes)
    shape = tuple(a.extent for a in axes)
    buffers = tuple(Buffer(f"{stage.name}_terms{n}", shape, b.dtype) for n, b in enumerate(stage.bodies))
    terms = StageOp(f"{stage.name}_terms", axes, (), stage.bodies, None, buffers)
    return terms, replace(stage, bodies=tuple(Load(b, at) for b in buffers))


class _Backward:
    """One walk over the stages of an application, last first."""

    def __init__(self, node: Apply, body: _Body, wanted: Collection[int]) -> None:
        self.node = node
        self.body = body
        self.parts = _parts(body)
        self.states = {b: after for b, after in body.carried}
        self.producer = {b: s for s in self.parts if isinstance(s, StageOp) for b in s.buffers}
        self.values: dict[Buffer, GraphNode] = {b: node.inputs[n] for b, n in body.inputs.items()}
        for b, n in body.outputs.items():
            same = n == node.output
            self.values[b] = node if same else apply(node.op, node.inputs, dict(node.attrs), n)
        self.targets = [b for b, n in body.inputs.items() if n in wanted and b.dtype.is_float]
        self.live = set(self.targets)  # buffers that depend on a target
        known = -1
        while known < len(self.live):  # a state that depends on a target does so in all steps
            known = len(self.live)
            for s, given in (pair for part in self.parts for pair in _given(part)):
                if any(b in self.live for b in s.reads()):
                    self.live |= {b for b in given if b.dtype.is_float}
            self.live |= {b for b, after in self.states.items() if after in self.live}
        self.adjoint: dict[Buffer, GraphNode] = {}
        # Names that buffers of a derivative may not have. The differentiated function may itself be a
        # derivative with a buffer `grad`, and equal buffers are one object.
        self.taken = {b.name for b in (*body.inputs, *self.producer, *self.states, *self.states.values())}
        self.grad = free_name("grad", self.taken)
        self.ties: dict[StageOp, Buffer] = {}  # number of terms that equal the result

    def run(self, g: GraphNode) -> dict[int, GraphNode]:
        assert self.body.result is not None
        self.adjoint[self.body.result] = g
        for stage in reversed(self.parts):
            if isinstance(stage, Scan):
                self.through_steps(stage)
                continue
            for n, b in enumerate(stage.buffers):
                if b in self.adjoint and b in self.live:
                    self.backward(stage, n, self.adjoint[b])
        return {self.body.inputs[b]: self.adjoint[b] for b in self.targets if b in self.adjoint}

    def value(self, buffer: Buffer) -> GraphNode:
        """A value of the forward pass."""
        if buffer in self.states:
            return self.value(self.states[buffer])
        if buffer not in self.values:
            stage = self.producer.get(buffer)
            if stage is None:
                stage = next(s for s in hosts(self.body.stages, self.body.carried) if buffer in s.buffers)
                made = scan_function(stage, self.body.stages, self.body.carried)
            else:
                made = stage_function(stage)
            for n, b in enumerate(stage.buffers):
                self.values[b] = self.node_of(made, n)
        return self.values[buffer]

    def node_of(
        self, reading: Reading, output: int = 0, given: Mapping[str, GraphNode] = NOTHING
    ) -> GraphNode:
        """The function applied to its values. given: values outside the forward pass, by name."""
        inputs = [given[b.name] if b.name in given else self.value(b) for b in reading.inputs]
        return apply(reading.function, inputs, output=output)

    # -- one stage -------------------------------------------------------------------------------------------
    def backward(self, stage: StageOp, n: int, g: GraphNode) -> None:
        """Adds the contribution of the stage's result n, with the adjoint `g`, to the adjoints of the stage's
        inputs."""
        if stage.combiner is not None and stage.combiner.name in BEST:
            g = g / self.value(self.ties_of(stage))
        seed = Load(Buffer(self.grad, stage.buffers[n].shape, g.dtype), tuple(a.var for a in stage.axes))
        for load, guarded in partials(*self.one_term(stage, n, seed)).items():
            if load.buffer not in self.live or load.buffer in self.states:
                continue
            name = f"d_{self.node.op_name}_{load.buffer.name}"
            self.add(
                load.buffer, self.node_of(adjoint_function(name, stage, load, guarded), given={self.grad: g})
            )

    def add(self, buffer: Buffer, g: GraphNode) -> None:
        before = self.adjoint.get(buffer)
        self.adjoint[buffer] = g if before is None else before + g

    def one_term(self, stage: StageOp, n: int, seed: Load) -> tuple[Expr, Expr]:
        """Result n as a function of one term, with the other terms as values, and the adjoint of that term.

        seed: the adjoint of the result; for a maximum, the share of each term that equals it.
        """
        reducer = "" if stage.combiner is None else stage.combiner.name
        body = stage.bodies[n]
        if reducer in BEST:
            return body, select(body.equal(Load(stage.buffers[n], seed.indices)), seed, const(0, seed.dtype))
        return body if reducer in ("", "sum") else self.through_one_term(stage, n), seed

    def through_one_term(self, stage: StageOp, n: int) -> Expr:
        """Result n of a user's reducer as a function of one term, with the other terms as values."""
        assert stage.combiner is not None
        if why := complaint(stage.combiner):
            raise GraphError(
                f"{self.node.op_name}: the reducer {stage.combiner.name!r} of stage {stage.name!r} has no "
                f"derivative: {why}, so its result depends on the order of its terms.",
                fix="Give the operator a gradient of its own: @operator(…, gradient=…).",
            )
        parts = around(stage)
        for part in parts.stages:
            self.producer |= dict.fromkeys(part.buffers, part)
        return parts.results[n]

    def ties_of(self, stage: StageOp) -> Buffer:
        """The number of terms that equal the result, as a buffer."""
        term, out = stage.bodies[0], stage.buffers[0]

        def count(*i: Expr) -> Expr:
            ks = [reduce_axis(a.extent, f"r{n}") for n, a in enumerate(stage.reduce_axes)]
            swap = dict(zip((a.var for a in stage.all_axes), (*i, *(k.var for k in ks)), strict=True))
            same = cast(out.dtype, substitute(term, swap).equal(Load(out, i)))
            return te_sum(same, axis=ks) if ks else same

        if stage not in self.ties:
            name = f"ties_{stage.name}"
            counted = Buffer(free_name(name, self.taken), out.shape, out.dtype)
            self.values[counted] = self.node_of(function_over(name, out.shape, count))
            self.ties[stage] = counted
        return self.ties[stage]

    # -- the steps of a recurrence ---------------------------------------------------------------------------
    def through_steps(self, scan: Scan) -> None:
        """Computes the adjoints of all steps, then differentiates the stages of first and later steps."""
        results = [b for b in scan.host.buffers if b in self.live]
        grads = {
            b: Buffer(free_name(f"grad_{b.name}", self.taken), b.shape, b.dtype)
            for b in results
            if b in self.adjoint
        }
        if not grads:
            return
        given = {grad.name: self.adjoint[b] for b, grad in grads.items()}
        reading = backwards(scan, self.live, grads, self.one_of_scan)
        last = scan.reach + scan.length - 1
        for b, first, update in zip(scan.host.buffers, scan.first, scan.updates, strict=True):
            if b not in results:
                continue
            rows = Buffer(self.grad, (last + 1, *b.shape[1:]), b.dtype)
            made = {self.grad: self.node_of(reading, results.index(b), given)}
            for stage, start in ((first, 0), (update, scan.given)):
                (buffer,) = stage.buffers

                def row(t: Expr, *i: Expr, rows: Buffer = rows, start: int = start) -> Expr:
                    return Load(rows, (last - start - t, *i))

                self.backward(
                    stage, 0, self.node_of(function_over(f"d_{buffer.name}", buffer.shape, row), given=made)
                )

    def one_of_scan(self, stage: StageOp, n: int, seed: Load) -> tuple[Expr, Expr]:
        """Like `one_term`, but the adjoint of a maximum's term is divided by the number of ties."""
        if stage.combiner is not None and stage.combiner.name in BEST:
            body, mine = self.one_term(stage, n, seed)
            return body, mine / Load(self.ties_of(stage), seed.indices)
        return self.one_term(stage, n, seed)


def _parts(body: _Body) -> tuple[StageOp | Scan, ...]:
    """The stages in order. A recurrence gives the stages of its steps, each over all steps at once, and then
    the recurrence itself."""
    scans = {h: apart(h, body.stages, body.carried) for h in hosts(body.stages, body.carried)}
    inside = {s: h for h in scans for s in steps_of(h, body.stages, body.carried) if s is not h}
    found: list[StageOp | Scan] = []
    for s in body.stages:
        if s in scans:
            found += [*scans[s].steps, scans[s]]
        elif s not in inside:
            found.append(s)
    return tuple(found)


def _given(part: StageOp | Scan) -> Iterator[tuple[StageOp, tuple[Buffer, ...]]]:
    """Stages, and the results of each."""
    if isinstance(part, StageOp):
        yield part, part.buffers
        return
    for stages in (part.first, part.updates):
        yield from ((s, (b,)) for s, b in zip(stages, part.host.buffers, strict=True))

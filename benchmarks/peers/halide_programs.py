"""Translates te programs to Halide programs: each stage becomes a Func, as a user of Halide would write it.

    pipeline_of(ComputeDAG.of(tensors), Writing())       Funcs and their inputs, not scheduled
    fastest(dag, "Adams2019", 2, arrays)                 compiled with that autoscheduler's schedule

te and Halide have the same elements: pure definitions, and update definitions over a reduction domain. If a
user of Halide has a choice, both forms are written (`writings`): small windows as sums over a domain or with
all terms written out, and conditions as part of the domain and the loops or as selects. Inputs that are read
outside their bounds (under a select) get `BoundaryConditions.repeat_edge`. The few channels of an image are
the outermost dimension with stride 1, as in Halide's own applications.
"""

from __future__ import annotations

import json
import operator
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import halide as hl
import numpy as np

from autotensor.ir.bounds import Interval, interval
from autotensor.ir.expr import (
    Binary,
    Call,
    Cast,
    Cmp,
    Compare,
    Const,
    Expr,
    Load,
    Neg,
    Op,
    Select,
    Unary,
    Var,
)
from autotensor.ir.func import Buffer
from autotensor.ir.rewrite import substitute
from autotensor.ir.visit import walk
from autotensor.te.dag import ComputeDAG
from autotensor.te.scan import first_steps, hosts, steps_of
from autotensor.te.stage import StageOp
from autotensor.te.workload import Workload
from peers.peer_spec import Array, Skip, cache_folder

LIBRARIES = os.path.join(os.path.dirname(hl.__file__), "lib64")
ALIGNED = 128  # alignment, in bytes
TRY_S = 0.15  # seconds to run each form
FEW = 4  # most channels: an axis of at most this many elements becomes the outermost dimension
WRITTEN_OUT, WINDOW = 32, 100  # most terms of a sum, and of a window, that are written out
TYPES = {"float32": hl.Float(32), "int32": hl.Int(32), "int64": hl.Int(32), "bool": hl.Bool()}
OPERATORS: dict[Op, Callable[[Any, Any], Any]] = {
    Op.ADD: lambda a, b: a + b, Op.SUB: lambda a, b: a - b, Op.MUL: lambda a, b: a * b,
    Op.DIV: lambda a, b: a / b, Op.FLOORDIV: lambda a, b: a // b, Op.MOD: lambda a, b: a % b,
    Op.MIN: hl.min, Op.MAX: hl.max, Op.AND: lambda a, b: a & b, Op.OR: lambda a, b: a | b,
}  # fmt: skip
COMPARISONS: dict[Cmp, Callable[[Any, Any], Any]] = {
    Cmp.EQ: operator.eq, Cmp.NE: operator.ne, Cmp.LT: operator.lt, Cmp.LE: operator.le,
    Cmp.GT: operator.gt, Cmp.GE: operator.ge,
}  # fmt: skip
FUNCTIONS: dict[str, Callable[..., Any]] = {
    # hl.tanh calls the C library for each element; this formula with exp uses vectors
    "tanh": lambda x: 1.0 - 2.0 / (1.0 + hl.exp(2.0 * x)),
    "sigmoid": lambda x: 1.0 / (1.0 + hl.exp(-x)),
}


@dataclass(frozen=True)
class Writing:
    """The choices of the person who writes the program."""

    written_out: bool = False  # windows are sums of terms, not loops over a domain
    # conditions are part of the domain (`RDom.where`), or marked likely (loops are cut there); else selects
    conditions: bool = True
    planes: bool = True  # few channels are the outermost dimension; else the innermost, as in memory
    guarded: bool = False  # every input is repeated at its edges; tried if a schedule reads beyond them


def writings(dag: ComputeDAG) -> list[Writing]:
    """The different forms in which a program can be written."""
    small = any(s.combiner and _is_small(s) for s in dag.stages)
    selects = [(s, n) for s in dag.stages for b in s.bodies for n in walk(b) if isinstance(n, Select)]
    chosen = any(s.combiner or _cuts_loops(n.cond) for s, n in selects)
    coloured = any(len(b.shape) > 2 and b.shape[-1] <= FEW for b in _buffers(dag))
    ways = (small, (False, True)), (chosen, (True, False)), (coloured, (True, False))
    return [Writing(*w) for w in product(*(both[: 1 + differ] for differ, both in ways))]


def _is_small(s: StageOp) -> bool:
    """Whether a person would write out all terms of a reduction: if there are few, or somewhat more in a
    sliding window."""
    spatial, summed = {a.var for a in s.axes}, {a.var for a in s.reduce_axes}
    indices = [set(walk(i)) for load in s.loads() for i in load.indices]
    window = any(i & spatial and i & summed for i in indices)
    return prod(a.extent for a in s.reduce_axes) <= (WINDOW if window else WRITTEN_OUT)


def order(shape: Sequence[int], writing: Writing) -> list[int]:
    """te's axes in Halide's order, innermost first.

    >>> order((1024, 1536, 3), Writing())
    [1, 0, 2]
    """
    axes = list(range(len(shape)))[::-1]
    return [*axes[1:], axes[0]] if writing.planes and len(shape) > 2 and shape[-1] <= FEW else axes


def as_buffer(array: Array, writing: Writing) -> Any:
    """The array in its own memory, with dimensions in Halide's order."""
    return hl.Buffer(array.transpose(order(array.shape, writing)[::-1]))


def empty(shape: tuple[int, ...], dtype: Any) -> Array:
    """A new array with the alignment of Halide's own buffers, because Halide's code may store whole
    vectors."""
    size = prod(shape) * np.dtype(dtype).itemsize
    raw = np.empty(size + ALIGNED, np.uint8)
    begin = -raw.ctypes.data % ALIGNED
    return raw[begin : begin + size].view(dtype).reshape(shape)


# -- reads outside bounds ------------------------------------------------------------------------------------


def reads_data(e: Expr) -> bool:
    return any(isinstance(n, Load) for n in walk(e))


def regions(dag: ComputeDAG) -> dict[str, tuple[Interval, ...]]:
    """The region that is needed of every buffer if both sides of every select are computed."""
    found = {b.name: tuple(Interval(0, n - 1) for n in b.shape) for b in _buffers(dag)}
    for s in reversed(dag.stages):
        needed = found[s.buffers[0].name]
        for b in s.buffers[1:]:
            needed = tuple(x.hull(y) for x, y in zip(needed, found[b.name], strict=True))
        ranges = {a.var: i for a, i in zip(s.axes, needed, strict=True)}
        ranges |= {a.var: Interval(0, a.extent - 1) for a in s.reduce_axes}
        for load in s.loads():
            if load.buffer.name in found:
                had = found[load.buffer.name]
                found[load.buffer.name] = tuple(
                    h if reads_data(e) else h.hull(interval(e, ranges))
                    for h, e in zip(had, load.indices, strict=True)
                )
    return found


def _buffers(dag: ComputeDAG) -> list[Buffer]:
    return [*dag.inputs, *(b for s in dag.stages for b in s.buffers)]


# -- stages --------------------------------------------------------------------------------------------------


@dataclass
class Translation:
    """A program during its translation."""

    dag: ComputeDAG
    writing: Writing
    inputs: dict[str, Any] = field(default_factory=dict)  # ImageParams
    # functions that give a buffer's value at indices
    funcs: dict[str, Callable[[Sequence[Any]], Any]] = field(default_factory=dict)
    computed: dict[str, Any] = field(default_factory=dict)  # Funcs

    def give(self, b: Buffer, needed: Sequence[Interval]) -> None:
        """Adds an input of fixed size and strides."""
        dims = order(b.shape, self.writing)
        param = hl.ImageParam(TYPES[str(b.dtype)], len(dims), b.name)
        for n, axis in enumerate(dims):
            stride = prod(b.shape[axis + 1 :])
            param.dim(n).set_bounds(0, b.shape[axis])
            param.dim(n).set_stride(stride)
        param.set_estimates([hl.Range(0, b.shape[axis]) for axis in dims])
        inside = all(i.within(Interval(0, n - 1)) for i, n in zip(needed, b.shape, strict=True))
        self.inputs[b.name] = param
        if inside and not self.writing.guarded:
            self.funcs[b.name] = lambda at: param[tuple(at[axis] for axis in dims)]
        else:
            repeated = hl.BoundaryConditions.repeat_edge(param)
            self.funcs[b.name] = lambda at: hl.Expr(repeated[tuple(at[axis] for axis in dims)])

    def add(self, s: StageOp) -> None:
        """Adds a stage that is not part of a scan."""
        if not s.combiner:
            self._define(s, lambda f, env: self._values(s.bodies, env))
            return
        if self.writing.written_out and _is_small(s) and len(s.bodies) == 1:
            self._define(s, lambda f, env: [self._window(s, env)])
            return
        self._define(s, lambda f, env: self._values(s.combiner.identity, env))  # type: ignore[union-attr]
        self._update(s)

    def add_step(self, s: StageOp) -> None:
        """Adds a stage that belongs to every step of a scan. It becomes part of the expressions that read
        it."""
        if s.combiner:
            raise Skip("a step of the recurrence has sums of its own")
        axes = [a.var for a in s.axes]
        for n, b in enumerate(s.buffers):
            self.funcs[b.name] = lambda at, n=n: self._values(s.bodies, dict(zip(axes, at, strict=True)))[n]

    def add_scan(self, host: StageOp, states: Mapping[str, int]) -> None:
        """Adds a recurrence: the first value as a definition, and an update definition along the steps."""
        first, time = first_steps(host), host.axes[0]
        f = self._define(host, lambda f, env: [hl.undef(TYPES[str(b.dtype)]) for b in host.buffers])
        for name, n in states.items():
            self.funcs[name] = lambda at, n=n: _component(f[tuple(at[a] for a in dims)], n, len(host.buffers))
        dims = self.order(host)
        for begin, extent, side in ((0, first, "then"), (first, time.extent - first, "otherwise")):
            domain = hl.RDom([hl.Range(begin, extent)])
            env = {**self.env(host), time.var: domain.x}
            at = tuple(env[host.axes[a].var] for a in dims)
            f[at] = _tuple(self._values([getattr(b, side) for b in host.bodies], env))

    def order(self, s: StageOp) -> list[int]:
        return order([a.extent for a in s.axes], self.writing)

    def env(self, s: StageOp) -> dict[Var, Any]:
        return {a.var: hl.Var(a.name) for a in s.axes}

    def _define(self, s: StageOp, values: Callable[[Any, Mapping[Var, Any]], list[Any]]) -> Any:
        """Writes the pure definition of a stage's Func."""
        f, env, dims = hl.Func(s.name), self.env(s), self.order(s)
        f[tuple(env[s.axes[a].var] for a in dims)] = _tuple(values(f, env))
        for n, b in enumerate(s.buffers):
            self.computed[b.name] = f
            self.funcs[b.name] = lambda at, n=n: _component(f[tuple(at[a] for a in dims)], n, len(s.buffers))
        return f

    def _values(self, bodies: Sequence[Expr], env: Mapping[Any, Any]) -> list[Any]:
        memo = dict(env)
        return [self.value(b, memo) for b in bodies]

    def _window(self, s: StageOp, env: Mapping[Var, Any]) -> Any:
        """A reduction as an expression of all its terms."""
        assert s.combiner is not None
        total: Any = None
        for point in product(*(range(a.extent) for a in s.reduce_axes)):
            one = substitute(
                s.bodies[0], dict(zip((a.var for a in s.reduce_axes), map(Const, point), strict=True))
            )
            (term,) = self._values([one], env)
            if total is None:
                total = term
            else:
                both = {s.combiner.lhs[0]: total, s.combiner.rhs[0]: term}
                (total,) = self._values(s.combiner.result, both)
        return total

    def _update(self, s: StageOp) -> None:
        """Writes the update definition of a reduction over a domain."""
        assert s.combiner is not None
        f, env = self.computed[s.name], self.env(s)
        inner_first = s.reduce_axes[::-1]
        domain = hl.RDom([hl.Range(0, a.extent) for a in inner_first])
        env |= {a.var: domain[n] for n, a in enumerate(inner_first)}
        bodies = list(s.bodies)
        place = {a.var: env[a.var] for a in s.axes}
        if self.writing.conditions and len(bodies) == 1:
            kept: list[Expr] = []
            while isinstance(bodies[0], Select) and bodies[0].otherwise is s.combiner.identity[0]:
                kept += _conjuncts(bodies[0].cond)
                bodies = [bodies[0].then]
            for cond in kept:
                found = _place(cond, s)
                # the element that is looked up is the index to write at
                if found is not None and found[0] in place:
                    var, e = found
                    extent = next(a.extent for a in s.axes if a.var is var)
                    (at,) = self._values([e], env)
                    place[var] = env[var] = hl.clamp(hl.cast(hl.Int(32), at), 0, extent - 1)
                else:
                    domain.where(self._values([cond], env)[0])
        dims = self.order(s)
        at = tuple(place[s.axes[a].var] for a in dims)
        terms = self._values(bodies, env)
        before = [_component(f[at], n, len(terms)) for n in range(len(terms))]
        both = dict(zip((*s.combiner.lhs, *s.combiner.rhs), (*before, *terms), strict=True))
        f[at] = _tuple(self._values(s.combiner.result, both))

    # -- expressions -------------------------------------------------------------------------------------

    def value(self, e: Expr, env: dict[Any, Any]) -> Any:
        """The Halide expression of an expression. `env` has its variables, and the expressions that are
        already translated."""
        if e not in env:
            env[e] = self._value(e, env)
        return env[e]

    def _value(self, e: Expr, env: dict[Any, Any]) -> Any:
        match e:
            case Const(number, t):
                return hl.f32(float(number)) if t.is_float else hl.cast(TYPES[str(t)], int(number))
            case Binary(op, a, b):
                return OPERATORS[op](self.value(a, env), self.value(b, env))
            case Unary(Neg.NEG, a):
                return -self.value(a, env)
            case Unary(_, a):
                return hl.logical_not(self.value(a, env))
            case Compare(op, a, b):
                return COMPARISONS[op](self.value(a, env), self.value(b, env))
            case Select(cond, a, b):
                c = self.value(cond, env)
                likely = self.writing.conditions and _cuts_loops(cond)
                return hl.select(hl.likely(c) if likely else c, self.value(a, env), self.value(b, env))
            case Cast(t, a):
                return hl.cast(TYPES[str(t)], self.value(a, env))
            case Call(name, args):
                function = FUNCTIONS.get(name) or getattr(hl, name)
                return function(*(self.value(a, env) for a in args))
            case Load(buffer, indices, mask):
                at = [self._index(i, n, env) for i, n in zip(indices, buffer.shape, strict=True)]
                found = self.funcs[buffer.name](at)
                return found if mask is None else hl.select(self.value(mask, env), found, 0.0)
        raise Skip(f"{type(e).__name__} has no translation to Halide")

    def _index(self, e: Expr, extent: int, env: dict[Any, Any]) -> Any:
        at = self.value(e, env)
        return hl.clamp(hl.cast(hl.Int(32), at), 0, extent - 1) if reads_data(e) else at


def _tuple(values: Sequence[Any]) -> Any:
    return values[0] if len(values) == 1 else hl.Tuple(list(values))


def _component(ref: Any, n: int, of: int) -> Any:
    return hl.Expr(ref if of == 1 else ref[n])


def _conjuncts(e: Expr) -> list[Expr]:
    if isinstance(e, Binary) and e.op is Op.AND:
        return [*_conjuncts(e.a), *_conjuncts(e.b)]
    return [e]


def _cuts_loops(e: Expr) -> bool:
    """Whether a condition holds in the inside of loops, between two ends. Then it is likely."""
    return all(
        isinstance(c, Compare)
        and c.op in (Cmp.LT, Cmp.LE, Cmp.GT, Cmp.GE)
        and not any(isinstance(n, Load) or (isinstance(n, Binary) and n.op is Op.MOD) for n in walk(c))
        for c in _conjuncts(e)
    )


def _place(e: Expr, s: StageOp) -> tuple[Var, Expr] | None:
    """If the condition says that an axis equals an element of data, this axis and the element."""
    axes = {a.var for a in s.axes}
    if isinstance(e, Compare) and e.op is Cmp.EQ:
        for one, other in ((e.a, e.b), (e.b, e.a)):
            bare = one.a if isinstance(one, Cast) else one
            if bare in axes and reads_data(other) and not any(n in axes for n in walk(other)):
                return bare, other
    return None


# -- pipelines -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Unscheduled:
    """A pipeline without a schedule, and its inputs in the DAG's order."""

    pipeline: Any
    inputs: tuple[Any, ...]


def pipeline_of(dag: ComputeDAG, writing: Writing) -> Unscheduled:
    """The pipeline of a program. Sizes are given as bounds of the buffers and as estimates. Raises Skip if
    Halide cannot express the program."""
    t, needed = Translation(dag, writing), regions(dag)
    for b in dag.inputs:
        t.give(b, needed[b.name])
    steps = {s.name: h for h in hosts(dag.stages, dag.carried) for s in steps_of(h, dag.stages, dag.carried)}
    for s in dag.stages:
        if s.name not in steps:
            t.add(s)
        elif steps[s.name] is not s:
            t.add_step(s)
        else:
            t.add_scan(s, {b.name: s.buffers.index(after) for b, after in dag.carried if after in s.buffers})
    outputs = [t.computed[b.name] for b in dag.outputs]
    if len(set(map(id, outputs))) != len(outputs):
        raise Skip("several outputs of one stage")
    for b, f in zip(dag.outputs, outputs, strict=True):
        dims = order(b.shape, writing)
        f.set_estimates([hl.Range(0, b.shape[axis]) for axis in dims])
        for n, axis in enumerate(dims):
            f.output_buffer().dim(n).set_bounds(0, b.shape[axis])
            f.output_buffer().dim(n).set_stride(prod(b.shape[axis + 1 :]))
    return Unscheduled(hl.Pipeline(outputs), tuple(t.inputs[b.name] for b in dag.inputs))


def scheduled(
    dag: ComputeDAG, autoscheduler: str, writing: Writing, threads: int, arrays: Sequence[Array]
) -> Callable[[], list[Array]]:
    """A function that runs the program on fixed copies of these arrays and returns new arrays.

    Raises halide.HalideError if the autoscheduler fails."""
    hl.load_plugin(os.path.join(LIBRARIES, f"libautoschedule_{autoscheduler.lower()}.so"))
    program, target = pipeline_of(dag, writing), hl.get_host_target()
    params = hl.AutoschedulerParams(autoscheduler, {"parallelism": str(threads)})
    program.pipeline.apply_autoscheduler(target, params)
    arguments = {a.name: a for a in program.pipeline.infer_arguments()}
    call = program.pipeline.compile_to_callable([arguments[p.name()] for p in program.inputs], target)
    held = [empty(a.shape, a.dtype) for a in arrays]
    for own, array in zip(held, arrays, strict=True):
        own[...] = array
    given = [as_buffer(a, writing) for a in held]
    shapes = [(b.shape, b.dtype.numpy) for b in dag.outputs]

    def run(_: object = held) -> list[Array]:
        results = [empty(*s) for s in shapes]
        call(*given, *(as_buffer(r, writing) for r in results))
        return results

    return run


def fastest(
    dag: ComputeDAG, autoscheduler: str, threads: int, arrays: Sequence[Array]
) -> Callable[[], list[Array]]:
    """The program with the autoscheduler's schedule, in the form that is fastest. All forms are tried once on
    each machine. Raises Skip if Halide cannot express the program, halide.HalideError if the autoscheduler
    fails for every form."""
    key = f"{metadata.version('halide')} {hl.get_host_target()} {threads} {Workload.of(dag, '').key}"
    known = Path(cache_folder(), f"halide-{autoscheduler.lower()}.json")
    liked = json.loads(known.read_text()) if known.exists() else {}
    if key in liked:
        return scheduled(dag, autoscheduler, Writing(**liked[key]), threads, arrays)
    found, failure = [], Skip("no way of writing it")
    for plain in writings(dag):
        for writing in (plain, replace(plain, guarded=True)):
            try:
                run = scheduled(dag, autoscheduler, writing, threads, arrays)
                found.append((_seconds(run), writing, run))
                break
            except hl.HalideError as error:
                failure = error
    if not found:
        raise failure
    _, writing, run = min(found, key=lambda f: f[0])
    known.write_text(json.dumps({**liked, key: asdict(writing)}))
    return run


def _seconds(run: Callable[[], object]) -> float:
    """The least seconds of several runs."""
    times, end = [], time.perf_counter() + TRY_S
    while len(times) < 3 or time.perf_counter() < end:
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times)

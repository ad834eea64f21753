"""One search of MetaSchedule, in TVM's own environment. It reads JSON from standard input and prints JSON as
its last line.

    {"workload": [key, name, text], "trials": 64, "seed": 0, "library": "x.so", …}
    ─▶ {"trials": 64, "failed": 1, "wall_s": 61.0, "best_s": 1.2e-3, "inputs": ["a0", "a1"], …}

autotensor's definition is translated stage by stage. Constants get the order of axes in which reduction axes
come first: autotensor may choose the layout of constants, but TVM's rules keep arrays as they are given.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

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
from autotensor.te.dag import ComputeDAG, StageOp
from autotensor.te.workload import Workload

BUILD_LIMIT_S = 150
BATCH = 64  # candidates in a round, as in MetaSchedule's own command line
Order = dict[str, tuple[int, ...]]


class Unsupported(Exception):
    """This computation is not translated for TVM; the message says why."""


# -- autotensor's definition in TVM's terms ---------------------------------------------------------------


def constant_order(dag: ComputeDAG) -> Order:
    """Constant → its axes, with the axes of sums first. Only for constants whose every index is one axis.

    A weight[out, in, kh, kw] of a convolution becomes [in, kh, kw, out]: the output channels are side by
    side.
    """
    order: Order = {}
    for stage in dag.stages:
        reduced = {a.name for a in stage.reduce_axes}
        for load in stage.loads():
            if load.buffer.name not in dag.constants or not reduced:
                continue
            names = [i.name if isinstance(i, Var) else None for i in load.indices]
            if None not in names:
                axes = range(len(names))
                order[load.buffer.name] = tuple(sorted(axes, key=lambda n: names[n] not in reduced))
    return order


class Translator:
    """TVM's te tensors for a DAG of autotensor."""

    def __init__(self, dag: ComputeDAG, te: Any, tir: Any) -> None:
        self.dag, self.te, self.tir = dag, te, tir
        self.order = constant_order(dag)
        self.tensors: dict[str, Any] = {}

    def args(self) -> list[Any]:
        """The placeholders in calling order, then the output."""
        for b in self.dag.inputs:
            order = self.order.get(b.name, tuple(range(len(b.shape))))
            shape = tuple(b.shape[n] for n in order)
            self.tensors[b.name] = self.te.placeholder(shape, str(b.dtype), name=b.name)
        for stage in self.dag.stages:
            if len(stage.buffers) != 1:
                raise Unsupported(f"stage {stage.name} has several results")
            self.tensors[stage.buffers[0].name] = self._stage(stage)
        return [self.tensors[n] for n in self.dag.args]

    @property
    def inputs(self) -> list[str]:
        """The names of the arrays that a caller gives, in order."""
        known = {b.name for b in self.dag.inputs}
        return [n for n in self.dag.args if n in known]

    def _stage(self, stage: StageOp) -> Any:
        reduced = {a.name: self.te.reduce_axis((0, a.extent), name=a.name) for a in stage.reduce_axes}

        def body(*axes: Any) -> Any:
            names = {a.name: v for a, v in zip(stage.axes, axes, strict=True)}
            env = {**names, **{n: r.var for n, r in reduced.items()}}
            value = self._expr(stage.bodies[0], env)
            if stage.combiner is None:
                return value
            reducer = {"sum": self.te.sum, "max": self.te.max, "min": self.te.min}.get(stage.combiner.name)
            if reducer is None:
                raise Unsupported(f"reducer {stage.combiner.name}")
            return reducer(value, axis=list(reduced.values()))

        return self.te.compute(stage.buffers[0].shape, body, name=stage.name)

    def _expr(self, e: Expr, env: Mapping[str, Any]) -> Any:
        match e:
            case Var(name):
                return env[name]
            case Const(value, type=t):
                return self.tir.const(value, "int32" if t.is_int else str(t))
            case Binary(op, a, b):
                return self._binary(op)(self._expr(a, env), self._expr(b, env))
            case Compare(op, a, b):
                return COMPARES[op](self._expr(a, env), self._expr(b, env))
            case Unary(Neg.NEG, a):
                return -self._expr(a, env)
            case Unary(Neg.NOT, a):
                return self.tir.Not(self._expr(a, env))
            case Select(cond, then, otherwise):
                return self.tir.if_then_else(*(self._expr(x, env) for x in (cond, then, otherwise)))
            case Cast(type=t, a=a):
                return self._expr(a, env).astype("int32" if t.is_int else str(t))
            case Call(name, args):
                return self._call(name, [self._expr(a, env) for a in args])
            case Load(buffer, indices):
                order = self.order.get(buffer.name, tuple(range(len(indices))))
                found = [self._expr(i, env) for i in indices]
                return self.tensors[buffer.name](*(found[n] for n in order))
        raise Unsupported(f"expression {type(e).__name__}")

    def _binary(self, op: Op) -> Callable[[Any, Any], Any]:
        t = self.tir
        known = {Op.MIN: t.min, Op.MAX: t.max, Op.FLOORDIV: t.floordiv, Op.MOD: t.floormod, Op.AND: t.And,
                 Op.OR: t.Or}  # fmt: skip
        found = BINARIES.get(op) or known.get(op)
        if found is None:
            raise Unsupported(f"operator {op.value}")
        return found

    def _call(self, name: str, args: Sequence[Any]) -> Any:
        function = getattr(self.tir, name, None)
        if function is None:
            raise Unsupported(f"function {name}")
        return function(*args)


BINARIES: dict[Op, Callable[[Any, Any], Any]] = {
    Op.ADD: lambda a, b: a + b,
    Op.SUB: lambda a, b: a - b,
    Op.MUL: lambda a, b: a * b,
    Op.DIV: lambda a, b: a / b,
}
COMPARES: dict[Cmp, Callable[[Any, Any], Any]] = {
    Cmp.EQ: lambda a, b: a == b,  # an expression, like the others
    Cmp.NE: lambda a, b: a != b,
    Cmp.LT: lambda a, b: a < b,
    Cmp.LE: lambda a, b: a <= b,
    Cmp.GT: lambda a, b: a > b,
    Cmp.GE: lambda a, b: a >= b,
}


# -- the search ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Curve:
    """The progress of a search."""

    began: float
    points: list[tuple[int, float, float]] = field(default_factory=list)  # trials, seconds, the best time
    failed: int = 0  # runs without a time


def callbacks(ms: Any, curve: Curve, budget_s: float) -> list[Any]:
    """The callbacks that the search calls after each batch: the usual ones, and one that records the
    curve."""
    from tvm.ir.utils import derived_object

    @derived_object
    class Watch(ms.measure_callback.PyMeasureCallback):  # type: ignore[misc,name-defined]
        """Counts trials, and ends the search when its time is over."""

        def apply(self, scheduler: Any, task: int, candidates: Any, builds: Any, runs: Any) -> None:
            trials, _, best = curve.points[-1] if curve.points else (0, 0.0, float("inf"))
            for r in runs:
                if r is not None and r.run_secs:
                    best = min(best, sum(float(x) for x in r.run_secs) / len(r.run_secs))
                else:
                    curve.failed += 1
            curve.points.append((trials + len(candidates), time.monotonic() - curve.began, best))
            if curve.points[-1][1] > budget_s:
                raise TimeoutError("the budget is spent")

    usual = ms.measure_callback
    return [usual.AddToDatabase(), usual.UpdateCostModel(), usual.RemoveBuildArtifact(), Watch()]


def search(asked: Mapping[str, Any]) -> dict[str, Any]:
    import tvm
    from tvm import te, tirx
    from tvm.s_tir import meta_schedule as ms

    key, name, text = asked["workload"]
    dag = Workload.from_text(text, name, key).dag
    translator = Translator(dag, te, tirx)
    function = te.create_prim_func(translator.args()).with_attr("global_symbol", "main")
    target = tvm.target.Target({"kind": "llvm", "mcpu": asked["mcpu"], "num-cores": asked["threads"]})
    curve = Curve(time.monotonic())
    with TemporaryDirectory() as work:
        database = ms.database.JSONDatabase(work_dir=work)
        timing = ms.runner.EvaluatorConfig(
            number=1, repeat=1, min_repeat_ms=100, enable_cpu_cache_flush=False
        )
        # a new worker imports for half a minute before it builds anything
        builder = ms.builder.LocalBuilder(max_workers=asked["threads"], timeout_sec=BUILD_LIMIT_S)
        first = ms.builder.BuilderInput(tvm.IRModule({"main": function}), target)
        builder.build([first] * asked["threads"])  # the workers import now, so that this time does not count
        curve.began, stopped = time.monotonic(), ""
        try:
            ms.tune_tir(
                mod=function,
                target=target,
                work_dir=work,
                max_trials_global=asked["trials"],
                num_trials_per_iter=min(BATCH, asked["trials"]),
                database=database,
                num_tuning_cores=asked["threads"],
                seed=asked["seed"],
                runner=ms.runner.LocalRunner(timeout_sec=10, evaluator_config=timing),
                builder=builder,
                measure_callbacks=callbacks(ms, curve, asked["budget_s"]),
            )
        except Exception as error:  # MetaSchedule wraps any exception that a callback raises
            stopped = f"{type(error).__name__}: {str(error).strip().splitlines()[-1:]}"
        wall_s = time.monotonic() - curve.began
        schedule = ms.tir_integration.compile_tir(database, function, target)
        if schedule is None:
            return {"failed": stopped or "it found no schedule"}
        with target:
            tvm.compile(schedule.mod, target=target).export_library(asked["library"])
    trials, _, best = curve.points[-1]
    (output,) = dag.outputs
    return {
        "trials": trials,
        "failed": curve.failed,
        "wall_s": wall_s,
        "best_s": best,
        "curve": curve.points,
        "stopped": stopped,
        "inputs": translator.inputs,
        "order": {n: list(o) for n, o in translator.order.items()},
        "shape": list(output.shape),
        "version": tvm.__version__,
    }


def main() -> None:
    asked = json.load(sys.stdin)
    Path(asked["library"]).parent.mkdir(parents=True, exist_ok=True)
    try:
        answer = search(asked)
    except Unsupported as reason:
        answer = {"failed": str(reason)}
    print("\n" + json.dumps(answer))


if __name__ == "__main__":
    main()

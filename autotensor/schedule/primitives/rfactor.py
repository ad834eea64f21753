"""rfactor: a new stage computes partial results of a reduction."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from autotensor.base.errors import ScheduleError
from autotensor.ir.expr import Cmp, Expr, Load, Var, all_of, compare, const, select
from autotensor.ir.rewrite import substitute
from autotensor.schedule.axis import fresh
from autotensor.schedule.extents import Extents, root_extents
from autotensor.schedule.state import At, Fuse, Split, Stage, State
from autotensor.schedule.step import AxisName, StageName, step
from autotensor.te.stage import IterDef, StageOp, buffer_over
from autotensor.te.tensor import AxisKind


@step
class RFactor:
    """Factors one reduction loop out: a new stage computes partial results along it, which are then joined.

        k split into k.0, k.1
        C[i] = Σ_k A[i,k]     ──RFactor("C", "k.1")──▶     C.rf[k.1, i] = Σ_k.0 A[i, k.0*f + k.1]
                                                            C[i] = Σ_k.1 C.rf[k.1, i]

    The factored axis comes first in the new stage, and is spatial there, so it can be vectorized or made
    parallel. If the split does not divide the extent, missing elements are the reducer's identity.
    Raises ScheduleError when the axis is not a reduction, a spatial axis has been changed, or the stage is
    attached.
    Source: `rfactor` of Halide (Suriana et al., CGO 2017).
    """

    stage: StageName
    axis: AxisName

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        axis = stage.leaf(self.axis)
        op = stage.op
        if axis.kind is not AxisKind.REDUCE or op.combiner is None:
            raise ScheduleError(
                f"rfactor: axis {axis.name!r} of stage {stage.name!r} is not a reduction.",
                fix="Its reduction loops: "
                f"{', '.join(a.name for a in stage.leaves if a.kind is AxisKind.REDUCE) or 'none'}.",
            )
        if isinstance(stage.place, At):
            raise ScheduleError(
                f"rfactor: stage {stage.name!r} is computed inside another.",
                fix="Use rfactor before compute_at.",
            )
        roots = {a.name for a in op.axes}
        if any(r.parent in roots if isinstance(r, Split) else r.a in roots for r in stage.relations):
            raise ScheduleError(
                f"rfactor: spatial loops of stage {stage.name!r} have been changed already.",
                fix="Use rfactor first.",
            )
        if inside := state.attached(stage.name):
            raise ScheduleError(
                f"rfactor: stage {inside[0].name!r} is computed inside {stage.name!r}.",
                fix="Use rfactor first.",
            )
        extents = Extents(root_extents(stage, {}), {})  # other stages may still have holes
        values, guard = _reduction_values(stage, extents.of)
        leaves = [a for a in stage.leaves if a.kind is AxisKind.REDUCE]
        name = fresh(f"{op.name}.rf", set(state.names))
        factor = IterDef(axis.name, extents[stage.name, axis.name])
        rest = tuple(
            IterDef(a.name, extents[stage.name, a.name], AxisKind.REDUCE)
            for a in leaves
            if a.name != axis.name
        )
        bodies = tuple(
            _guarded(substitute(b, values), guard, e)
            for b, e in zip(op.bodies, op.combiner.identity, strict=True)
        )
        axes = (factor, *op.axes)
        partial = tuple(
            buffer_over(axes, name if n == 0 else f"{name}_v{n}", b.dtype) for n, b in enumerate(op.buffers)
        )
        first = StageOp(name, axes, rest, bodies, op.combiner if rest else None, partial)
        index = (factor.var, *(a.var for a in op.axes))
        last = replace(
            op,
            reduce_axes=(replace(factor, kind=AxisKind.REDUCE),),
            bodies=tuple(Load(b, index) for b in partial),
        )
        state = state.with_stage(Stage.of(last))
        return state.inserting(Stage.of(first), before=stage.name)

    def call(self) -> str:
        return f's.rfactor("{self.stage}", "{self.axis}")'


def _reduction_values(stage: Stage, extents: object) -> tuple[dict[Var, Expr], Expr]:
    """The stage's reduce axes as expressions of its reduce loops, and the condition for their range."""
    found: dict[str, Expr] = {a.name: Var(a.name) for a in stage.leaves}
    sizes = dict(extents)  # type: ignore[call-overload]
    guards: list[Expr] = []
    for relation in reversed(stage.relations):
        match relation:
            case Split(parent, children, _, _):
                stride, total = 1, None
                for child in reversed(children):
                    part = found[child] * stride
                    total = part if total is None else part + total
                    stride *= sizes[stage.name, child]
                assert total is not None
                found[parent] = total
                if prod(sizes[stage.name, c] for c in children) > sizes[stage.name, parent]:
                    guards.append(compare(Cmp.LT, total, const(sizes[stage.name, parent])))
            case Fuse(a, b, fused):
                found[a] = found[fused] // sizes[stage.name, b]
                found[b] = found[fused] % sizes[stage.name, b]
    guards += [compare(Cmp.LT, found[a.name], a.size) for a in stage.op.reduce_axes if a.runtime is not None]
    values = {a.var: found[a.name] for a in stage.op.reduce_axes if found[a.name] is not a.var}
    return values, all_of(*guards)


def _guarded(body: Expr, guard: Expr, identity: Expr) -> Expr:
    return body if not guards(guard) else select(guard, body, identity)


def guards(condition: Expr) -> bool:
    """Whether the condition is more than "always true"."""
    return condition is not all_of()

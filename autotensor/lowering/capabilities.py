"""The requests of a schedule to its target, and the targets that honour them; other requests are errors.

    s[C].tensorize(k, "mma.m16n8k8.tf32")     cuda from sm_80 on: the instruction
                                              interp: the loops, which mean the same
                                              llvm, opencl: refused, since loops are a thousand times slower
    s[C].tensorize(j, "x86.vpdpbusd.512")     llvm, where the processor has it: the instruction
                                              interp: its meaning; cuda, opencl: vectors, which mean the same

HONOURED lists the requests that our own targets honour. A plug-in's record lists its requests in `honours`
and `intrinsics`. Requests that are decided while loops are built (pragmas except unrolling, storage, scan, …)
work on all targets.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from autotensor.base.errors import ScheduleError
from autotensor.base.plugins import OWN, TargetPlugin, plugin
from autotensor.base.target import GPU_KINDS, Target
from autotensor.codegen.c.tensor_intrinsics import FIRST_CAPABILITY, INTRINSICS
from autotensor.codegen.dot_instructions import available, known_dots
from autotensor.ir.func import Scope
from autotensor.schedule.axis import Axis, Mark
from autotensor.schedule.state import At, Stage, State

HONOURED: Mapping[str, Collection[str]] = {  # request → kinds of our own targets that honour it
    "parallel": OWN,  # on a GPU, these loops become blocks
    "vectorize": OWN,
    "unroll": OWN,
    "bind": GPU_KINDS,
    "shared memory": ("interp", *GPU_KINDS),
    "store_at": ("llvm", "interp"),  # threads of a block do not share a ring
}
MARKS = {
    Mark.PARALLEL: "parallel",
    Mark.VECTORIZED: "vectorize",
    Mark.UNROLLED: "unroll",
    Mark.BOUND: "bind",
}
UNROLLING = "auto_unroll_max_step"  # the pragma that becomes marks of loops


def check_capabilities(state: State, target: Target | None) -> None:
    """Raises ScheduleError for a mark, pragma, scope or instruction that the target does not honour.

    Without a target, the check is for any CPU.
    """
    kind = "llvm" if target is None else target.kind
    brought = plugin(kind)
    does = _own(kind) if brought is None else brought.honours
    instructions = _instructions(target, brought)
    for stage in state.live():
        for axis in stage.leaves:
            if axis.mark in (Mark.UNROLLED, Mark.VECTORIZED) and axis.thread:
                meant = axis.thread in instructions or (axis.thread in known_dots() and kind in GPU_KINDS)
                if not meant and kind != "interp":
                    raise _lacking(axis, stage, target, instructions)
            elif axis.mark is not Mark.SERIAL and MARKS[axis.mark] not in does:
                raise _refused(MARKS[axis.mark], stage, axis, kind, does)
        if "unroll" not in does and any(key == UNROLLING for _, key, _ in stage.pragmas):
            raise ScheduleError(
                f"pragma: target {kind!r} unrolls no loops of stage {stage.name!r}.",
                fix=f"Leave {UNROLLING} out.",
            )
        if "shared memory" not in does and stage.scope is Scope.SHARED and isinstance(stage.place, At):
            raise ScheduleError(
                f"target {kind!r} has no shared memory to keep stage {stage.name!r} in.",
                fix='Use scope "local".',
            )
        if "store_at" not in does and isinstance(stage.place, At) and stage.place.store:
            raise ScheduleError(
                f"store_at: target {kind!r} keeps nothing of stage {stage.name!r} from one iteration to the "
                "next.",
                fix="Leave the step out.",
            )


def _refused(word: str, stage: Stage, axis: Axis, kind: str, does: Collection[str]) -> ScheduleError:
    if word == "bind":
        return ScheduleError(
            f"bind: target {kind!r} has no thread axes; use parallel({axis.name!r}).",
            fix='GPUs have them: target="cuda", or target="opencl".',
        )
    return ScheduleError(
        f"{word}: target {kind!r} would run axis {axis.name!r} of stage {stage.name!r} as a plain loop.",
        fix=f"Leave the step out; it honours {', '.join(sorted(does)) or 'no marks'}.",
    )


def _lacking(axis: Axis, stage: Stage, target: Target | None, has: Collection[str]) -> ScheduleError:
    where = f"for axis {axis.name!r} of stage {stage.name!r}"
    if target is None and axis.thread in known_dots():
        return ScheduleError(
            f"tensorize: no target is named, and some CPUs lack the instruction {axis.thread!r} {where}.",
            fix='Name the target: target="llvm" is this machine.',
        )
    return ScheduleError(
        f"tensorize: target {_name(target)!r} has no instruction {axis.thread!r} {where}.",
        fix=f"Leave the step out; it has {', '.join(has) or 'none'}.",
    )


def _own(kind: str) -> Collection[str]:
    return [word for word, kinds in HONOURED.items() if kind in kinds]


def _instructions(target: Target | None, brought: TargetPlugin | None) -> Collection[str]:
    if brought is not None:
        return brought.intrinsics
    if target is None or not target.is_gpu:
        return tuple(dot.name for dot in available(target))
    return INTRINSICS if target.capability >= FIRST_CAPABILITY else ()


def _name(target: Target | None) -> str:
    if target is None:
        return "llvm"
    return target.arch if target.kind == "cuda" else target.kind

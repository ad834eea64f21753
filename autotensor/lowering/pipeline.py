"""The pipeline: a table of passes from a state's nests to the IR that backends accept.

    State ──build_program──▶ LOOP ──simplify, partition, protect──▶ LOOP ──flatten, vectorize, unroll──▶ FINAL

`lower` runs it. With AUTOTENSOR_VERIFY or AUTOTENSOR_DEBUG=5, a verifier runs between the passes. GPU targets
run the passes that are marked for them, and leave out those only for CPUs. A target of a plug-in runs the
passes that it names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from autotensor.base import switches
from autotensor.base.errors import LoweringError
from autotensor.base.plugins import plugin
from autotensor.base.target import Target
from autotensor.ir.func import PrimFunc, Program
from autotensor.ir.simplify import simplify
from autotensor.ir.stmt import For, ForKind, Stmt
from autotensor.ir.verify import Level, verify
from autotensor.ir.visit import collect
from autotensor.lowering.capabilities import check_capabilities
from autotensor.lowering.device_features import device_of
from autotensor.lowering.gpu.barrier_proof import check
from autotensor.lowering.gpu.barriers import barriers
from autotensor.lowering.gpu.copies import start_copies, wait_before_meeting
from autotensor.lowering.gpu.launch import with_launch
from autotensor.lowering.gpu.narrow_indices import narrow
from autotensor.lowering.gpu.open_guards import open_guards
from autotensor.lowering.gpu.swizzle import swizzle
from autotensor.lowering.gpu.tensorize import check_tensorized
from autotensor.lowering.gpu.unify import unify
from autotensor.lowering.gpu.vthread import vthread
from autotensor.lowering.nest.kept_steps import keep_last_steps
from autotensor.lowering.nest.nest import build_program
from autotensor.lowering.passes.dots import dots
from autotensor.lowering.passes.flatten import flatten
from autotensor.lowering.passes.inside_extents import inside_extents
from autotensor.lowering.passes.join_lanes import join
from autotensor.lowering.passes.lane_guards import lane_guards
from autotensor.lowering.passes.named_limits import name_limits
from autotensor.lowering.passes.partition import partition
from autotensor.lowering.passes.promote_registers import promote
from autotensor.lowering.passes.protect_loads import protect
from autotensor.lowering.passes.tile_sums import tile_sums
from autotensor.lowering.passes.unclamp import unclamp
from autotensor.lowering.passes.unmask_loads import unmask
from autotensor.lowering.passes.unroll import unroll
from autotensor.lowering.passes.unswitch import unswitch
from autotensor.lowering.passes.vectorize import vectorize
from autotensor.lowering.variants import chosen_by_size
from autotensor.schedule.state import State

SOURCE_COPIES = 2  # extra loop bodies in OpenCL source; with 12, PoCL compiles ten times as long (2026-11)

When = Callable[[Target | None], bool]


def always(target: Target | None) -> bool:
    return True


def is_gpu(target: Target | None) -> bool:
    return target is not None and target.is_gpu


def is_cpu(target: Target | None) -> bool:
    return not is_gpu(target)


def on_cores(target: Target | None) -> bool:
    """Whether the target is a GPU target whose blocks run as iterations on a CPU's cores."""
    return target is not None and target.on_cores


@dataclass(frozen=True, slots=True)
class Pass:
    """One rewriting of a kernel's body; `makes` is the level that holds afterwards."""

    name: str
    run: Callable[[Stmt], Stmt]
    makes: Level = Level.LOOP
    when: When = always


def _simplify(body: Stmt) -> Stmt:
    return simplify(body)


def _partition_blocks(body: Stmt) -> Stmt:
    """If loops are bound, threads share the guards: a part of a loop would be a separate kernel."""
    bound = any(loop.kind is ForKind.THREAD for loop in collect(body, For))
    return body if bound else partition(body, SOURCE_COPIES)


PIPELINE: tuple[Pass, ...] = (
    Pass("simplify nest", _simplify),
    Pass("name limits", name_limits, when=is_cpu),  # before unclamp, which uses named values
    Pass("unclamp", unclamp, when=is_cpu),  # before partition and protect, which guard bare loads
    Pass("partition tails", partition, when=is_cpu),  # before flatten: after it, guards no longer name axes
    Pass("unswitch", unswitch, when=is_cpu),  # after partition, which leaves whole loops, and before protect
    Pass("partition blocks", _partition_blocks, when=on_cores),
    Pass("virtual threads", vthread, when=is_gpu),
    Pass("unify threads", unify, when=is_gpu),
    # before flatten, which merges the index by which parts of a buffer differ
    Pass("insert barriers", barriers, when=is_gpu),
    Pass("await copies", wait_before_meeting, when=is_gpu),
    Pass("open guards", open_guards, when=is_gpu),
    Pass("protect loads", protect),  # after partition: copies of the interior need no masks
    Pass(
        "lane guards", lane_guards
    ),  # after protect, whose masks differ between lanes; before inside extents
    Pass("inside extents", inside_extents),  # after protect, because it relies on the masks
    Pass("tile sums", tile_sums, when=is_cpu),  # before flatten: a tile's rows and columns are two indices
    Pass("flatten", flatten, makes=Level.FLAT),
    # while indices are scalars: parts of fused loops are joined here
    Pass("simplify indices", _simplify, makes=Level.FLAT),
    Pass("dots", dots, makes=Level.FLAT, when=is_cpu),  # before vectorize, while there are still loops
    Pass("join lanes", join, makes=Level.FLAT),
    Pass("vectorize", vectorize, makes=Level.FLAT),
    Pass("simplify vectors", _simplify, makes=Level.FLAT),
    Pass("unmask", unmask, makes=Level.FLAT),
    Pass("promote registers", promote, makes=Level.FLAT, when=is_cpu),
    Pass("narrow indices", narrow, makes=Level.FLAT, when=is_gpu),
    # after vectorize: a vector shows how much one copy moves
    Pass("start copies", start_copies, makes=Level.FLAT, when=is_gpu),
    Pass("check instructions", check_tensorized, makes=Level.FLAT, when=is_gpu),
    # after "check instructions", which recognises instructions by plain indices
    Pass("swizzle", swizzle, makes=Level.FLAT, when=is_gpu),
    Pass("prove barriers", check, makes=Level.FLAT, when=is_gpu),  # changes nothing
    Pass("unroll", unroll, makes=Level.FINAL, when=is_cpu),  # last: later passes would see all copies
)

VERIFY_AT = 5  # a verifier runs from this level of AUTOTENSOR_DEBUG on

Hook = Callable[[Pass, PrimFunc], None]


def lower(
    state: State,
    target: Target | None = None,
    *,
    passes: tuple[Pass, ...] = PIPELINE,
    hook: Hook | None = None,
) -> Program:
    """The program of a state after all passes for a target; without a target, for any CPU.

    hook: called after every pass with the pass and the kernel that it made (verifier, dumps). Raises
    ScheduleError or LoweringError if the schedule cannot be turned into loops, or requests something that the
    target does not honour. Raises TargetError if it needs more than a GPU target has.
    """
    if passes is PIPELINE:
        check_capabilities(state, target)
    if target is not None and target.kind != "llvm" and (symbols := state.dag.symbols()):
        raise LoweringError(
            f"{target.kind} takes shapes that are numbers; {symbols[0].name!r} is known at run time only.",
            fix="Build it for a CPU, or write a number for the te.var.",
        )
    program = build_program(state, device_of(target))
    if is_cpu(target):
        program = keep_last_steps(program)
    careful = switches.verify() or switches.debug() >= VERIFY_AT
    brought = None if target is None else plugin(target.kind)
    wanted = [p for p in passes if (p.when(target) if brought is None else p.name in brought.passes)]

    def finish(func: PrimFunc) -> PrimFunc:
        for p in wanted:
            func = replace(func, body=p.run(func.body))
            if careful:
                verify(func, p.makes, p.name)
            if hook is not None:
                hook(p, func)
        return with_launch(func, target) if target is not None and target.is_gpu else func

    made = replace(
        program, prepare=tuple(finish(f) for f in program.prepare), run=tuple(finish(f) for f in program.run)
    )
    if not state.variants:
        return made
    others = [(v.points, lower(v.state, target, passes=passes, hook=hook)) for v in state.variants]
    return chosen_by_size(made, others, state.dag.symbols())


def lower_nest(state: State) -> Program:
    """The program as loops, simplified but not lowered further, for people to read."""
    return lower(state, passes=PIPELINE[:1])

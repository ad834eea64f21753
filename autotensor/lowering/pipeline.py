"""The pipeline: a table of passes from a state's nests to what backends accept.

    State ──build_program──▶ LOOP ──simplify, partition, protect──▶ LOOP ──flatten, vectorize, unroll──▶ FINAL

`lower` runs it; with AUTOTENSOR_VERIFY or AUTOTENSOR_DEBUG=5 a verifier stands between the passes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from autotensor.base import switches
from autotensor.ir.func import PrimFunc, Program
from autotensor.ir.simplify import simplify
from autotensor.ir.stmt import Stmt
from autotensor.ir.verify import Level, verify
from autotensor.lowering.nest import build_program
from autotensor.lowering.passes.flatten import flatten
from autotensor.lowering.passes.join import join
from autotensor.lowering.passes.partition import partition
from autotensor.lowering.passes.promote import promote
from autotensor.lowering.passes.protect import protect
from autotensor.lowering.passes.unmask import unmask
from autotensor.lowering.passes.unroll import unroll
from autotensor.lowering.passes.vectorize import vectorize
from autotensor.schedule.state import State


@dataclass(frozen=True, slots=True)
class Pass:
    """One rewriting of a kernel's body; `makes` is the level that holds afterwards."""

    name: str
    run: Callable[[Stmt], Stmt]
    makes: Level = Level.LOOP


def _simplify(body: Stmt) -> Stmt:
    return simplify(body)


PIPELINE: tuple[Pass, ...] = (
    Pass("simplify nest", _simplify),
    Pass("partition tails", partition),  # before flatten: afterwards guards no longer name axes
    Pass("protect loads", protect),  # after partition: interior copies need no masks
    Pass("flatten", flatten, makes=Level.FLAT),
    Pass("simplify indices", _simplify, makes=Level.FLAT),  # as scalars: parts of fused loops are joined here
    Pass("join lanes", join, makes=Level.FLAT),
    Pass("vectorize", vectorize, makes=Level.FLAT),
    Pass("simplify vectors", _simplify, makes=Level.FLAT),
    Pass("unmask", unmask, makes=Level.FLAT),
    Pass("promote registers", promote, makes=Level.FLAT),
    Pass("unroll", unroll, makes=Level.FINAL),  # last: every pass after it would see all copies
)

VERIFY_AT = 5  # level of AUTOTENSOR_DEBUG

Hook = Callable[[Pass, PrimFunc], None]


def lower(state: State, *, passes: tuple[Pass, ...] = PIPELINE, hook: Hook | None = None) -> Program:
    """The program of a state after all passes.

    hook: called after every pass with the pass and the kernel it made (verifier, dumps).
    Raises ScheduleError or LoweringError when the schedule cannot be turned into loops.
    """
    program = build_program(state)
    careful = switches.verify() or switches.debug() >= VERIFY_AT

    def finish(func: PrimFunc) -> PrimFunc:
        for p in passes:
            func = replace(func, body=p.run(func.body))
            if careful:
                verify(func, p.makes, p.name)
            if hook is not None:
                hook(p, func)
        return func

    return replace(
        program, prepare=tuple(finish(f) for f in program.prepare), run=tuple(finish(f) for f in program.run)
    )


def lower_nest(state: State) -> Program:
    """The program as loops, simplified but not yet lowered further: what people read."""
    return lower(state, passes=PIPELINE[:1])

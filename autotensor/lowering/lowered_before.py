"""Programs that were lowered to find out whether they can be lowered; they are kept for the compiler.

    obstacle(trace, workload)  ──lower──▶  kept with the workload  ──lowered_before──▶  the compiler, once

Only lowering shows whether a trace fits run-time extents, and this must be known before the trace is chosen.
Lowering takes most of the time of compiling these kernels, so the compiler uses its result.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from autotensor.base.errors import LoweringError, ScheduleError
from autotensor.base.target import Target
from autotensor.ir.func import Program
from autotensor.lowering.pipeline import lower
from autotensor.schedule.trace import Trace
from autotensor.te.workload import Workload

_kept: WeakKeyDictionary[Workload, dict[tuple[str, Target], Program]] = WeakKeyDictionary()


def obstacle(trace: Trace, workload: Workload, target: Target) -> str:
    """Why a trace cannot be lowered with the symbols of a workload; "" if it can."""
    try:
        program = lower(trace.replay(workload.dag), target)
    except (ScheduleError, LoweringError) as error:
        return f"{type(error).__name__}: {error.what}"
    _kept.setdefault(workload, {})[trace.hash, target] = program
    return ""


def lowered_before(trace: Trace, workload: Workload, target: Target) -> Program | None:
    """The program that `obstacle` made. It is given out only once: programs are large."""
    return _kept.get(workload, {}).pop((trace.hash, target), None)

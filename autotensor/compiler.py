"""From a schedule to something that runs: state → program → artifact → module.

    compile_trace(dag, trace, target) ──replay──▶ State ──lower──▶ Program ──backend──▶ Artifact

Every artifact keeps its texts: `te` (the expressions), `nest` (the loops as scheduled), `trace` (the calls),
`ir` (the program that the backend saw) and the backend's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from autotensor.base import switches
from autotensor.base.target import Target
from autotensor.codegen import backend
from autotensor.ir.func import PrimFunc, Program
from autotensor.ir.printer import to_text
from autotensor.lowering.pipeline import PIPELINE, Hook, Pass, lower, lower_nest
from autotensor.lowering.slices import with_slices
from autotensor.runtime.artifact import Artifact
from autotensor.runtime.cache import ObjectCache
from autotensor.schedule.display import display_names
from autotensor.schedule.state import State
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from autotensor.te.indices import index_ranges
from schedules import algorithms as _algorithms  # noqa: F401  # traces name them; importing registers them


def compile_trace(
    dag: ComputeDAG,
    trace: Trace,
    target: Target,
    name: str = "kernel",
    asm: bool = False,
    *,
    cache: ObjectCache | None = None,
    overlapping: frozenset[str] = frozenset(),
) -> Artifact:
    """The artifact of a DAG under a trace. `cache` keeps object code by content, for callers that compile
    again. `overlapping` names arguments that callers may give the same bytes.

    Raises ScheduleError when the trace does not apply, LoweringError or CodegenError when it cannot be
    compiled.
    """
    state = trace.replay(dag)
    return compile_state(state, target, name, trace, asm, cache=cache, overlapping=overlapping)


def compile_state(
    state: State,
    target: Target,
    name: str = "kernel",
    trace: Trace | None = None,
    asm: bool = False,
    *,
    texts: bool = False,
    cache: ObjectCache | None = None,
    overlapping: frozenset[str] = frozenset(),
) -> Artifact:
    """The artifact of a state; `trace` is only kept as text.

    texts: keep every stage's text (nest, ir, asm), for people; the assembly costs about a quarter of the
    build.
    """
    program = lower(state, target, hook=_dump_hook(name))
    kept = {"trace": (trace or Trace()).to_python(), "te": te_text(state.dag)}
    if texts:
        kept |= {"nest": nest_text(state), "ir": to_text(program)}
    kept_program = replace(program, texts={**program.texts, **kept}, overlapping=overlapping)
    artifact = backend.compile(kept_program, target, name=name, asm=asm or texts, cache=cache)
    ranges = index_ranges(state.dag)
    return replace(artifact, meta={**artifact.meta, "index_ranges": ranges}) if ranges else artifact


def te_text(dag: ComputeDAG) -> str:
    """The tensor expressions of a DAG, a line per stage."""
    lines = []
    for s in dag.stages:
        axes = ", ".join(f"{a.name}: {a.extent}" for a in s.axes)
        body = ", ".join(to_text(b) for b in s.bodies)
        if s.combiner is not None:
            over = ", ".join(f"{a.name}: {a.extent}" for a in s.reduce_axes)
            body = f"{s.combiner.name}({body}, axis=[{over}])"
        lines.append(f"{s.name}[{axes}] = {body}")
    return "\n".join(lines)


def nest_text(state: State, names: Mapping[str, str] | None = None) -> str:
    """The loops of a state as people read them."""
    program = lower_nest(state)
    shown = display_names(state) if names is None else names
    return "\n\n".join(to_text(with_slices(f.body), names=shown) for f in (*program.prepare, *program.run))


def lowered(state: State, target: Target | None = None) -> Program:
    """The program that a backend would get, with the scheduled loops among its texts."""
    program = lower(state, target)
    return replace(program, texts={**program.texts, "nest": nest_text(state)})


def _dump_hook(name: str) -> Hook | None:
    """Writes every pass's result below AUTOTENSOR_DUMP, if that is set."""
    folder = switches.dump()
    if not folder:
        return None
    order = {p.name: n for n, p in enumerate(PIPELINE)}

    def write(p: Pass, func: PrimFunc) -> None:
        place = Path(str(folder)) / name
        place.mkdir(parents=True, exist_ok=True)
        file = place / f"{order[p.name]:02d}_{p.name.replace(' ', '_')}.{func.name}.txt"
        file.write_text(to_text(func) + "\n")

    return write

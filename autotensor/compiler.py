"""From a schedule to something that runs: state → program → artifact → module.

    compile_trace(dag, trace, target) ──replay──▶ State ──lower──▶ Program ──backend──▶ Artifact

    compile_workload(…, cache)  ──the result of an earlier compilation──▶ Artifact

Every artifact keeps its texts: `te` (the expressions), `nest` (the loops as scheduled), `trace` (the calls),
`ir` (the program that the backend saw) and the backend's own texts. `workload` and `steps` are `te` and
`trace` as JSON, from which the artifact can be checked (`api/verifying/`).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from autotensor.base import log, switches
from autotensor.base.garbage import uncollected
from autotensor.base.source_hash import source_digest
from autotensor.base.target import Target
from autotensor.codegen import backend
from autotensor.codegen.llvm.backend import signature
from autotensor.ir.func import PrimFunc, Program
from autotensor.ir.printer import to_text
from autotensor.lowering.lowered_before import lowered_before, obstacle
from autotensor.lowering.nest.block_initialisation import with_slices
from autotensor.lowering.pipeline import PIPELINE, VERIFY_AT, Hook, Pass, lower, lower_nest
from autotensor.runtime.files.artifact import EXTENTS, OPEN_SHAPES, Artifact
from autotensor.runtime.files.atomic_write import naming
from autotensor.runtime.files.object_cache import ObjectCache, object_key
from autotensor.runtime.files.packed_artifact import pack, unpack
from autotensor.schedule.algorithm import ALGORITHMS
from autotensor.schedule.loop_names import display_names
from autotensor.schedule.primitives.algorithm import algorithms_of
from autotensor.schedule.state import State
from autotensor.schedule.step import Step
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from autotensor.te.indices import index_ranges
from autotensor.te.open_shapes import open_shapes
from autotensor.te.workload import Workload
from schedules import algorithms as _algorithms  # noqa: F401  # traces name them; importing registers them

WORKLOAD, STEPS = "workload", "steps"  # kinds of texts


def compile_trace(
    dag: ComputeDAG,
    trace: Trace,
    target: Target,
    name: str = "kernel",
    asm: bool = False,
    *,
    cache: ObjectCache | None = None,
    overlapping: frozenset[str] = frozenset(),
    program: Program | None = None,
) -> Artifact:
    """The artifact of a DAG under a trace. `cache` keeps object code by content, for callers that compile
    again. `overlapping` names arguments for which callers may give the same memory. `program` is the trace's
    lowered program, if there is one already.

    Raises ScheduleError when the trace does not apply, LoweringError or CodegenError when it cannot be
    compiled.
    """
    state = trace.replay(dag)
    return compile_state(
        state, target, name, trace, asm, cache=cache, overlapping=overlapping, program=program
    )


@uncollected()
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
    program: Program | None = None,
) -> Artifact:
    """The artifact of a state; `trace` is only kept as text.

    program: the state's lowered program, if there is one already.
    texts: keep every stage's text (nest, ir, asm), for people; the assembly takes about a quarter of the
    build's time.
    """
    if program is None:
        program = lower(state, target, hook=_hook(name))
    made = trace or Trace()
    kept = {"trace": made.to_python(), "te": te_text(state.dag), STEPS: made.to_json()}
    kept[WORKLOAD] = Workload(name, state.dag).text
    if texts:
        kept |= {"nest": nest_text(state), "ir": to_text(program)}
    ranges = index_ranges(state.dag)
    kept_program = replace(
        program, texts={**program.texts, **kept}, overlapping=overlapping, index_ranges=ranges
    )
    artifact = with_open_shapes(
        backend.compile(kept_program, target, name=name, asm=asm or texts, cache=cache), program, state.dag
    )
    return replace(artifact, meta={**artifact.meta, "index_ranges": ranges}) if ranges else artifact


def with_open_shapes(artifact: Artifact, program: Program, dag: ComputeDAG) -> Artifact:
    """The artifact. If some of its extents are known only at run time, it gets the rules by which calls find
    them."""
    symbols = dag.symbols()
    if not symbols:
        return artifact
    shapes = open_shapes(dag, [b for b, _ in program.args])
    greatest = np.array([s.most for s in symbols], np.int64)
    return replace(
        artifact,
        values={**artifact.values, EXTENTS: greatest},
        meta={**artifact.meta, OPEN_SHAPES: shapes},
    )


# packages whose code decides the result of compiling a workload; `schedules` has the algorithms
_PACKAGES = ("base", "ir", "te", "schedule", "lowering", "codegen", "runtime", "compiler.py")
_OURS = ("autotensor", "schedules")
OBSTACLE = "what is in the way"  # in place of a kernel's name


def compile_workload(
    workload: Workload,
    trace: Trace,
    target: Target,
    name: str,
    cache: ObjectCache,
    overlapping: frozenset[str] = frozenset(),
) -> Artifact:
    """The result of `compile_trace`. If the cache has the result of an earlier call, nothing is lowered.

    The key has all inputs: workload, trace, target, name, arguments that may overlap, versions, and the
    source of the compiler itself. A kernel that depends on code of other packages is compiled each time.
    """
    key = made_of(workload, trace, target, name, overlapping)
    found = recalled(key, cache)
    if found is not None:
        return found
    program = lowered_before(trace, workload, target) if key else None
    made = compile_trace(
        workload.dag, trace, target, name, cache=cache, overlapping=overlapping, program=program
    )
    if key:
        cache.put(key, pack(made))
    return made


def kept_obstacle(trace: Trace, workload: Workload, target: Target, cache: ObjectCache) -> str:
    """Why a trace cannot be lowered with the symbols of a workload; "" if it can. The cache keeps the answer,
    because finding it takes as long as lowering."""
    key = made_of(workload, trace, target, OBSTACLE)
    found = cache.get(key) if key else None
    if found is not None:
        return found.decode()
    why = obstacle(trace, workload, target)
    if key:
        cache.put(key, why.encode())
    return why


def recalled(key: str, cache: ObjectCache) -> Artifact | None:
    """The cache's artifact under a key of `made_of`."""
    data = cache.get(key) if key else None
    return None if data is None else unpack(data)


def made_of(
    workload: Workload,
    trace: Trace,
    target: Target,
    name: str,
    overlapping: frozenset[str] = frozenset(),
) -> str:
    """A hash of all inputs of `compile_workload`. It is "" if one input is unknown, or if a debug switch
    makes the compiler show its work: then no cached result may be used."""
    watched = switches.dump() or switches.verify() or switches.debug() >= VERIFY_AT
    if target.kind != "llvm" or watched or not all(map(_is_ours, trace.steps)):
        return ""
    source = source_digest(_sources())
    parts = (
        workload.key,
        trace.to_json(),
        target.to_json(),
        *signature(target),
        name,
        *sorted(overlapping),
    )
    return object_key("artifact", source, *parts) if source else ""


def _is_ours(step: Step) -> bool:
    """Whether the code of this package alone decides what a step means, and not a module of the user."""
    named = [ALGORITHMS.get(name).expand for name in algorithms_of([step])]
    modules = [type(step).__module__, *(expand.__module__ for expand in named)]
    return all(m.partition(".")[0] in _OURS for m in modules)


@lru_cache(maxsize=1)
def _sources() -> tuple[Path, ...]:
    here = Path(__file__).parent
    rules = importlib.util.find_spec("schedules")
    places = (rules.submodule_search_locations if rules else None) or ()
    return (*(here / name for name in _PACKAGES), *map(Path, places))


def te_text(dag: ComputeDAG) -> str:
    """The tensor expressions of a DAG, a line per stage."""
    lines = []
    for s in dag.stages:
        axes = ", ".join(f"{a.name}: {a.size}" for a in s.axes)
        body = ", ".join(to_text(b) for b in s.bodies)
        if s.combiner is not None:
            over = ", ".join(f"{a.name}: {a.size}" for a in s.reduce_axes)
            body = f"{s.combiner.name}({body}, axis=[{over}])"
        lines.append(f"{s.name}[{axes}] = {body}")
    return "\n".join(lines)


def nest_text(state: State, names: Mapping[str, str] | None = None) -> str:
    """The loops of a state as text for people."""
    program = lower_nest(state)
    shown = display_names(state) if names is None else names
    return "\n\n".join(to_text(with_slices(f.body), names=shown) for f in (*program.prepare, *program.run))


def lowered(state: State, target: Target | None = None) -> Program:
    """The program that a backend would get, with the scheduled loops among its texts."""
    program = lower(state, target)
    return replace(program, texts={**program.texts, "nest": nest_text(state)})


def _file_name(name: str) -> str:
    """A file name made of a kernel's name: without slashes, and no longer than file systems allow."""
    text = name.replace("/", "_")
    return text if len(text) <= 200 else f"{text[:190]}_{object_key(name)[:8]}"


def tell_of(artifact: Artifact, dag: ComputeDAG, trace: Trace, name: str, how: str) -> Artifact:
    """The artifact. AUTOTENSOR_DEBUG shows the kernel, its trace, its loops and its source, by level."""
    log.at(1, f"kernel {name}: {how}")
    log.at(2, lambda: f"trace of {name}:\n{trace.to_python()}")
    log.at(3, lambda: f"loops of {name}:\n{nest_text(trace.replay(dag))}")
    log.at(4, lambda: f"source of {name}:\n{artifact.texts.get('llvm') or artifact.texts.get('source', '')}")
    return artifact


def _hook(name: str) -> Hook | None:
    """Shows the result of every pass: in files of the folder AUTOTENSOR_DUMP, and as lines from level 5 of
    AUTOTENSOR_DEBUG on. None if neither is requested."""
    dump, is_told = _dump_hook(name), log.enabled(VERIFY_AT)
    if not is_told:
        return dump

    def tell(p: Pass, func: PrimFunc) -> None:
        log.at(VERIFY_AT, lambda: f"{name}, pass {p.name}:\n{to_text(func)}")
        if dump is not None:
            dump(p, func)

    return tell


def _dump_hook(name: str) -> Hook | None:
    """A hook that writes the result of every pass to the folder AUTOTENSOR_DUMP; None if that is not set."""
    folder = switches.dump()
    if not folder:
        return None
    order = {p.name: n for n, p in enumerate(PIPELINE)}

    def write(p: Pass, func: PrimFunc) -> None:
        place = Path(str(folder)) / _file_name(name)
        place.mkdir(parents=True, exist_ok=True)
        file = place / f"{order[p.name]:02d}_{p.name.replace(' ', '_')}.{_file_name(func.name)}.txt"
        with naming(file):
            file.write_text(to_text(func) + "\n")

    return write

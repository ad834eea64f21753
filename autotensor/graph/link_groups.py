"""Links compiled groups into one native function for the whole model.

    groups + an Artifact for each workload ──▶ Artifact(inputs, outputs, weights, prepared arrays, arena)

The artifact's values are the model's weights as they are, each once. Its `prepare` turns them into the arrays
that the kernels read: it calls the kernels' own `prepare` functions, once for equal work on equal weights.
Intermediate values lie in one arena. Inputs and outputs are the caller's arrays. The entry is a plan
(codegen): it calls the kernels' entries in order. Threads meet only before a kernel that touches bytes which
another kernel has written since the last meeting, or that writes bytes which another kernel has read. On a
GPU, the plan is the list of launches, in the order of one queue.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from math import prod
from types import MappingProxyType
from typing import Any

from autotensor.base.dtype import dtype_of
from autotensor.base.errors import GraphError
from autotensor.base.target import Target
from autotensor.codegen.llvm.backend import Call, emit_plan
from autotensor.codegen.llvm.kernel_entry import Late
from autotensor.graph.aliasing import KernelUse, Place, Touch, check_plan
from autotensor.graph.groups import Group
from autotensor.graph.ir import Constant, Graph, GraphNode, Input
from autotensor.graph.linked_constants import (
    ModelConstants,
    constants_of,
    passed_on,
    prepared_values,
    values_of,
)
from autotensor.graph.memory import Lifetime, MemoryPlan, plan, plan_in_boxes
from autotensor.graph.partition import check_groups, last_readers
from autotensor.graph.storage import place as place_of
from autotensor.graph.storage import storage
from autotensor.graph.symbols.generalise import OpenLayout
from autotensor.graph.symbols.told_numbers import ToldNumbers
from autotensor.runtime.extents import Formula, renamed
from autotensor.runtime.files.artifact import EXTENTS, OPEN_SHAPES, ArgSpec, Artifact
from autotensor.runtime.files.artifact_binding import bound
from autotensor.runtime.files.launches import LAUNCHES, launches
from autotensor.te.open_shapes import formula

ARENA = "workspace.arena"
DEVICE_ALIGNMENT = 512  # bytes: no known OpenCL device needs more at the start of a sub-buffer
PER_THREAD = "workspace.per_thread"  # with its stride; kernels of different strides must not share it


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel of the plan."""

    number: int
    group: Group
    artifact: Artifact
    places: tuple[Place, ...]  # one per argument of the artifact
    barrier: bool  # whether threads meet before it
    late: Mapping[int, int]  # by argument: the position of the number that holds its offset at run time


def link(
    graph: Graph,
    groups: Sequence[Group],
    compiled: Mapping[str, Artifact],
    target: Target,
    updates: Mapping[str, str] = MappingProxyType({}),
    prepared: bool = False,
    opened: OpenLayout | None = None,
) -> Artifact:
    """The model as one artifact, ready to load.

    groups: `partition(graph)`, where every output of the graph has bytes of its own (`own_outputs`).
    compiled: by workload key; the arguments have the workload's names (Group.arg_names).
    updates: output name → name of the input that it overwrites; these outputs are not among the
    arguments (`updating_groups` orders the groups).
    prepared: the artifact holds prepared constants, which are made now; otherwise it holds the weights as
    they are.
    opened: the numbers that follow run-time extents, if workloads have such extents; the graph is then the
    graph of the greatest extents.
    Raises GraphError when a group has no artifact, or an artifact that does not fit.
    """
    check_groups(graph, groups)
    artifacts = [_artifact(g, compiled) for g in groups]
    constants = constants_of(groups, artifacts, {*graph.input_names, *graph.output_names})
    multiple = DEVICE_ALIGNMENT if target.is_gpu else 1
    memory = plan_memory(graph, groups, artifacts, multiple, plan if opened is None else plan_in_boxes)
    told = None if opened is None else _told(opened, memory, artifacts)
    steps = _steps(graph, groups, artifacts, constants.names, memory, updates, told)
    if told is not None:
        constants = constants.with_told(told.greatest())
    args = _arguments(graph, constants, memory, artifacts, updates)
    index = {a.name: n for n, a in enumerate(args)}
    ranges = _index_ranges(graph, groups, artifacts)
    preparing = [steps[n] for n in constants.preparing]
    if target.is_gpu:
        code = _launched(steps, preparing, index)
    else:
        code = _native(steps, preparing, index, args, constants.entry_constants, ranges, target)
    return Artifact(
        name=graph.name,
        target=target,
        entry=code.entry,
        prepare=code.prepare,
        args=args,
        objects=code.objects,
        needs=tuple(sorted({n for a in artifacts for n in a.needs})),
        texts=_texts(graph, steps, memory),
        values=prepared_values(groups, artifacts, constants) if prepared else constants.values,
        meta=_meta(graph, steps, memory, index, updates)
        | {"entry_constants": list(constants.entry_constants)}
        | ({"index_ranges": ranges} if ranges else {})
        | ({OPEN_SHAPES: told.plain()} if told is not None else {})
        | code.meta,
    )


@dataclass(frozen=True, slots=True)
class _Code:
    """The code that runs the plan."""

    entry: str
    prepare: str | None
    objects: tuple[bytes, ...]
    meta: dict[str, Any]


def _native(
    steps: Sequence[Step],
    preparing: Sequence[Step],
    index: Mapping[str, int],
    args: Sequence[ArgSpec],
    entry_constants: Sequence[str],
    ranges: Mapping[str, tuple[int, int]],
    target: Target,
) -> _Code:
    """One native function that calls the kernels in order, and one that prepares constants."""
    slots = [_slots(s, index) for s in steps]
    calls = [Call(s.artifact.entry, at, s.barrier) for s, at in zip(steps, slots, strict=True)]
    first = [Call(s.artifact.prepare or "", slots[s.number], bool(passed_on(s.artifact))) for s in preparing]
    stem = f"model_{hashlib.sha256(repr((calls, first, tuple(args))).encode()).hexdigest()[:20]}"
    entry = bound(stem, "run", args, entry_constants, ranges)
    prepare = bound(f"{stem}_prepare", "prepare", args, entry_constants, ranges) if first else None
    objects = dict.fromkeys(o for s in steps for o in s.artifact.objects)
    plans = [emit_plan(name, p, len(args), target) for name, p in ((entry, calls), (prepare, first)) if name]
    alone = all(s.artifact.meta.get("alone", False) for s in steps)
    meta = {"alone": alone, "reread": _reread(steps, args)}
    return _Code(entry, prepare, (*objects, *plans), meta)


def _slots(step: Step, index: Mapping[str, int]) -> tuple[tuple[int, int | Late], ...]:
    """The places of a step's arguments, for the code that calls it."""
    late = {k: Late(index[EXTENTS], number) for k, number in step.late.items()}
    return tuple((index[p.arg], late.get(k, p.offset)) for k, p in enumerate(step.places))


def _reread(steps: Sequence[Step], args: Sequence[ArgSpec]) -> list[str]:
    """The model's inputs that a kernel reads again and again."""
    read = {
        place.arg
        for s in steps
        for spec, place in zip(s.artifact.args, s.places, strict=True)
        if spec.name in s.artifact.meta.get("reread", ())
    }
    return [a.name for a in args if a.role == "input" and a.name in read]


def _launched(steps: Sequence[Step], preparing: Sequence[Step], index: Mapping[str, int]) -> _Code:
    """The launches of all kernels in order, for a device's queue or graph; no other code is generated."""
    objects = tuple(dict.fromkeys(o for s in steps for o in s.artifact.objects))
    first = [spec for s in preparing for spec in _moved_launches(s, "prepare", objects, index)]
    run = [spec for s in steps for spec in _moved_launches(s, "run", objects, index)]
    return _Code(
        run[0]["kernel"] if run else "nothing", None, objects, {LAUNCHES: {"prepare": first, "run": run}}
    )


def _moved_launches(
    step: Step, part: str, objects: Sequence[bytes], index: Mapping[str, int]
) -> list[dict[str, Any]]:
    """The launches of one kernel, with the model's objects and arguments."""
    numbers = {n: objects.index(o) for n, o in enumerate(step.artifact.objects)}
    found = []
    for spec in launches(step.artifact, part):
        places = [(step.places[n], offset) for n, offset in spec.args]
        moved = tuple((index[p.arg], p.offset + offset) for p, offset in places)
        found.append(replace(spec, args=moved, object=numbers[spec.object]).plain())
    return found


def _artifact(group: Group, compiled: Mapping[str, Artifact]) -> Artifact:
    found = compiled.get(group.workload.key)
    if found is None:
        raise GraphError(f"group {group.name!r} (workload {group.workload.key}) has not been compiled.")
    given = {a.name for a in found.args if a.role in ("input", "constant", "output")} - {EXTENTS}
    if given != set(group.arg_names):
        raise GraphError(
            f"group {group.name!r}: its program takes {', '.join(sorted(given))}, the workload "
            f"{', '.join(sorted(group.arg_names))}.",
            fix="Compile the workload's DAG, under its canonical names.",
        )
    return found


def _index_ranges(
    graph: Graph, groups: Sequence[Group], artifacts: Sequence[Artifact]
) -> dict[str, tuple[int, int]]:
    """The inputs of the model that hold indices, with the range that every kernel can take.

    Raises GraphError if a constant holds an index outside its range. Kernels limit computed indices
    themselves.
    """
    names = dict(zip(graph.inputs, graph.input_names, strict=True))
    found: dict[str, tuple[int, int]] = {}
    for group, artifact in zip(groups, artifacts, strict=True):
        for arg, node in values_of(group).items():
            allowed = artifact.index_range(arg)
            if allowed is None:
                continue
            low, high = allowed
            if isinstance(node, Input):
                before = found.get(names[node], allowed)
                found[names[node]] = max(low, before[0]), min(high, before[1])
            elif isinstance(node, Constant) and node.array.size:
                least, most = int(node.array.min()), int(node.array.max())
                if least < low or most > high:
                    raise GraphError(
                        f"group {group.name!r}: constant {node.name or arg!r} holds indices from {low} to "
                        f"{high}; it has {least if least < low else most}."
                    )
    return found


# -- memory ----------------------------------------------------------------------------------------------


def plan_memory(
    graph: Graph,
    groups: Sequence[Group],
    artifacts: Sequence[Artifact],
    multiple: int = 1,
    plan: Callable[[Sequence[Lifetime]], MemoryPlan] = plan,
) -> MemoryPlan:
    """Offsets of intermediate values and of the workspaces that a kernel's threads share.

    multiple: sizes and offsets are multiples of this number of bytes.
    """

    def whole(size: int) -> int:
        return -(-size // multiple) * multiple

    outside = {storage(o) for o in graph.outputs}
    values = [
        Lifetime(_space(n, spec.name), whole(spec.bytes), n, n)
        for n, a in enumerate(artifacts)
        for spec in a.role("workspace")
        if not spec.per_thread
    ]
    last = last_readers(groups)
    for n, g in enumerate(groups):
        for k, out in enumerate(g.outputs):
            if out not in outside:
                size = prod(out.shape) * out.dtype.bytes
                values.append(Lifetime(_value(n, k), whole(size), n, last.get(out, n)))
    return plan(values)


def _told(opened: OpenLayout, memory: MemoryPlan, artifacts: Sequence[Artifact]) -> ToldNumbers:
    """The numbers that a call passes to kernels; the offsets of places are added later."""
    bytes_ = {_value(n, k): formula(x) for (n, k), x in opened.bytes.items()}
    for n, artifact in enumerate(artifacts):
        own = artifact.meta.get(OPEN_SHAPES, {"symbols": (), "shapes": {}})
        names = dict(zip((name for name, _, _ in own["symbols"]), opened.kernels[n], strict=True))
        for spec in artifact.role("workspace"):
            size: Formula = dtype_of(spec.dtype).bytes
            for extent in own["shapes"].get(spec.name, spec.shape):
                size = ["*", renamed(extent, names), size]
            bytes_[_space(n, spec.name)] = size
    return ToldNumbers.of(opened, ARENA, memory, bytes_)


def _space(step: int, arg: str) -> str:
    return f"{step}:{arg}"


def _value(step: int, output: int) -> str:
    return f"{step}.{output}"


def _steps(
    graph: Graph,
    groups: Sequence[Group],
    artifacts: Sequence[Artifact],
    names: Sequence[Mapping[str, str]],
    memory: MemoryPlan,
    updates: Mapping[str, str],
    told: ToldNumbers | None,
) -> list[Step]:
    """The place of every argument, and the steps before which threads must wait for one another.

    told: with run-time extents, the numbers that get the offsets which depend on them; the places in the
    steps are those for the greatest extents.
    """
    arena = {v.name: Place(ARENA, o, v.bytes) for v, o in zip(memory.values, memory.offsets, strict=True)}
    places: dict[GraphNode, Place] = {}
    for x, name in zip(graph.inputs, graph.input_names, strict=True):
        places[x] = Place(name, 0, prod(x.shape) * x.dtype.bytes)
    for out, name in zip(graph.outputs, graph.output_names, strict=True):
        if 0 not in out.shape:
            places[storage(out)] = Place(updates.get(name, name), 0, prod(out.shape) * out.dtype.bytes)
    values: dict[GraphNode, str] = {}
    boxes = _boxes(memory)
    read: list[Place] = []
    written: list[Place] = []
    steps = []
    for n, (group, artifact) in enumerate(zip(groups, artifacts, strict=True)):
        for k, out in enumerate(group.outputs):
            places.setdefault(out, arena.get(_value(n, k), Place(ARENA)))
            values.setdefault(out, _value(n, k))
        bound = values_of(group)

        def place(spec: ArgSpec, n: int = n, bound: dict[str, GraphNode] = bound) -> Place:
            if spec.name == EXTENTS:
                assert told is not None, "only open groups have run-time extents"
                return Place(EXTENTS, told.begins[told.layout.kernels[n]] * 8, spec.bytes)
            if spec.name in names[n]:
                return Place(names[n][spec.name], 0, spec.bytes)
            if spec.name in bound and not isinstance(bound[spec.name], Constant):
                lies = place_of(bound[spec.name], places)
                whole = places[lies.of]
                return replace(whole, offset=whole.offset + lies.offset, bytes=spec.bytes)
            if spec.per_thread:
                return Place(_per_thread(spec))  # private to a thread: no reason for threads to meet
            return arena.get(_space(n, spec.name), Place(ARENA))

        def late(spec: ArgSpec, n: int = n, bound: dict[str, GraphNode] = bound) -> int | None:
            """The position of the number with the argument's offset; None if the offset is known now."""
            if told is None or spec.name in (EXTENTS, *names[n]) or spec.per_thread:
                return None
            if spec.name not in bound:
                return told.offset(_space(n, spec.name), 0)
            at = list(bound).index(spec.name)
            whole = place_of(bound[spec.name], places).of
            return told.offset(values.get(whole, ""), formula(told.layout.windows.get((n, at), 0)))

        all_places = tuple(place(s) for s in artifact.args)
        lates = {k: found for k, s in enumerate(artifact.args) if (found := late(s)) is not None}
        reached = [_box_of(p, boxes) for p in all_places]
        writes = [p for p, s in zip(reached, artifact.args, strict=True) if s.role in ("output", "workspace")]
        reads = [p for p, s in zip(reached, artifact.args, strict=True) if s.role in ("input", "workspace")]
        meets = any(w.meets(p) for w in written for p in (*reads, *writes)) or any(
            r.meets(p) for r in read for p in writes
        )
        if meets:
            read, written = [], []
        read += reads
        written += writes
        steps.append(Step(n, group, artifact, all_places, meets, lates))
    check_plan([_use(s, places) for s in steps], {x: places[x] for x in graph.inputs})
    return steps


def _boxes(memory: MemoryPlan) -> list[Place]:
    """The places of a plan's boxes, in order."""
    sizes = [memory.values[box[0]].size for box in memory.boxes]
    return [
        Place(ARENA, begin, size) for begin, size in zip(accumulate(sizes, initial=0), sizes, strict=False)
    ]


def _box_of(place: Place, boxes: Sequence[Place]) -> Place:
    """The box that holds a place, since other extents may use all of it; the place itself without boxes."""
    if place.arg != ARENA or not place.bytes:
        return place
    return next((b for b in boxes if b.offset <= place.offset < b.offset + b.bytes), place)


def _use(step: Step, places: Mapping[GraphNode, Place]) -> KernelUse:
    """A kernel as the checker takes it. places: of the values that have bytes of their own."""
    bound = values_of(step.group)

    def touch(spec: ArgSpec, at: Place) -> Touch:
        if spec.role == "workspace" or spec.name not in bound:
            return Touch(spec.name, at, spec.role != "input")
        value = place_of(bound[spec.name], places).of
        return Touch(spec.name, at, spec.role == "output", value, places[value])

    touches = (
        touch(s, p)
        for s, p in zip(step.artifact.args, step.places, strict=True)
        if not s.per_thread and s.role not in ("constant", "prepared")
    )
    told = frozenset(step.artifact.meta.get("overlapping", ()))
    return KernelUse(step.group.name, step.group.workload.dag, tuple(touches), told)


def _arguments(
    graph: Graph,
    constants: ModelConstants,
    memory: MemoryPlan,
    artifacts: Sequence[Artifact],
    updates: Mapping[str, str],
) -> tuple[ArgSpec, ...]:
    args = [
        ArgSpec(n, "input", x.shape, str(x.dtype))
        for n, x in zip(graph.input_names, graph.inputs, strict=True)
    ]
    args += [
        ArgSpec(n, "output", o.shape, str(o.dtype))
        for n, o in zip(graph.output_names, graph.outputs, strict=True)
        if n not in updates
    ]
    args += [ArgSpec(n, "constant", v.shape, v.dtype.name) for n, v in constants.values.items()]
    args += constants.prepared
    args.append(ArgSpec(ARENA, "workspace", (max(1, memory.arena_bytes),), "uint8"))
    private = {_per_thread(s): s.stride for a in artifacts for s in a.role("workspace") if s.per_thread}
    args += [
        ArgSpec(name, "workspace", (n,), "uint8", per_thread=True) for name, n in sorted(private.items())
    ]
    return tuple(args)


def _per_thread(spec: ArgSpec) -> str:
    """The name of the threads' workspace, one for each stride.

    Threads may run different kernels. If these had different strides in one workspace, thread 1 of one kernel
    could lie where thread 0 of another does.
    """
    return f"{PER_THREAD}.{spec.stride}"


# -- for people and tools --------------------------------------------------------------------------------


def _texts(graph: Graph, steps: Sequence[Step], memory: MemoryPlan) -> dict[str, str]:
    plan_lines = [str(memory)]
    for n, s in enumerate(steps):
        where = ", ".join(f"{p.arg}+{p.offset}" if p.arg == ARENA else p.arg for p in s.places)
        plan_lines += ["-- all threads meet"] if s.barrier else []
        plan_lines.append(f"{n}: {s.group.name}  {s.artifact.entry}({where})")
    texts = {"graph": str(graph), "plan": "\n".join(plan_lines)}
    for s in steps:
        texts |= {f"{kind}:{s.artifact.entry}": text for kind, text in s.artifact.texts.items()}
        texts[f"workload:{s.artifact.entry}"] = s.group.workload.text
    return texts


def _meta(
    graph: Graph,
    steps: Sequence[Step],
    memory: MemoryPlan,
    index: Mapping[str, int],
    updates: Mapping[str, str],
) -> dict[str, Any]:
    maker: dict[GraphNode, int] = {o: n for n, s in enumerate(steps) for o in s.group.outputs}
    meta: dict[str, Any] = {
        "kind": "model",
        "graph": graph.key,
        "flops": sum(s.group.flops for s in steps),
        "meetings": sum(s.barrier for s in steps),
        "memory": {
            "arena_bytes": memory.arena_bytes,
            "lower_bound_bytes": memory.lower_bound_bytes,
            "unshared_bytes": memory.unshared_bytes,
            "strategy": memory.strategy,
        },
        "kernels": [
            {
                "name": s.group.name,
                "workload": s.group.workload.key,
                "symbol": s.artifact.entry,
                "flops": s.group.flops,
                "slots": [[index[p.arg], p.offset] for p in s.places],
                "barrier": s.barrier,
                "launches": len(launches(s.artifact, "run")) if s.artifact.target.is_gpu else 1,
                "reads": _read_from(s, maker),
            }
            for s in steps
        ],
        "programs": {
            s.artifact.entry: {
                "args": [asdict(a) for a in s.artifact.args],
                "entry_constants": s.artifact.entry_constants(),
                "index_ranges": s.artifact.meta.get("index_ranges", {}),
            }
            for s in steps
        },
    }
    if updates:
        meta["updates"] = dict(updates)
    json.dumps(meta)  # an error is raised now, and not only when the model is saved
    return meta


def _read_from(step: Step, maker: Mapping[GraphNode, int]) -> dict[str, int]:
    """For each argument of this step, by name, the step that made its value."""
    bound = values_of(step.group)
    read = {a.name: bound[a.name] for a in step.artifact.role("input")}
    return {arg: maker[root] for arg, node in read.items() if (root := place_of(node, maker).of) in maker}

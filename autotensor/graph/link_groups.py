"""From compiled groups to one native function for the whole model.

    groups + an Artifact for each workload ──▶ Artifact(inputs, outputs, prepared weights, arena)

Constants are prepared now, once; equal arrays are stored once. Intermediate values lie in one arena. Inputs
and outputs are the caller's arrays. The entry is a plan (codegen): it calls the kernels' entries in order,
and lets threads meet only where a kernel touches bytes that one since the last meeting wrote (or writes
bytes that one read). On a GPU the plan is the list of launches, in the order of one queue.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from autotensor.base.errors import GraphError
from autotensor.base.names import free_name
from autotensor.base.target import Target
from autotensor.codegen.llvm.backend import Call, emit_plan
from autotensor.codegen.llvm.preparing import preparing_here
from autotensor.graph.aliasing import KernelUse, Place, Touch, check_plan
from autotensor.graph.groups import Group
from autotensor.graph.ir import Array, Constant, Graph, GraphNode, Input
from autotensor.graph.memory import Lifetime, MemoryPlan, plan
from autotensor.graph.partition import check_groups, last_readers
from autotensor.graph.storage import place as place_of
from autotensor.graph.storage import storage
from autotensor.runtime.files.artifact import ArgSpec, Artifact
from autotensor.runtime.files.artifact_binding import bound
from autotensor.runtime.files.launches import LAUNCHES, launches
from autotensor.runtime.open_artifact import Function, open_artifact

ARENA = "workspace.arena"
DEVICE_ALIGNMENT = 512  # bytes: no OpenCL device is known that wants parts of buffers to start at more
PER_THREAD = "workspace.per_thread"  # and its stride; kernels of two strides must not share one


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel of the plan."""

    group: Group
    artifact: Artifact
    places: tuple[Place, ...]  # one per argument of the artifact
    barrier: bool  # whether threads meet before it


def link(
    graph: Graph,
    groups: Sequence[Group],
    compiled: Mapping[str, Artifact],
    target: Target,
    updates: Mapping[str, str] = MappingProxyType({}),
) -> Artifact:
    """The model as one artifact, ready to load.

    groups: `partition(graph)`, where every output of the graph has bytes of its own (`own_outputs`).
    compiled: by workload key; arguments bear the workload's names (Group.arg_names).
    updates: outputs that are written over inputs, by name (`updating_groups` orders groups for it); they are
    no arguments of their own.
    Prepares constants by running the artifacts' prepare functions on this machine.
    Raises GraphError when a group has no artifact or one that does not fit.
    """
    check_groups(graph, groups)
    artifacts = [_artifact(g, compiled) for g in groups]
    values, names = _prepare_all(groups, artifacts, {*graph.input_names, *graph.output_names})
    memory = plan_memory(graph, groups, artifacts, DEVICE_ALIGNMENT if target.is_gpu else 1)
    steps = _steps(graph, groups, artifacts, names, memory, updates)
    args = _arguments(graph, values, memory, artifacts, updates)
    index = {a.name: n for n, a in enumerate(args)}
    ranges = _index_ranges(graph, groups, artifacts)
    code = _launched(steps, index) if target.is_gpu else _native(steps, index, args, ranges, target)
    return Artifact(
        name=graph.name,
        target=target,
        entry=code.entry,
        prepare=None,
        args=args,
        objects=code.objects,
        needs=tuple(sorted({n for a in artifacts for n in a.needs})),
        texts=_texts(graph, steps, memory),
        values=values,
        meta=_meta(graph, steps, memory, index, updates)
        | ({"index_ranges": ranges} if ranges else {})
        | code.meta,
    )


@dataclass(frozen=True, slots=True)
class _Code:
    """What runs the plan."""

    entry: str
    objects: tuple[bytes, ...]
    meta: dict[str, Any]


def _native(
    steps: Sequence[Step],
    index: Mapping[str, int],
    args: Sequence[ArgSpec],
    ranges: Mapping[str, tuple[int, int]],
    target: Target,
) -> _Code:
    """One native function that calls the kernels in order."""
    calls = [
        Call(s.artifact.entry, tuple((index[p.arg], p.offset) for p in s.places), s.barrier) for s in steps
    ]
    stem = f"model_{hashlib.sha256(repr((calls, tuple(args))).encode()).hexdigest()[:20]}"
    entry = bound(stem, "run", args, (), ranges)
    objects = dict.fromkeys(o for s in steps for o in s.artifact.objects)
    alone = all(s.artifact.meta.get("alone", False) for s in steps)
    meta = {"alone": alone, "reread": _reread(steps, args)}
    return _Code(entry, (*objects, emit_plan(entry, calls, len(args), target)), meta)


def _reread(steps: Sequence[Step], args: Sequence[ArgSpec]) -> list[str]:
    """The inputs of the whole that a kernel reads again and again."""
    read = {
        place.arg
        for s in steps
        for spec, place in zip(s.artifact.args, s.places, strict=True)
        if spec.name in s.artifact.meta.get("reread", ())
    }
    return [a.name for a in args if a.role == "input" and a.name in read]


def _launched(steps: Sequence[Step], index: Mapping[str, int]) -> _Code:
    """The launches of all kernels in order, for a device's queue or graph; nothing else is generated."""
    objects = tuple(dict.fromkeys(o for s in steps for o in s.artifact.objects))
    run: list[dict[str, Any]] = []
    for s in steps:
        numbers = {n: objects.index(o) for n, o in enumerate(s.artifact.objects)}
        for spec in launches(s.artifact, "run"):
            places = [(s.places[n], offset) for n, offset in spec.args]
            moved = tuple((index[p.arg], p.offset + offset) for p, offset in places)
            run.append(replace(spec, args=moved, object=numbers[spec.object]).plain())
    return _Code(run[0]["kernel"] if run else "nothing", objects, {LAUNCHES: {"prepare": [], "run": run}})


def _artifact(group: Group, compiled: Mapping[str, Artifact]) -> Artifact:
    found = compiled.get(group.workload.key)
    if found is None:
        raise GraphError(f"group {group.name!r} (workload {group.workload.key}) has not been compiled.")
    given = {a.name for a in found.args if a.role in ("input", "constant", "output")}
    if given != set(group.arg_names):
        raise GraphError(
            f"group {group.name!r}: its program takes {', '.join(sorted(given))}, the workload "
            f"{', '.join(sorted(group.arg_names))}.",
            fix="Compile the workload's DAG, under its canonical names.",
        )
    return found


def _bound(group: Group) -> dict[str, GraphNode]:
    """The value behind every argument name."""
    return dict(zip(group.arg_names, (*group.inputs, *(storage(o) for o in group.outputs)), strict=True))


# -- constants -------------------------------------------------------------------------------------------


def _prepare_all(
    groups: Sequence[Group], artifacts: Sequence[Artifact], reserved: Set[str]
) -> tuple[dict[str, Array], list[dict[str, str]]]:
    """Arrays that the model keeps, and for every group the model's names for its constant arguments."""
    modules: dict[int, Function] = {}
    values: dict[str, Array] = {}
    by_digest: dict[tuple[Any, ...], str] = {}
    names: list[dict[str, str]] = []
    for group, artifact in zip(groups, artifacts, strict=True):
        if artifact.role("prepared") and id(artifact) not in modules:
            modules[id(artifact)] = open_artifact(preparing_here(artifact))
        found: dict[str, str] = {}
        for arg, array in _prepare(group, artifact, modules.get(id(artifact))).items():
            key = (array.shape, str(array.dtype), hashlib.sha256(_bytes(array)).digest())
            if key not in by_digest:
                by_digest[key] = _value_name(group, arg, taken={*values, *reserved})
                values[by_digest[key]] = array
            found[arg] = by_digest[key]
        names.append(found)
    return values, names


def _prepare(group: Group, artifact: Artifact, module: Function | None) -> dict[str, Array]:
    """The arrays that the group's kernels read: prepared ones, and constants that are read as they are.

    module: what prepares; None if nothing is prepared."""
    bound = _bound(group)
    constants: dict[str, Array] = {}
    for spec in artifact.role("constant"):
        node = bound[spec.name]
        if not isinstance(node, Constant):
            raise GraphError(
                f"group {group.name!r}: argument {spec.name!r} must be a constant, it is {node!r}."
            )
        constants[spec.name] = node.array.reshape(spec.shape)
    if not artifact.role("constant", "prepared"):
        return {}
    kept = {a.name for a in artifact.role("prepared")} | set(artifact.entry_constants())
    ready = constants if module is None else module.bind(**constants)._values
    return {name: array for name, array in ready.items() if name in kept}


def _value_name(group: Group, arg: str, taken: set[str]) -> str:
    """A readable unique name: that of the constant in the model, else the argument's."""
    node = _bound(group).get(arg)
    stem = f"const.{node.name}" if isinstance(node, Constant) and node.name else f"prepared.{arg}"
    return free_name(stem, taken)


def _bytes(array: Array) -> Any:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else b""


def _index_ranges(
    graph: Graph, groups: Sequence[Group], artifacts: Sequence[Artifact]
) -> dict[str, tuple[int, int]]:
    """The inputs of the model that are indices, with the values that are inside for every kernel.

    Raises GraphError if a constant holds indices that are not; values computed inside are held inside there.
    """
    names = dict(zip(graph.inputs, graph.input_names, strict=True))
    found: dict[str, tuple[int, int]] = {}
    for group, artifact in zip(groups, artifacts, strict=True):
        for arg, node in _bound(group).items():
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
    graph: Graph, groups: Sequence[Group], artifacts: Sequence[Artifact], multiple: int = 1
) -> MemoryPlan:
    """Offsets of intermediate values and of the workspaces that a kernel's threads share.

    multiple: of bytes that values take, and so of the offsets.
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
) -> list[Step]:
    """Where every argument lies, and where threads must meet."""
    arena = {v.name: Place(ARENA, o, v.bytes) for v, o in zip(memory.values, memory.offsets, strict=True)}
    places: dict[GraphNode, Place] = {}
    for x, name in zip(graph.inputs, graph.input_names, strict=True):
        places[x] = Place(name, 0, prod(x.shape) * x.dtype.bytes)
    for out, name in zip(graph.outputs, graph.output_names, strict=True):
        if 0 not in out.shape:
            places[storage(out)] = Place(updates.get(name, name), 0, prod(out.shape) * out.dtype.bytes)
    read: list[Place] = []
    written: list[Place] = []
    steps = []
    for n, (group, artifact) in enumerate(zip(groups, artifacts, strict=True)):
        for k, out in enumerate(group.outputs):
            places.setdefault(out, arena.get(_value(n, k), Place(ARENA)))
        bound = _bound(group)

        def place(spec: ArgSpec, n: int = n, bound: dict[str, GraphNode] = bound) -> Place:
            if spec.name in names[n]:
                return Place(names[n][spec.name], 0, spec.bytes)
            if spec.name in bound and not isinstance(bound[spec.name], Constant):
                lies = place_of(bound[spec.name], places)
                whole = places[lies.of]
                return replace(whole, offset=whole.offset + lies.offset, bytes=spec.bytes)
            if spec.per_thread:
                return Place(_per_thread(spec))  # private to a thread: never a reason to meet
            return arena.get(_space(n, spec.name), Place(ARENA))

        all_places = tuple(place(s) for s in artifact.args)
        writes = [
            p for p, s in zip(all_places, artifact.args, strict=True) if s.role in ("output", "workspace")
        ]
        reads = [
            p for p, s in zip(all_places, artifact.args, strict=True) if s.role in ("input", "workspace")
        ]
        meets = any(w.meets(p) for w in written for p in (*reads, *writes)) or any(
            r.meets(p) for r in read for p in writes
        )
        if meets:
            read, written = [], []
        read += reads
        written += writes
        steps.append(Step(group, artifact, all_places, meets))
    check_plan([_use(s, places) for s in steps], {x: places[x] for x in graph.inputs})
    return steps


def _use(step: Step, places: Mapping[GraphNode, Place]) -> KernelUse:
    """What the checker sees of a kernel. places: of the values that have bytes of their own."""
    bound = _bound(step.group)

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
    values: Mapping[str, Array],
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
    args += [ArgSpec(n, "prepared", v.shape, v.dtype.name) for n, v in values.items()]
    args.append(ArgSpec(ARENA, "workspace", (max(1, memory.arena_bytes),), "uint8"))
    private = {_per_thread(s): s.stride for a in artifacts for s in a.role("workspace") if s.per_thread}
    args += [
        ArgSpec(name, "workspace", (n,), "uint8", per_thread=True) for name, n in sorted(private.items())
    ]
    return tuple(args)


def _per_thread(spec: ArgSpec) -> str:
    """Threads may be at different kernels: thread 1 of one must not lie where thread 0 of another does."""
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
        "entry_constants": [],
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
    json.dumps(meta)  # raises here rather than when the model is saved
    return meta


def _read_from(step: Step, maker: Mapping[GraphNode, int]) -> dict[str, int]:
    """Which step makes what an argument of this one reads, by the argument's name."""
    bound = _bound(step.group)
    read = {a.name: bound[a.name] for a in step.artifact.role("input")}
    return {arg: maker[root] for arg, node in read.items() if (root := place_of(node, maker).of) in maker}

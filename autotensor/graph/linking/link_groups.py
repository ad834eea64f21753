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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

from autotensor.base.errors import GraphError
from autotensor.base.target import Target
from autotensor.codegen.llvm.backend import Call, emit_plan
from autotensor.codegen.llvm.kernel_entry import Late
from autotensor.graph.groups import Group
from autotensor.graph.ir import Constant, Graph, GraphNode, Input
from autotensor.graph.linking.linked_constants import (
    ModelConstants,
    constants_of,
    passed_on,
    prepared_values,
    values_of,
)
from autotensor.graph.linking.step_places import (
    ARENA,
    Step,
    plan_memory,
    private_workspace,
    steps_of,
    told_numbers,
)
from autotensor.graph.memory import MemoryPlan, plan, plan_in_boxes
from autotensor.graph.partition import check_groups
from autotensor.graph.storage import place as place_of
from autotensor.graph.symbols.generalise import OpenLayout
from autotensor.runtime.files.artifact import EXTENTS, OPEN_SHAPES, ArgSpec, Artifact
from autotensor.runtime.files.artifact_binding import bound
from autotensor.runtime.files.launches import LAUNCHES, launches

DEVICE_ALIGNMENT = 512  # bytes: no known OpenCL device needs more at the start of a sub-buffer


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
    told = None if opened is None else told_numbers(opened, memory, artifacts)
    steps = steps_of(graph, groups, artifacts, constants.names, memory, updates, told)
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
    private = {private_workspace(s): s.stride for a in artifacts for s in a.role("workspace") if s.per_thread}
    args += [
        ArgSpec(name, "workspace", (n,), "uint8", per_thread=True) for name, n in sorted(private.items())
    ]
    return tuple(args)


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
            | ({"late": list(s.late.items())} if EXTENTS in index else {})
            for s in steps
        ],
        "programs": {
            s.artifact.entry: {
                "args": [asdict(a) for a in s.artifact.args],
                "entry_constants": s.artifact.entry_constants(),
                "index_ranges": s.artifact.meta.get("index_ranges", {}),
            }
            | {key: s.artifact.meta[key] for key in (OPEN_SHAPES,) if key in s.artifact.meta}
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

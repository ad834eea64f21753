"""Where the arguments of every kernel of a linked model lie, and where threads must wait for one another.

    groups + artifacts ──▶ plan_memory ──▶ steps: Step(group, artifact, places, barrier), …

A place is an argument of the model and an offset: inputs, outputs and constants are arguments of their own,
intermediate values lie in one arena. `aliasing.py` checks the places value by value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod

from autotensor.base.dtype import dtype_of
from autotensor.graph.groups import Group
from autotensor.graph.ir import Constant, Graph, GraphNode
from autotensor.graph.linking.aliasing import KernelUse, Place, Touch, check_plan
from autotensor.graph.linking.linked_constants import values_of
from autotensor.graph.memory import Lifetime, MemoryPlan, plan
from autotensor.graph.partition import last_readers
from autotensor.graph.storage import place as place_of
from autotensor.graph.storage import storage
from autotensor.graph.symbols.generalise import OpenLayout
from autotensor.graph.symbols.told_numbers import ToldNumbers
from autotensor.runtime.extents import Formula, renamed
from autotensor.runtime.files.artifact import EXTENTS, OPEN_SHAPES, ArgSpec, Artifact
from autotensor.te.open_shapes import formula

ARENA = "workspace.arena"
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


def told_numbers(opened: OpenLayout, memory: MemoryPlan, artifacts: Sequence[Artifact]) -> ToldNumbers:
    """The numbers that a call passes to kernels; the offsets of places are added later."""
    bytes_ = {_value(n, k): formula(x) for (n, k), x in opened.bytes.items()}
    for n, artifact in enumerate(artifacts):
        own = artifact.meta.get(OPEN_SHAPES, {"symbols": (), "shapes": {}})
        values = map(formula, opened.kernels[n])
        names = dict(zip((name for name, _, _ in own["symbols"]), values, strict=True))
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


def steps_of(
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
                return Place(private_workspace(spec))  # private to a thread: no reason for threads to meet
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


def private_workspace(spec: ArgSpec) -> str:
    """The name of the threads' workspace, one for each stride.

    Threads may run different kernels. If these had different strides in one workspace, thread 1 of one kernel
    could lie where thread 0 of another does.
    """
    return f"{PER_THREAD}.{spec.stride}"

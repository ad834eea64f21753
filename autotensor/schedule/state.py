"""State: the frozen picture of all loops of a schedule. Primitives map states to states; lowering reads the
last one.

    State ── stages ──▶ Stage ── op (what), leaves (loops, outer to inner), relations (leaves → axes), place

Extents are not stored: `extents.py` derives them from the relations, because attaching a stage shrinks its
loops.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from autotensor.base.errors import ScheduleError
from autotensor.ir.expr import Expr, Load
from autotensor.ir.func import Buffer, Scope
from autotensor.ir.rewrite import substitute, transform
from autotensor.ir.visit import height
from autotensor.schedule.axis import Axis
from autotensor.te.clamped_choices import unclamped
from autotensor.te.dag import ComputeDAG, StageOp
from autotensor.te.scan import hosts, steps_of


@dataclass(frozen=True, slots=True)
class Ref:
    """Stands for a number that the search decides: component `index` of the hole's chosen option."""

    hole: str
    index: int = 0


Size = int | Ref  # a factor in a sketch may be undecided


@dataclass(frozen=True, slots=True)
class Split:
    """`parent` = children[0] … children[n-1], where children 1… have the extents `factors`.

    With `nparts`, the outermost child has that extent and the one factor is derived.
    """

    parent: str
    children: tuple[str, ...]
    factors: tuple[Size, ...]
    nparts: Size | None = None


@dataclass(frozen=True, slots=True)
class Fuse:
    """`fused` runs over a × b, b fastest."""

    a: str
    b: str
    fused: str


@dataclass(frozen=True, slots=True)
class Root:
    """The stage is computed by itself, before its consumers."""


@dataclass(frozen=True, slots=True)
class Inlined:
    """The stage is not computed at all: its expression stands in its consumers."""


@dataclass(frozen=True, slots=True)
class At:
    """The stage is computed inside loop `axis` of stage `stage`, as much as an iteration of it needs.

    store: the loop outside of it in each iteration of which the stage's storage lives; "": in each of `axis`.
    """

    stage: str
    axis: str
    store: str = ""


Place = Root | Inlined | At


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage and its loops."""

    op: StageOp
    leaves: tuple[Axis, ...]
    relations: tuple[Split | Fuse, ...] = ()
    place: Place = Root()
    scope: Scope = Scope.GLOBAL
    pragmas: tuple[tuple[str, str, str], ...] = ()  # (axis, key, value)
    storage: tuple[tuple[str, ...], int] | None = None  # axes of the private buffer, and padding of its rows
    align: tuple[str, int, int] | None = None  # an axis of it: its stride is offset modulo factor
    swizzle: int = 0  # elements that stay together when its rows are mixed up; 0: they are not
    turns: int = 1  # boxes kept in shared memory: of this turn and of those computed ahead
    # loops that are not run, because the values of their variables are known inside those around them
    solved: tuple[str, ...] = ()  # spatial: where the term goes
    scanned: str = ""  # reduction axis along which each element has one term more than the one before
    sorted: str = ""  # along which the elements are sorted for their ranks
    carries: bool = False  # state, from step to step along its first axis: it is computed by itself

    @staticmethod
    def of(op: StageOp, scope: Scope = Scope.GLOBAL) -> Stage:
        return Stage(op, tuple(Axis(a.name, a.kind) for a in op.all_axes), scope=scope)

    @property
    def name(self) -> str:
        return self.op.name

    @property
    def touched(self) -> bool:
        """Whether a loop primitive has been applied, or the stage's loops cannot be chosen."""
        return self.carries or bool(self.relations) or self.leaves != Stage.of(self.op).leaves

    def leaf(self, axis: str) -> Axis:
        """The loop of that name. Raises ScheduleError with the names that exist."""
        for leaf in self.leaves:
            if leaf.name == axis:
                return leaf
        raise ScheduleError(
            f"stage {self.name!r} has no axis {axis!r}; it has {', '.join(a.name for a in self.leaves)}."
        )

    def position(self, axis: str) -> int:
        return self.leaves.index(self.leaf(axis))

    def replacing(self, axis: str, *new: Axis) -> Stage:
        """The stage with one loop replaced by others in its place."""
        at = self.position(axis)
        return replace(self, leaves=(*self.leaves[:at], *new, *self.leaves[at + 1 :]))


@dataclass(frozen=True, slots=True)
class State:
    """All stages, producers first. Inputs, outputs and the calling order are the DAG's."""

    dag: ComputeDAG
    stages: tuple[Stage, ...]

    @staticmethod
    def initial(dag: ComputeDAG) -> State:
        """Each stage by itself, except the intermediate values of a scan's step, which are computed where the
        step begins."""
        inside = {
            op.name: At(host.name, host.axes[0].name)
            for host in hosts(dag.stages, dag.carried)
            for op in steps_of(host, dag.stages, dag.carried)[:-1]
        }
        made = (Stage.of(unclamped(op)) for op in dag.stages)
        carrying = {op.name for op in hosts(dag.stages, dag.carried)}
        return State(
            dag,
            tuple(replace(s, place=inside.get(s.name, s.place), carries=s.name in carrying) for s in made),
        )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(s.name for s in self.stages)

    def stage(self, name: str) -> Stage:
        for s in self.stages:
            if s.name == name:
                return s
        raise ScheduleError(f"there is no stage {name!r}; there are {', '.join(self.names)}.")

    def has(self, name: str) -> bool:
        return any(s.name == name for s in self.stages)

    def with_stage(self, stage: Stage) -> State:
        """The state with the stage of that name replaced."""
        return replace(self, stages=tuple(stage if s.name == stage.name else s for s in self.stages))

    def inserting(self, stage: Stage, *, before: str) -> State:
        """The state with a new stage placed before another."""
        at = self.names.index(before)
        return replace(self, stages=(*self.stages[:at], stage, *self.stages[at:]))

    def live(self) -> tuple[Stage, ...]:
        """Stages that are computed (not inlined)."""
        return tuple(s for s in self.stages if not isinstance(s.place, Inlined))

    def producer(self, buffer: Buffer) -> Stage | None:
        for s in self.stages:
            if buffer in s.op.buffers:
                return s
        return None

    def buffer(self, name: str) -> Buffer:
        """An input or a stage's result, by name."""
        buffers = (*self.dag.inputs, *(b for s in self.stages for b in s.op.buffers))
        for b in buffers:
            if b.name == name:
                return b
        known = ", ".join(b.name for b in buffers)
        raise ScheduleError(f"there is no tensor {name!r}; there are {known}.")

    def readers(self, buffer: Buffer) -> tuple[Stage, ...]:
        """Live stages that read the buffer."""
        return tuple(s for s in self.live() if buffer in s.op.reads())

    def consumers(self, stage: Stage) -> tuple[Stage, ...]:
        """Live stages that read any output of the stage."""
        return tuple(s for s in self.live() if any(b in stage.op.buffers for b in s.op.reads()))

    def is_output(self, stage: Stage) -> bool:
        return any(b in self.dag.outputs for b in stage.op.buffers)

    def attached(self, stage: str, axis: str | None = None) -> tuple[Stage, ...]:
        """Stages computed inside a stage (inside one of its loops)."""
        return tuple(
            s
            for s in self.stages
            if isinstance(s.place, At) and s.place.stage == stage and (axis is None or s.place.axis == axis)
        )

    def constant_stages(self) -> frozenset[str]:
        """Names of root stages that depend on constants only: they are prepared once, not run."""
        known = set(self.dag.constants)
        found: set[str] = set()
        for s in self.live():
            reads = s.op.reads()
            constant = bool(reads) and all(b.name in known for b in reads) and not self.is_output(s)
            constant = constant and not s.op.is_open  # a call passes an open extent
            if constant:
                known.update(b.name for b in s.op.buffers)
                if isinstance(s.place, Root):
                    found.add(s.name)
        return frozenset(found)


def redirect(op: StageOp, old: Buffer, new: Buffer, index: object = None) -> StageOp:
    """The op reading `new` wherever it read `old`; `index` maps the old indices to new ones."""

    def swap(node: object) -> Expr | None:
        if isinstance(node, Load) and node.buffer is old:
            return Load(new, index(node.indices) if callable(index) else node.indices, node.mask)
        return None

    return replace(op, bodies=tuple(transform(b, swap) for b in op.bodies))


def nested(op: StageOp, producer: StageOp) -> int:
    """The most levels that the op's expressions have, with the producer's expressions in place of its
    reads."""
    return _levels(op.bodies) + _levels(producer.bodies)


@lru_cache(maxsize=4096)  # rules ask of the same stages again and again
def _levels(bodies: tuple[Expr, ...]) -> int:
    return max(height(b) for b in bodies)


def inline_into(op: StageOp, producer: StageOp) -> StageOp:
    """The op with every read of the producer replaced by the producer's expression."""

    def swap(node: object) -> Expr | None:
        if isinstance(node, Load) and node.buffer in producer.buffers:
            body = producer.bodies[producer.buffers.index(node.buffer)]
            return substitute(body, {a.var: i for a, i in zip(producer.axes, node.indices, strict=True)})
        return None

    return replace(op, bodies=tuple(transform(b, swap) for b in op.bodies))

"""State: all loops of a schedule at one moment, frozen. Primitives map states to states, and lowering reads
the last state.

    State ── stages ──▶ Stage ── op, leaves (loops, outer to inner), relations (leaves → axes), place

Extents are not stored. `extents.py` derives them from the relations, because attaching a stage changes the
extents of its loops.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from autotensor.base.counted import few
from autotensor.base.errors import ScheduleError
from autotensor.ir.expr import Expr, Load
from autotensor.ir.func import Buffer, Scope
from autotensor.ir.rewrite import transform
from autotensor.ir.visit import height
from autotensor.schedule.axis import Axis
from autotensor.te.clamped_choices import unclamped
from autotensor.te.dag import ComputeDAG, StageOp
from autotensor.te.index_bounds import kept_inside
from autotensor.te.indices import clamped
from autotensor.te.scan import hosts, steps_of


@dataclass(frozen=True, slots=True, repr=False)
class Ref:
    """Stands for a number that the search decides: component `index` of the chosen option of a hole."""

    hole: str
    index: int = 0

    def __repr__(self) -> str:
        return f'Ref("{self.hole}", {self.index})' if self.index else f'Ref("{self.hole}")'


Size = int | Ref  # a factor in a sketch may be undecided


@dataclass(frozen=True, slots=True)
class Split:
    """`parent` = children[0] … children[n-1], where children 1… have the extents `factors`.

    With `nparts`, the outermost child has that extent, and the single factor is derived.
    """

    parent: str
    children: tuple[str, ...]
    factors: tuple[Size, ...]
    nparts: Size | None = None


@dataclass(frozen=True, slots=True)
class Fuse:
    """`fused` runs over a × b; b changes fastest."""

    a: str
    b: str
    fused: str


@dataclass(frozen=True, slots=True)
class Root:
    """The stage is computed by itself, before its consumers."""


@dataclass(frozen=True, slots=True)
class Inlined:
    """The stage is not computed. Its expression is part of its consumers."""


@dataclass(frozen=True, slots=True)
class At:
    """The stage is computed inside loop `axis` of stage `stage`. Each iteration computes the part that it
    needs.

    store: a loop outside of `axis`; the stage's storage is kept during each of its iterations. "": the
    storage is kept during one iteration of `axis`.
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
    # axes in the order of the private buffer, and padding of its rows
    storage: tuple[tuple[str, ...], int] | None = None
    # an axis of the private buffer whose stride is offset modulo factor
    align: tuple[str, int, int] | None = None
    # number of elements that stay together when chunks of rows are permuted; 0: not permuted
    swizzle: int = 0
    turns: int = 1  # boxes kept in shared memory: the one of this turn, and those computed ahead
    # loops that do not run, because the values of their variables follow from the loops around them
    solved: tuple[str, ...] = ()  # spatial axes that give the element to which a term belongs
    # axis along which each element of a running reduction has one term more than the one before
    scanned: str = ""
    sorted: str = ""  # axis along which the elements are sorted to find their ranks
    carries: bool = False  # it carries state from step to step along its first axis, and is computed at root

    @staticmethod
    def of(op: StageOp, scope: Scope = Scope.GLOBAL) -> Stage:
        return Stage(op, tuple(Axis(a.name, a.kind) for a in op.all_axes), scope=scope)

    @property
    def name(self) -> str:
        return self.op.name

    @property
    def touched(self) -> bool:
        """Whether a loop primitive has been applied, or the stage's loops cannot be changed."""
        return self.carries or bool(self.relations) or self.leaves != Stage.of(self.op).leaves

    def leaf(self, axis: str) -> Axis:
        """The loop with this name. Raises ScheduleError with the names that exist."""
        for leaf in self.leaves:
            if leaf.name == axis:
                return leaf
        raise ScheduleError(
            f"stage {self.name!r} has no axis {axis!r}; it has {', '.join(a.name for a in self.leaves)}."
        )

    def position(self, axis: str) -> int:
        return self.leaves.index(self.leaf(axis))

    def replacing(self, axis: str, *new: Axis) -> Stage:
        """The stage with one loop replaced by other loops at the same position."""
        at = self.position(axis)
        return replace(self, leaves=(*self.leaves[:at], *new, *self.leaves[at + 1 :]))


@dataclass(frozen=True, slots=True)
class Variant:
    """The schedule for run-time extents whose symbols have a product below `points`."""

    points: int
    state: State


@dataclass(frozen=True, slots=True)
class State:
    """All stages, producers first. The DAG has the inputs, the outputs and the order of arguments."""

    dag: ComputeDAG
    stages: tuple[Stage, ...]
    variants: tuple[Variant, ...] = ()  # other schedules for small run-time extents

    @staticmethod
    def initial(dag: ComputeDAG) -> State:
        """All stages at root, except the intermediate values of a scan's step, which are computed at the
        beginning of the step."""
        inside = {
            op.name: At(host.name, host.axes[0].name)
            for host in hosts(dag.stages, dag.carried)
            for op in steps_of(host, dag.stages, dag.carried)[:-1]
        }
        steps = frozenset(before.name for before, _ in dag.carried)
        made = (Stage.of(kept_inside(unclamped(op), steps)) for op in dag.stages)
        carrying = {op.name for op in hosts(dag.stages, dag.carried)}
        return State(
            dag,
            tuple(replace(s, place=inside.get(s.name, s.place), carries=s.name in carrying) for s in made),
        )

    def __repr__(self) -> str:
        """One line, the loops of each stage. `at.lower` prints them as a program."""
        return f"State({few(f'{s.name}: {few(x.name for x in s.leaves)}' for s in self.stages)})"

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
        """The state with the stage of the same name replaced."""
        return replace(self, stages=tuple(stage if s.name == stage.name else s for s in self.stages))

    def inserting(self, stage: Stage, *, before: str) -> State:
        """The state with a new stage before another one."""
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
        """The input or the stage's result with this name."""
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
        """Stages computed inside a stage, or inside one of its loops."""
        return tuple(
            s
            for s in self.stages
            if isinstance(s.place, At) and s.place.stage == stage and (axis is None or s.place.axis == axis)
        )

    def constant_stages(self) -> frozenset[str]:
        """Names of root stages that depend only on constants: they are prepared once."""
        known = set(self.dag.constants)
        found: set[str] = set()
        for s in self.live():
            reads = s.op.reads()
            constant = bool(reads) and all(b.name in known for b in reads) and not self.is_output(s)
            constant = constant and not s.op.is_open  # a call passes an open extent, so it is not constant
            if constant:
                known.update(b.name for b in s.op.buffers)
                if isinstance(s.place, Root):
                    found.add(s.name)
        return frozenset(found)


def redirect(op: StageOp, old: Buffer, new: Buffer, index: object = None) -> StageOp:
    """The op, reading `new` wherever it read `old`. `index` maps the old indices to new ones: an index from
    memory is held inside `old` first, because lowering sees only `new`."""

    def swap(node: object) -> Expr | None:
        if not isinstance(node, Load) or node.buffer is not old:
            return None
        if not callable(index):
            return Load(new, node.indices, node.mask)
        return Load(new, index(tuple(map(clamped, node.indices, old.dims))), node.mask)

    return replace(op, bodies=tuple(transform(b, swap) for b in op.bodies))


def nested(op: StageOp, producer: StageOp) -> int:
    """The most levels that the op's expressions have after the producer's expressions replace the op's reads
    of them."""
    return _levels(op.bodies) + _levels(producer.bodies)


@lru_cache(maxsize=4096)  # rules call this again and again for the same stages
def _levels(bodies: tuple[Expr, ...]) -> int:
    return max(height(b) for b in bodies)

"""Schedule: the object that people use to write a schedule. It holds a trace and replays it.

    s = te.create_schedule(C)
    yo, yi = s[C].split(C.op.axis[0], factor=8)
    s[C].reorder(yo, s[C].op.axis[1], yi)
    print(s)                       the loops
    print(s.trace)                 the calls, to paste into a program

Axes are returned as `AxisRef`s. Arguments may also be te axes (`C.op.axis[0]`, a `te.reduce_axis`) or names
(`"y.0"`).
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autotensor.base.absent_names import absent, methods_take_their_names, takes_its_names
from autotensor.base.errors import LoweringError, ScheduleError, TensorError
from autotensor.ir.arithmetic import Arithmetic
from autotensor.ir.notebook import ShownInNotebooks
from autotensor.schedule.plain_loops import plain_loops
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.primitives.bind import Bind
from autotensor.schedule.primitives.cache import CacheRead, CacheWrite
from autotensor.schedule.primitives.compute_at import ComputeAt, ComputeRoot, Inline
from autotensor.schedule.primitives.double_buffer import DoubleBuffer
from autotensor.schedule.primitives.fuse import FuseStep
from autotensor.schedule.primitives.layout import Layout
from autotensor.schedule.primitives.look_ahead import LookAhead
from autotensor.schedule.primitives.mark import Parallel, Unroll, Vectorize
from autotensor.schedule.primitives.pragma import Pragma
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.primitives.rfactor import RFactor
from autotensor.schedule.primitives.set_scope import SetScope
from autotensor.schedule.primitives.solve import Scan, Solve, Sort
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.primitives.storage import Storage, StorageAlign, Swizzle
from autotensor.schedule.primitives.store_at import StoreAt
from autotensor.schedule.primitives.tensorize import Tensorize
from autotensor.schedule.state import State
from autotensor.schedule.step import Step
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from autotensor.te.tensor import Compute, IterVar, Placeholder, Tensor
from autotensor.te.thread import ThreadAxis


@dataclass(frozen=True, slots=True)
class AxisRef:
    """A loop of a stage, by name."""

    stage: str
    name: str

    def __str__(self) -> str:
        return self.name

    if not TYPE_CHECKING:  # type checkers should still report unknown names

        def __getattr__(self, name: str) -> Any:
            raise absent("axis", name, self, _AXIS_ELSEWHERE)


AxisLike = AxisRef | IterVar | str


@dataclass(frozen=True, slots=True)
class OpRef:
    """The value of `s[C].op`: the stage's axes, with TVM's names."""

    axis: tuple[AxisRef, ...]
    reduce_axis: tuple[AxisRef, ...]

    if not TYPE_CHECKING:  # type checkers should still report unknown names

        def __getattr__(self, name: str) -> Any:
            raise absent("s[C].op", name, self, dict.fromkeys(_OP_OF_TENSOR, f"it is C.op.{name}"))


_BY_POSITION = (
    *("parent", "scope", "var", "ivar", "thread_ivar", "x_parent", "y_parent", "pragma_type"),
    *("outer", "inner"),
)
_ARGUMENTS_ELSEWHERE = {  # arguments of TVM's primitives → the advice for this project
    **dict.fromkeys(_BY_POSITION, "Pass it by position; the order is TVM's."),
    "disable_predication": "Leave it out: a loop has a guard only where the split leaves a tail.",
    "factor_axis": "Leave it out: the new axis comes first; s[BF].reorder moves its loop.",
}


@methods_take_their_names("s", _ARGUMENTS_ELSEWHERE)
class Schedule(ShownInNotebooks):
    """A trace under construction. Every call applies a step to `state`, or raises if that is impossible."""

    def __init__(self, dag: ComputeDAG, trace: Trace = Trace()) -> None:  # noqa: B008  # traces are frozen
        self.dag = dag
        self.trace = trace
        self.state: State = trace.replay(dag)

    if not TYPE_CHECKING:  # type checkers should still report unknown names

        def __getattr__(self, name: str) -> Any:
            raise absent("s", name, self, _SCHEDULE_ELSEWHERE)

    def do(self, *steps: Step) -> None:
        """Applies steps, and records them. If one of them cannot be applied, none is."""
        state, trace = self.state, self.trace
        for step in steps:
            state, trace = step.apply(state), trace.then(step)
        self.state, self.trace = state, trace

    def __getitem__(self, what: Tensor | Compute | StageRef | str) -> StageRef:
        return StageRef(self, self.stage_name(what))

    def __call__(self, what: Any) -> StageRef:
        raise ScheduleError("a schedule cannot be called.", fix="Index it: s[C] is the stage of C.")

    def stage_name(self, what: Any) -> str:
        """The name of the stage that a tensor, an op, a handle or a name stands for."""
        if isinstance(what, StageRef) and what.schedule is self:
            return what.name
        if isinstance(what, str):
            return self.state.stage(what).name
        op = what.op if isinstance(what, Tensor) else what
        if isinstance(op, Placeholder):
            raise ScheduleError(
                f"{op.name!r} is an input and has no loops.", fix="Use cache_read to copy it."
            )
        if isinstance(op, Compute):
            found = self.dag.tensors.get((id(op), 0))
            if found is not None:
                return found.name
        raise ScheduleError(
            f"{what!r} is not part of this schedule.", fix=f"Its stages: {', '.join(self.state.names)}."
        )

    def tensor_name(self, what: Any) -> str:
        """The name of the tensor that a tensor, an op, a handle or a name stands for. This also works for
        inputs."""
        if isinstance(what, Tensor):
            try:
                return self.dag.buffer_of(what).name
            except TensorError as e:
                raise ScheduleError(e.what) from e
        return self.stage_name(what) if not isinstance(what, str) else what

    def cache_read(self, tensor: Any, scope: str, readers: Any) -> StageRef:
        """Copies a tensor for some readers, or for one. Returns the copying stage."""
        names = tuple(self.stage_name(r) for r in _listed(readers))
        return self._adding(CacheRead(self.tensor_name(tensor), scope, names))

    def cache_write(self, tensor: Any, scope: str) -> StageRef:
        """Computes a stage into a near buffer. Returns the computing stage. tensor: one result or several."""
        names = list(dict.fromkeys(self.stage_name(t) for t in _listed(tensor)))
        if len(names) != 1:
            raise ScheduleError(
                f"cache_write takes results of one stage, got {', '.join(names) or 'none'}.",
                fix="Call it once for each.",
            )
        return self._adding(CacheWrite(names[0], scope))

    def rfactor(self, tensor: Any, axis: AxisLike) -> StageRef:
        """Computes partial results along a reduction loop. Returns the new stage."""
        name = self.stage_name(tensor)
        return self._adding(RFactor(name, self.axis_name(name, axis)))

    def layout(self, tensor: Any, tiles: Sequence[tuple[int, int]], order: str) -> StageRef:
        """Copies a tensor into tiles and another order of dimensions. Returns the copying stage."""
        name = self.tensor_name(tensor)
        pairs = [t for t in _listed(tiles) if isinstance(t, (tuple, list)) and len(t) == 2]
        if len(pairs) != len(_listed(tiles)) or not isinstance(order, str):
            raise ScheduleError(
                f"layout: {name!r} takes pairs (dimension, factor) and a text, not {tiles!r} and {order!r}.",
                fix='For example s.layout(B, [(1, 16)], "1.0 0 1.1").',
            )
        inner = tuple(
            (_whole("layout: dimension", d, repr(name)), _whole("layout: factor", f, repr(name)))
            for d, f in pairs
        )
        return self._adding(Layout(name, inner, order))

    def algorithm(self, tensor: Any, name: str) -> None:
        """Computes a stage in another way (`schedules/algorithms`). It must be the stage's first step."""
        self.do(UseAlgorithm(self.stage_name(tensor), name))

    def _adding(self, step: Step) -> StageRef:
        """Applies a step that makes a stage, and returns that stage."""
        before = set(self.state.names)
        self.do(step)
        (new,) = set(self.state.names) - before
        return StageRef(self, new)

    def axis_name(self, stage: str, axis: AxisLike) -> str:
        """The name of a stage's loop. The loop is given as a reference, a te axis or a name.

        Raises ScheduleError for an axis of another stage, because equal names would hide the mistake.
        """
        if isinstance(axis, str):
            return axis
        owner, name = (axis.stage, axis.name) if isinstance(axis, AxisRef) else self._origin(axis)
        copied = stage.startswith(f"{owner}.") and ":" not in stage  # C.local has the axes of C
        if owner != stage and not copied:
            raise ScheduleError(
                f"axis {name!r} belongs to stage {owner!r}, not to {stage!r}.",
                fix=f"Take it from s[{stage!r}].op.",
            )
        return name

    def _origin(self, axis: Any) -> tuple[str, str]:
        """The stage and the name of a te axis in the DAG."""
        for op in self.dag.keep:
            if isinstance(op, Compute):
                for n, a in enumerate((*op.axes, *op.reduce_axes)):
                    if a is axis:
                        stage = self.dag.stage(self.dag.tensors[id(op), 0].name)
                        return stage.name, stage.all_axes[n].name
        if isinstance(axis, IterVar):
            raise ScheduleError(
                f"axis {axis.name!r} belongs to no stage of this schedule.",
                fix=f"Its stages: {', '.join(self.state.names)}.",
            )
        fix = "Pass what split or fuse returned, or C.op.axis[0]."
        if isinstance(axis, (tuple, list)):
            fix = "Pass axes one by one: s[C].reorder(y, x), or s[C].fuse(*axes)."
        raise ScheduleError(f"{axis!r} is not an axis.", fix=fix)

    def __str__(self) -> str:
        """The loops, as `autotensor.lower` prints them; unfinished ones with the reason why they cannot run.

        Lowering, a higher layer, is looked up only then.
        """
        try:
            return str(importlib.import_module("autotensor.compiler").nest_text(self.state))
        except (ScheduleError, LoweringError) as error:
            return f"# These loops cannot run yet. {error}\n{plain_loops(self.state)}"

    def __repr__(self) -> str:
        return f"Schedule({', '.join(self.state.names)}; {len(self.trace.steps)} steps)"


_OF_STAGES = (
    *("split", "tile", "reorder", "fuse", "bind", "parallel", "vectorize", "unroll", "pragma", "tensorize"),
    *("compute_at", "compute_inline", "compute_root"),
)
_SCHEDULE_ELSEWHERE = {  # attributes of TVM's schedules → what to write here
    "create_group": "attach each stage by itself: s[A].compute_at(s[C], axis)",
    "normalize": "leave it out; at.lower and at.build do this",
    "outputs": "print(s) shows the stages and their loops, and s[C] is the stage of C",
    "stages": "print(s) shows the stages and their loops, and s[C] is the stage of C",
    "stage_map": "s[C] is the stage of C",
    **{name: f"loops belong to a stage: s[C].{name}(...)" for name in _OF_STAGES},
}
_AXIS_ELSEWHERE = dict.fromkeys(  # attributes of TVM's axes → what to write here
    ("dom", "extent", "iter_type", "var"),
    "print(s) shows the extents and marks of loops; C.op.axis[0].dom.extent is the extent of an axis",
)
_OF_SCHEDULES = {
    "cache_read": 's.cache_read(A, "local", [C])',
    "cache_write": 's.cache_write(C, "local")',
    "rfactor": "s.rfactor(C, axis)",
    "layout": "s.layout(A, splits, order)",
}
_OP_OF_TENSOR = ("body", "input_tensors", "name", "output", "tag")
_ELSEWHERE = {  # primitives of TVM's stages → what to write here
    **{name: f"it adds a stage, so the schedule has it: {call}" for name, call in _OF_SCHEDULES.items()},
    "axis": "the axes are s[C].op.axis and s[C].op.reduce_axis",
    "reduce_axis": "it is s[C].op.reduce_axis",
    "rolling_buffer": "write s[B].store_at(s[C], axis), after compute_at",
    "opengl": 'bind loops to threads, for the targets "opencl" and "cuda"',
    "prefetch": "leave it out; a CPU fetches ahead by itself",
    "set_store_predicate": "guards are added where a loop needs them",
    "transform_layout": "write s.layout(tensor, splits, order)",
    "all_iter_vars": "s[C].leaf_iter_vars are the loops, s[C].op.axis the axes that were written",
    "annotate": "write s[C].pragma(axis, key, value); print(s) shows the marks of loops",
    "iter_var_attrs": "print(s) shows the marks of loops",
    **dict.fromkeys(("dtype", "shape"), "a stage is not a tensor; C.shape and C.dtype are the tensor's"),
    **dict.fromkeys(
        (
            "attach_ivar",
            "attach_stage",
            "attach_type",
            "group",
            "is_output",
            "origin_op",
            "relations",
            "scope",
        ),
        "print(s) shows where each stage is computed, and print(s.trace) the steps",
    ),
    "env_threads": "bind loops one by one: s[C].bind(axis, te.thread_axis(...))",
}


@methods_take_their_names("s[C]", _ARGUMENTS_ELSEWHERE)
class StageRef:
    """One stage of a schedule. Its methods are the primitives; docs/schedule-language.md shows them in
    pictures.

    Each method raises ScheduleError if it would change the result, and then leaves the schedule unchanged.
    """

    def __init__(self, schedule: Schedule, name: str) -> None:
        self.schedule = schedule
        self.name = name

    if not TYPE_CHECKING:  # type checkers should still report unknown names

        def __getattr__(self, name: str) -> Any:
            raise absent("s[C]", name, self, _ELSEWHERE)

    @property
    def op(self) -> OpRef:
        op = self.schedule.state.stage(self.name).op
        return OpRef(
            tuple(AxisRef(self.name, a.name) for a in op.axes),
            tuple(AxisRef(self.name, a.name) for a in op.reduce_axes),
        )

    @property
    def leaf_iter_vars(self) -> tuple[AxisRef, ...]:
        """The loops, outermost first."""
        return tuple(AxisRef(self.name, a.name) for a in self.schedule.state.stage(self.name).leaves)

    def _axis(self, axis: AxisLike) -> str:
        return self.schedule.axis_name(self.name, axis)

    def _whole(self, what: str, value: Any) -> int:
        return _whole(what, value, f"stage {self.name!r}")

    def split(
        self,
        axis: AxisLike,
        factor: int | None = None,
        nparts: int | None = None,
        factors: Sequence[int] | None = None,
    ) -> tuple[AxisRef, ...]:
        """Splits a loop: inner extent `factor`, or outer extent `nparts`, or all inner extents `factors`."""
        given = [x for x in (factor, nparts, factors) if x is not None]
        if len(given) != 1:
            raise ScheduleError(
                f"split: axis {self._axis(axis)!r} of stage {self.name!r} needs exactly one of factor, "
                "nparts, factors."
            )
        name = self._axis(axis)
        owner = f"axis {name!r} of stage {self.name!r}"
        numbers = tuple(
            _whole("split: factor", x, owner) for x in (_listed(factors) if factors is not None else given)
        )
        inner = numbers if nparts is None else ()
        self.schedule.do(SplitStep(self.name, name, inner, None if nparts is None else numbers[0]))
        parts = 2 if nparts is not None else len(inner) + 1
        return tuple(AxisRef(self.name, f"{name}.{n}") for n in range(parts))

    def tile(
        self, x: AxisLike, y: AxisLike, x_factor: int, y_factor: int
    ) -> tuple[AxisRef, AxisRef, AxisRef, AxisRef]:
        """Splits two loops and moves both outer parts outside: (x outer, y outer, x inner, y inner)."""
        factors = (self._whole("tile: factor", x_factor), self._whole("tile: factor", y_factor))
        names = (self._axis(x), self._axis(y))
        xo, xi, yo, yi = (AxisRef(self.name, f"{n}.{part}") for n in names for part in (0, 1))
        splits = (SplitStep(self.name, n, (f,)) for n, f in zip(names, factors, strict=True))
        self.schedule.do(*splits, Reorder(self.name, tuple(a.name for a in (xo, yo, xi, yi))))
        return xo, yo, xi, yi

    def fuse(self, *axes: AxisLike) -> AxisRef:
        """Fuses adjacent loops, outer to inner, into one."""
        if not axes:
            raise ScheduleError(f"fuse: no axes of stage {self.name!r} given.")
        steps, (name, *others) = [], [self._axis(a) for a in axes]
        for inner in others:
            steps.append(FuseStep(self.name, name, inner))
            name = f"({name}*{inner})"
        self.schedule.do(*steps)
        return AxisRef(self.name, name)

    def reorder(self, *axes: AxisLike) -> None:
        """Puts the loops into this order, outermost first, at the positions that they occupy together."""
        self.schedule.do(Reorder(self.name, tuple(self._axis(a) for a in axes)))

    def vectorize(self, axis: AxisLike) -> None:
        """Runs all iterations at once, in vector registers. The extent must be a constant."""
        self.schedule.do(Vectorize(self.name, self._axis(axis)))

    def unroll(self, axis: AxisLike) -> None:
        """Writes the iterations out one after another."""
        self.schedule.do(Unroll(self.name, self._axis(axis)))

    def parallel(self, axis: AxisLike) -> None:
        """Divides the iterations among the threads of a call. The loop must end up outermost, at root."""
        self.schedule.do(Parallel(self.name, self._axis(axis)))

    def bind(self, axis: AxisLike, thread: ThreadAxis | str) -> None:
        """Gives a loop to an axis of a GPU's threads: `te.thread_axis("threadIdx.x")` or its name."""
        self.schedule.do(Bind(self.name, self._axis(axis), str(thread)))

    def set_scope(self, scope: str) -> None:
        """Sets the memory in which an attached stage keeps its values: "shared" or "local"."""
        self.schedule.do(SetScope(self.name, scope))

    def compute_at(self, host: Any, axis: AxisLike) -> None:
        """Computes the stage inside a loop of a reader. Each iteration computes the part that it reads."""
        name = self.schedule.stage_name(host)
        self.schedule.do(ComputeAt(self.name, name, self.schedule.axis_name(name, axis)))

    def store_at(self, host: Any, axis: AxisLike) -> None:
        """Keeps values that earlier iterations have computed. The storage belongs to the loop directly
        outside the loop of `compute_at`, and each iteration computes only the new values."""
        name = self.schedule.stage_name(host)
        self.schedule.do(StoreAt(self.name, name, self.schedule.axis_name(name, axis)))

    def compute_inline(self) -> None:
        """Replaces every read of the stage by its expression. Only for stages without a reduction."""
        self.schedule.do(Inline(self.name))

    def compute_root(self) -> None:
        """Undoes `compute_at`: the stage is computed at root again."""
        self.schedule.do(ComputeRoot(self.name))

    def storage(self, *axes: AxisLike, pad: int = 0) -> None:
        """Sets the order of dimensions in the private buffer of an attached stage."""
        names = tuple(self._axis(a) for a in axes)
        self.schedule.do(Storage(self.name, names, self._whole("storage: pad", pad)))

    def storage_align(self, axis: AxisLike, factor: int, offset: int) -> None:
        """Makes neighbours along an axis of a private buffer `offset` modulo `factor` elements apart."""
        numbers = (self._whole(f"storage_align: {w}", n) for w, n in (("factor", factor), ("offset", offset)))
        self.schedule.do(StorageAlign(self.name, self._axis(axis), *numbers))

    def swizzle(self, chunk: int) -> None:
        """Permutes chunks of the rows of a stage in shared memory, to avoid bank conflicts."""
        self.schedule.do(Swizzle(self.name, self._whole("swizzle: chunk", chunk)))

    def double_buffer(self, turns: int = 2) -> None:
        """Computes a stage in shared memory ahead of the loop that reads it."""
        self.schedule.do(DoubleBuffer(self.name, self._whole("double_buffer: turns", turns)))

    def tensorize(self, axis: AxisLike, instruction: str) -> None:
        """Computes a loop, and everything inside it, by one instruction of a CPU, tensor core or plug-in.

        docs/schedule-language.md lists them. Raises ScheduleError for a name that is unknown or no string.
        """
        if not isinstance(instruction, str):
            raise ScheduleError(
                f"tensorize: an instruction is named by text; got {type(instruction).__name__}.",
                fix='Write s[C].tensorize(axis, "mma.m16n8k8.tf32").',
            )
        self.schedule.do(Tensorize(self.name, self._axis(axis), instruction))

    def solve(self, axis: AxisLike) -> None:
        """Adds each term of a reduction to its own element: scatters (docs/schedule-language.md)."""
        self.schedule.do(Solve(self.name, self._axis(axis)))

    def scan(self, axis: AxisLike) -> None:
        """Computes each element of a running reduction from the one before it (docs/schedule-language.md)."""
        self.schedule.do(Scan(self.name, self._axis(axis)))

    def look_ahead(self, steps: int) -> None:
        """Makes the steps of a scan read the state `steps` steps back (docs/schedule-language.md)."""
        self.schedule.do(LookAhead(self.name, self._whole("look_ahead: steps", steps)))

    def sort(self, axis: AxisLike) -> None:
        """Finds ranks along the axis by sorting (docs/schedule-language.md)."""
        self.schedule.do(Sort(self.name, self._axis(axis)))

    def pragma(self, axis: AxisLike, key: str, value: Any = "") -> None:
        """A hint: auto_unroll_max_step, skip_zeros, skip_unread or sum_apart (docs/schedule-language.md)."""
        self.schedule.do(Pragma(self.name, self._axis(axis), key, str(value)))

    def __repr__(self) -> str:
        return f"StageRef({self.name})"


def _listed(x: Any) -> Sequence[Any]:
    return x if isinstance(x, (tuple, list)) else (x,)


def _whole(what: str, value: Any, owner: str) -> int:
    """The number that a person wrote. Raises ScheduleError for anything but a whole number."""
    if isinstance(value, (bool, Arithmetic)) or not hasattr(value, "__index__"):
        raise ScheduleError(f"{what} {value!r} of {owner} is not a whole number.")
    return int(value.__index__())


@takes_its_names("te.create_schedule", {"ops": "Write outputs=."})
def create_schedule(outputs: Any) -> Schedule:
    """A schedule for the stages that compute `outputs`: a tensor, a te op, or several."""
    tensors: list[Tensor] = []
    for o in _listed(outputs):
        if isinstance(o, Compute):
            tensors.extend(o.output(n) for n in range(len(o.bodies)))
        elif isinstance(o, Tensor):
            tensors.append(o)
        else:
            raise ScheduleError(f"create_schedule takes tensors, got {type(o).__name__}.")
    return Schedule(ComputeDAG.of(tensors))

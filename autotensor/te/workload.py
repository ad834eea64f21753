"""Workloads: a canonical DAG, its text and its key.

Two authors who write the same computation get the same key, whatever names they use. The tuning log stores
its records under this key. The text is JSON and complete: a worker process rebuilds the DAG from it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from autotensor.base.dtype import DType, dtype_of
from autotensor.base.errors import InputError
from autotensor.ir import expr as ir
from autotensor.ir.expr import Cmp, Combiner, Expr, Load, Neg, Op, Var
from autotensor.ir.func import Buffer
from autotensor.ir.visit import shared
from autotensor.te.dag import ComputeDAG, IterDef, StageOp, buffer_of_shape
from autotensor.te.fixed_extents import fixed
from autotensor.te.symbols import Extent, at_run_time, greatest
from autotensor.te.tensor import AxisKind

FORMAT = 1


@dataclass(frozen=True)
class Workload:
    """A computation under canonical names; `name` is for people and not part of the key."""

    name: str
    dag: ComputeDAG

    def __repr__(self) -> str:
        return f"Workload({self.name}: {self.key[:12]})"

    @staticmethod
    def of(dag: ComputeDAG, name: str = "") -> Workload:
        canonical, _ = dag.canonical()
        return Workload(name or dag.stages[-1].name, canonical)

    @cached_property
    def text(self) -> str:
        return json.dumps(dag_to_json(self.dag), separators=(",", ":"), sort_keys=True)

    @cached_property
    def key(self) -> str:
        """32 hexadecimal digits of the text's SHA-256."""
        return _hash(self.text)

    @cached_property
    def at_greatest(self) -> Workload:
        """The workload at the greatest values of its run-time extents, which is the one that is measured.

        A workload without such extents is returned as it is. Traces of the result fit this workload, because
        schedules see no other extents.
        """
        values = {s: s.most for s in self.dag.symbols()}
        return Workload(self.name, fixed(self.dag, values)) if values else self

    @staticmethod
    def from_text(text: str, name: str = "", key: str = "") -> Workload:
        """The workload with this text. key: the key under which the text was stored, which is its hash.

        Raises InputError for text that is damaged, or that this version does not know.
        """
        if key and _hash(text) != key:
            raise InputError(
                f"the text of workload {name or key!r} is damaged: it is not what its key {key} was made "
                "from.",
                fix="Restore the log from a backup (`autotensor db check FILE` says what else is wrong).",
            )
        try:
            return Workload(name, dag_from_json(json.loads(text)))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as e:
            raise InputError(f"the text of workload {name!r} is damaged: {type(e).__name__}: {e}.") from e

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Workload) and self.key == other.key


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:32]


def dag_to_json(dag: ComputeDAG) -> dict[str, Any]:
    return {
        "version": FORMAT,
        "inputs": [[b.name, [_extent_to_json(*x) for x in _dims(b)], str(b.dtype)] for b in dag.inputs],
        "constants": sorted(dag.constants),
        "stages": [_stage_to_json(s) for s in dag.stages],
        "outputs": [b.name for b in dag.outputs],
        "args": list(dag.args),
        **({"carried": [[b.name, a.name] for b, a in dag.carried]} if dag.carried else {}),
    }


def _stage_to_json(s: StageOp) -> dict[str, Any]:
    return {
        "name": s.name,
        "axes": [[a.name, _extent_to_json(a.extent, a.runtime)] for a in s.axes],
        "reduce": [[a.name, _extent_to_json(a.extent, a.runtime)] for a in s.reduce_axes],
        "bodies": [expr_to_json(b) for b in s.bodies],
        "combiner": None if s.combiner is None else _combiner_to_json(s.combiner),
        "outputs": [[b.name, str(b.dtype)] for b in s.buffers],
    }


def _dims(b: Buffer) -> list[tuple[int, Expr | None]]:
    return list(zip(b.shape, b.extents or [None] * len(b.shape), strict=True))


def _extent_to_json(most: int, runtime: Expr | None) -> Any:
    """A number, or the expression of an extent that is known at run time only."""
    return most if runtime is None or isinstance(runtime, ir.Const) else expr_to_json(runtime)


def _extent(data: Any) -> Extent:
    return data if isinstance(data, int) else expr_from_json(data, {})


def greatest_in(data: Any) -> int:
    """The greatest value of an axis' extent in a workload's text."""
    return greatest(_extent(data))


def _axis(name: str, data: Any, kind: AxisKind = AxisKind.SPATIAL) -> IterDef:
    extent = _extent(data)
    return IterDef(name, greatest(extent), kind, at_run_time(extent))


def dag_from_json(data: dict[str, Any]) -> ComputeDAG:
    if data.get("version") != FORMAT:
        raise InputError(
            f"workload format {data.get('version')!r} is not known here; this version reads {FORMAT}."
        )
    buffers = {n: buffer_of_shape(n, tuple(map(_extent, s)), dtype_of(t)) for n, s, t in data["inputs"]}
    inputs = tuple(buffers.values())
    carried = {after: before for before, after in data.get("carried", ())}
    for s in data["stages"]:  # the state of a scan comes before the scan
        shape = tuple(_extent(extent) for _, extent in s["axes"])
        found = ((carried[n], t) for n, t in s["outputs"] if n in carried)
        buffers.update({before: buffer_of_shape(before, shape, dtype_of(t)) for before, t in found})
    stages = []
    for s in data["stages"]:
        axes = tuple(_axis(n, e) for n, e in s["axes"])
        reduces = tuple(_axis(n, e, AxisKind.REDUCE) for n, e in s["reduce"])
        bodies = tuple(expr_from_json(b, buffers) for b in s["bodies"])
        combiner = None if s["combiner"] is None else _combiner_from_json(s["combiner"])
        shape = tuple(_extent(e) for _, e in s["axes"])
        outs = tuple(buffer_of_shape(n, shape, dtype_of(t)) for n, t in s["outputs"])
        buffers.update({b.name: b for b in outs})
        stages.append(StageOp(s["name"], axes, reduces, bodies, combiner, outs))
    return ComputeDAG(
        inputs,
        frozenset(data["constants"]),
        tuple(stages),
        tuple(buffers[n] for n in data["outputs"]),
        tuple(data["args"]),
        tuple((buffers[before], buffers[after]) for before, after in data.get("carried", ())),
    )


def _combiner_to_json(c: Combiner) -> list[Any]:
    return [
        c.name,
        [str(v.dtype) for v in c.lhs],
        [expr_to_json(r) for r in c.result],
        [expr_to_json(e) for e in c.identity],
    ]


def _combiner_from_json(data: list[Any]) -> Combiner:
    name, types, result, identity = data
    lhs = tuple(Var(f"lhs{n}", dtype_of(t)) for n, t in enumerate(types))
    rhs = tuple(Var(f"rhs{n}", dtype_of(t)) for n, t in enumerate(types))
    return Combiner(
        name,
        lhs,
        rhs,
        tuple(expr_from_json(r, {}) for r in result),
        tuple(expr_from_json(e, {}) for e in identity),
    )


def expr_to_json(e: Expr) -> Any:
    """The expression as a nested list. Floats are hexadecimal text, so that nothing is lost.

    An expression for which this would be too large (`shared`) is ["d", [part, …], top]: parts that are used
    twice are written once, and ["r", number] refers to the part at that position of the list.
    """
    parts = shared(e)
    if not parts:
        return _to_json(e, {})
    known: dict[Expr, int] = {}
    written = []
    for n, part in enumerate(parts):
        written.append(_to_json(part, known))
        known[part] = n
    return ["d", written, _to_json(e, known)]


def _to_json(e: Expr, known: Mapping[Expr, int]) -> Any:
    """known: a part that is already written → its position."""
    if known and e in known:
        return ["r", known[e]]

    def inner(x: Expr) -> Any:
        return _to_json(x, known)

    match e:
        case ir.Symbol(name, t, least, most):
            return ["n", name, least, most, str(t)]
        case ir.Var(name, t):
            return ["v", name, str(t)]
        case ir.Const(value, t):
            return ["c", value.hex() if isinstance(value, float) else value, str(t)]
        case ir.Binary(op, a, b):
            return ["b", op.name, inner(a), inner(b)]
        case ir.Unary(op, a):
            return ["u", op.name, inner(a)]
        case ir.Compare(op, a, b):
            return ["p", op.name, inner(a), inner(b)]
        case ir.Select(c, a, b):
            return ["s", inner(c), inner(a), inner(b)]
        case ir.Cast(t, a):
            return ["t", str(t.element), inner(a)]
        case ir.Call(name, args, t):
            return ["f", name, [inner(a) for a in args], str(t)]
        case ir.Load(buffer, indices, None):
            return ["l", buffer.name, [inner(i) for i in indices]]
        case _:
            raise InputError(f"{type(e).__name__} cannot be part of a workload.")


def expr_from_json(data: Any, buffers: dict[str, Buffer]) -> Expr:
    if data[0] != "d":
        return _from_json(data, buffers, [])
    known: list[Expr] = []
    for part in data[1]:
        known.append(_from_json(part, buffers, known))
    return _from_json(data[2], buffers, known)


def _from_json(data: Any, buffers: Mapping[str, Buffer], known: Sequence[Expr]) -> Expr:
    def inner(x: Any) -> Expr:
        return _from_json(x, buffers, known)

    match data:
        case ["n", name, least, most, t]:
            return ir.Symbol(name, dtype_of(t), least, most)
        case ["v", name, t]:
            return Var(name, dtype_of(t))
        case ["c", value, t]:
            dtype = dtype_of(t)
            return ir.Const(float.fromhex(value) if isinstance(value, str) else value, dtype)
        case ["b", op, a, b]:
            return ir.Binary(Op[op], inner(a), inner(b))
        case ["u", op, a]:
            return ir.Unary(Neg[op], inner(a))
        case ["p", op, a, b]:
            return ir.Compare(Cmp[op], inner(a), inner(b))
        case ["s", c, a, b]:
            return ir.Select(inner(c), inner(a), inner(b))
        case ["t", t, a]:
            return ir.Cast(_type(t), inner(a))
        case ["f", name, args, t]:
            return ir.Call(name, tuple(inner(a) for a in args), _type(t))
        case ["l", name, indices]:
            if name not in buffers:
                raise InputError(f"workload reads {name!r} before it is defined.")
            return Load(buffers[name], tuple(inner(i) for i in indices))
        case ["r", number]:
            return known[int(number)]
        case _:
            raise InputError(f"workload text holds an unknown expression: {str(data)[:80]}.")


def _type(text: str) -> DType:
    return dtype_of(text)

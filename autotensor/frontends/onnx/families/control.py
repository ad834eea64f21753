"""Converters of If, Loop and Scan.

If     the condition is evaluated, and the chosen branch is imported
Scan   the number of rounds follows from a shape: unrolled, or for many rounds a loop of the program
       (`graph/steps.py`)
Loop   the same if its rounds can be counted beforehand; else its body is compiled once and called from Python
       until its condition is false (staged_model.py)

A body that needs run-time values, or whose states change their shape, cannot become a loop of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from autotensor.base.dtype import float32
from autotensor.base.errors import TensorError
from autotensor.frontends.errors import Unsupported
from autotensor.frontends.onnx.element_types import Array, element_type
from autotensor.frontends.onnx.errors import NeedsValue
from autotensor.frontends.onnx.families.shape import stacked
from autotensor.frontends.onnx.importer import Ahead, Importer, Runtime
from autotensor.frontends.onnx.messages import GraphProto
from autotensor.frontends.onnx.node_call import Call, Value
from autotensor.frontends.onnx.node_order import names_read
from autotensor.frontends.onnx.registry import converts
from autotensor.frontends.values import row as part
from autotensor.graph.build import constant, ops
from autotensor.graph.ir import GraphNode
from autotensor.graph.steps import is_loop, over_steps

UNROLLED = 64  # most rounds of a Loop that is unrolled
MOST_SCANNED = 4096  # most rounds of a Scan that is unrolled
# most rounds of a Loop that is called: twelve seconds with the smallest body (Zen 4, 2026-11)
MOST_ROUNDS = 1 << 18
ROOM, GROWTH = 1 << 25, 16  # a Loop's states may grow to 16 times their size, or to 512 MiB if that is more

Round = Callable[..., Sequence[Value]]  # the states, and one row of each sequence ──▶ results of the body


@converts("If")
def if_(c: Call) -> Value:
    branch = c.attr("then_branch") if bool(c.scalar(0)) else c.attr("else_branch")
    return list(c.importer.graph(branch, {}, c.opsets, c.outer_attrs))


# -- scan ------------------------------------------------------------------------------------------------


@converts("Scan", since=9)
def scan(c: Call) -> Value:
    body, count = c.attr("body"), c.whole("num_scan_inputs")
    states = list(c.tensors[: len(c.inputs) - count])
    scanned = c.tensors[len(states) :]
    axes = [a % x.ndim for a, x in zip(c.attr("scan_input_axes", (0,) * count), scanned, strict=True)]
    turned = c.attr("scan_input_directions", (0,) * count)
    outputs = len(body.output) - len(states)
    out_axes = c.attr("scan_output_axes", (0,) * outputs)
    out_turned = c.attr("scan_output_directions", (0,) * outputs)
    lengths = {x.shape[a] for x, a in zip(scanned, axes, strict=True)}
    if len(lengths) != 1:
        raise c.malformed(f"the scanned inputs have the lengths {sorted(lengths)}.")
    return _scanned(
        c, body, states, list(zip(scanned, axes, turned, strict=True)), lengths.pop(), out_axes, out_turned
    )


@converts("Scan", since=8)
def scan_of_batches(c: Call) -> Value:
    """Opset 8 scans each batch separately, along axis 1."""
    if c.get(0) is not None:
        raise c.unsupported("sequence_lens.")
    body, count = c.attr("body"), c.whole("num_scan_inputs")
    given = [c[n] for n in range(1, len(c.inputs))]
    states, scanned = given[: len(given) - count], given[len(given) - count :]
    directions = c.attr("directions", (0,) * count)
    none = (0,) * (len(body.output) - len(states))
    batches = []
    for n in range(scanned[0].shape[0]):
        one = [part(x, 0, n) for x in scanned]
        items = [(x, 0, d) for x, d in zip(one, directions, strict=True)]
        batches.append(_scanned(c, body, [part(s, 0, n) for s in states], items, one[0].shape[0], none, none))
    return [stacked([b[n] for b in batches], 0) for n in range(len(body.output))]


def _scanned(
    c: Call,
    body: GraphProto,
    states: list[GraphNode],
    items: Sequence[tuple[GraphNode, int, int]],
    length: int,
    out_axes: Sequence[int],
    out_turned: Sequence[int],
) -> list[Value]:
    if length < 1:
        raise c.unsupported("a scan of no rounds.")
    names = [i.name for i in body.input]

    def once(*given: GraphNode) -> Sequence[Value]:
        return c.importer.graph(body, dict(zip(names, given, strict=True)), c.opsets, c.outer_attrs)

    sequences = [_rows_first(x, a, bool(back)) for x, a, back in items]
    if (looped := _as_loop(c, once, states, sequences)) is not None:
        last, rows = looped
        return [
            *last,
            *(_rows_at(r, a, bool(back)) for r, a, back in zip(rows, out_axes, out_turned, strict=True)),
        ]
    if length > MOST_SCANNED:
        raise c.unsupported(f"a scan of {length} rounds.", f"Up to {MOST_SCANNED} are unrolled.")
    found: list[list[GraphNode]] = [[] for _ in out_axes]
    for n in range(length):
        results = once(*states, *(part(x, 0, n) for x in sequences))
        states = list(results[: len(states)])
        for row, value in zip(found, results[len(states) :], strict=True):
            row.append(value)
    joined = [
        stacked(row[::-1] if back else row, a % (row[0].ndim + 1))
        for row, a, back in zip(found, out_axes, out_turned, strict=True)
    ]
    return [*states, *joined]


def _rows_first(x: GraphNode, axis: int, back: bool) -> GraphNode:
    """Moves an axis to the front, and reverses it if `back`."""
    order = (axis, *(n for n in range(x.ndim) if n != axis))
    turned = x if not axis else ops.transpose(x, axes=order)
    return ops.slice(turned, (None,), (None,), (-1,)) if back else turned


def _rows_at(x: GraphNode, axis: int, back: bool) -> GraphNode:
    """Moves the first axis to position `axis`, and reverses it before that if `back`."""
    turned = ops.slice(x, (None,), (None,), (-1,)) if back else x
    rest = list(range(1, x.ndim))
    rest.insert(axis % x.ndim, 0)
    return turned if rest[0] == 0 else ops.transpose(turned, axes=tuple(rest))


def _as_loop(
    c: Call, once: Round, states: Sequence[GraphNode], sequences: Sequence[GraphNode]
) -> tuple[Sequence[GraphNode], Sequence[GraphNode]] | None:
    """The last states, and the stacked other results of all rounds; None if the rounds cannot become a loop
    of the program."""
    if not is_loop(states, sequences[0].shape[0]):
        return None
    runtime, c.importer.runtime = c.importer.runtime, Ahead()  # a loop's body has no known values
    try:
        rows, last = over_steps(partial(_only_rows, once), states, sequences)
    except (NeedsValue, Unsupported, TensorError):
        return None
    finally:
        c.importer.runtime = runtime
    return last, rows[len(last) :]


def _only_rows(once: Round, *given: GraphNode) -> Sequence[GraphNode]:
    results = once(*given)
    if not _only_tensors(results):
        raise Unsupported("a round gives a sequence.")
    return results


# -- loop ------------------------------------------------------------------------------------------------


@converts("Loop")
def loop(c: Call) -> Value:
    body = c.attr("body")
    states = [c.value(n) for n in range(2, len(c.inputs))]
    start = True if c.get(1) is None else c.known(1)
    trips = None if c.get(0) is None else c.known(0)
    goes_on = start is not None and bool(np.all(start)) and _never_stops(body)
    count = int(trips.reshape(-1)[0]) if goes_on and trips is not None else None
    if (count is not None and count <= UNROLLED) or not _only_tensors(states):
        return _unrolled(c, body, states)
    if count is not None and count <= MOST_ROUNDS:
        names, goes = [i.name for i in body.input], constant(np.asarray(True))

        def once(*given: GraphNode) -> Sequence[Value]:
            *now, n = given
            feeds = dict(zip(names, [n, goes, *now], strict=True))
            return c.importer.graph(body, feeds, c.opsets, c.outer_attrs)[1:]

        looped = _as_loop(c, once, states, [constant(np.arange(count))])
        if looped is not None:
            return [*looped[0], *looped[1]]
    return _called(c, body, states)


def _only_tensors(states: Sequence[Value]) -> bool:
    return all(isinstance(s, GraphNode) for s in states)


def _never_stops(body: GraphProto) -> bool:
    """Whether the body returns its own condition unchanged, or a constant condition."""
    name = body.output[0].name
    if name == body.input[1].name:
        return True
    makers = [n for n in body.node if name in n.output]
    if not makers or makers[0].op_type not in ("Identity", "Constant"):
        return False
    return bool(makers[0].op_type == "Constant" or makers[0].input[0] == body.input[1].name)


def _unrolled(c: Call, body: GraphProto, states: list[Value]) -> list[Value]:
    """Imports round after round into this graph. Unknown conditions are evaluated."""
    most = None if c.get(0) is None else int(c.scalar(0))
    going = True if c.get(1) is None else bool(c.scalar(1))
    rows: list[list[GraphNode]] = [[] for _ in range(len(body.output) - 1 - len(states))]
    n = 0
    while going and (most is None or n < most):
        if n >= MOST_SCANNED:
            raise c.unsupported(f"a loop of more than {MOST_SCANNED} rounds over sequences.")
        feeds = {
            body.input[0].name: constant(np.asarray(n, np.int64)),
            body.input[1].name: constant(np.asarray(going)),
        }
        feeds |= dict(zip([i.name for i in body.input[2:]], states, strict=True))
        results = c.importer.graph(body, feeds, c.opsets, c.outer_attrs)
        going = bool(c.importer.demand(results[0], c.where))
        states = list(results[1 : 1 + len(states)])
        for row, value in zip(rows, results[1 + len(states) :], strict=True):
            row.append(value)
        n += 1
    return [
        *states,
        *(stacked(row, 0) if row else _no_rows(c, body, k + len(states) + 1) for k, row in enumerate(rows)),
    ]


def _no_rows(c: Call, body: GraphProto, n: int) -> GraphNode:
    """The rows of a loop without rounds, if the body declares their shape."""
    t = body.output[n].type.tensor_type
    dims = [d.dim_value if d.WhichOneof("value") == "dim_value" else 0 for d in t.shape.dim]
    dtype = element_type(t.elem_type, c.where) if t.elem_type else float32
    return constant(np.zeros([0, *dims], dtype.numpy))


def _called(c: Call, body: GraphProto, states: list[Value]) -> list[Value]:
    """The results of a Loop whose body is a compiled function that Python calls."""
    if not c.importer.runs:
        raise NeedsValue(
            f"{c.where} has more than {UNROLLED} rounds, or as many as values say.",
            fix="Call the model through autotensor.OnnxModel, which runs it in parts.",
        )
    names = _captured(c, body)
    outer = [c.importer.frame.find(n) for n in names] if c.importer.frame is not None else []
    if not _only_tensors(outer):
        raise c.unsupported("a body that reads a sequence from outside.")
    model, opsets, attrs = c.importer.model, c.opsets, c.outer_attrs

    def build(runtime: Runtime, values: tuple[Value, ...]) -> tuple[Value, ...]:
        feeds = dict(zip([*(i.name for i in body.input), *names], values, strict=True))
        return Importer(model, runtime).graph(body, feeds, opsets, attrs)

    round_ = c.importer.runtime.nested(build)
    has_most, has_start, count = c.get(0) is not None, c.get(1) is not None, len(states)
    given = [*([c[0]] if has_most else []), *([c[1]] if has_start else []), *states, *outer]

    def run(*arrays: Array) -> tuple[Array, ...]:
        rest = list(arrays)
        most = int(rest.pop(0).reshape(-1)[0]) if has_most else None
        going = bool(rest.pop(0).reshape(-1)[0]) if has_start else True
        now, fixed = rest[:count], rest[count:]
        rows: list[list[Any]] = [[] for _ in range(len(body.output) - 1 - count)]
        n, roomy = 0, GROWTH * max(ROOM, sum(a.nbytes for a in now))
        if going and _never_stops(body) and (most is None or most > MOST_ROUNDS):
            raise c.unsupported(
                f"{'endless' if most is None else most} rounds; at most {MOST_ROUNDS} are run."
            )
        while going and (most is None or n < most):
            if n == MOST_ROUNDS:
                raise c.unsupported(f"it has not ended after {n} rounds.")
            if sum(a.nbytes for a in now) > roomy:
                raise c.unsupported(f"what it hands on has grown to more than {roomy} bytes in {n} rounds.")
            results = round_(np.asarray(n, np.int64), np.asarray(going), *now, *fixed)
            going, now = bool(results[0].reshape(-1)[0]), list(results[1 : 1 + count])
            for row, value in zip(rows, results[1 + count :], strict=True):
                row.append(value)
            n += 1
        empty = [_no_rows(c, body, k + count + 1) for k in range(len(rows))]
        stacked = [
            np.stack(r) if r else c.importer.demand(e, c.where) for r, e in zip(rows, empty, strict=True)
        ]
        return (*map(np.asarray, now), *stacked)

    return list(c.on_host(run, given))


def _captured(c: Call, body: GraphProto) -> list[str]:
    """Names that the body reads from outside."""
    own = {i.name for i in body.input} | {t.name for t in body.initializer}
    own |= {o for n in body.node for o in n.output}
    read = dict.fromkeys(n for node in body.node for n in names_read(node))
    read |= dict.fromkeys(o.name for o in body.output)
    found = []
    for name in read:
        if name in own or c.importer.frame is None:
            continue
        try:
            c.importer.frame.find(name)
        except KeyError:
            continue  # a name of a subgraph inside the body
        found.append(name)
    return found

"""Random models over symbols, and the values of their groups at any extents, by te's reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

import autotensor as at
from autotensor import te
from autotensor.api.models import ModelPlan
from autotensor.graph.build import ops
from autotensor.graph.ir import Constant, Graph, GraphNode
from autotensor.graph.storage import place, storage
from autotensor.graph.symbols.graph_families import GraphFamily
from autotensor.ir.expr import Symbol
from autotensor.te import reference
from autotensor.te.fixed_extents import fixed
from autotensor.te.symbols import number

Array = np.ndarray[Any, Any]
WIDTH = 6


class Draws:
    """The random choices of one model. They are the same for all its extents."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def array(self, *shape: int) -> Array:
        return self.rng.standard_normal(shape).astype(np.float32)

    def pick(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]


def sequences(draw: Draws, b: int, s: int) -> Graph:
    """[b, s, WIDTH]: the layers of transformers."""
    x = at.input((b, s, WIDTH), name="x")
    table = draw.array(40, WIDTH)
    y: GraphNode = x
    for _ in range(int(draw.rng.integers(2, 6))):
        y = draw.pick(
            lambda y=y: ops.relu(in_rows(draw, y, b, s) + draw.array(WIDTH)),
            lambda y=y: ops.softmax(y, axis=draw.pick(-1, 1)),
            lambda y=y: y + ops.slice(table, (0,), (s,), axes=(0,)),
            lambda y=y: ops.layer_norm(y, draw.array(WIDTH), draw.array(WIDTH)),
            lambda y=y: ops.batch_matmul(ops.softmax(ops.batch_matmul(y, ops.transpose(y, (0, 2, 1)))), y),
            lambda y=y: y * ops.mean(y, axis=1, keepdims=True),
            lambda y=y: ops.slice(ops.concat(y, ops.tanh(y), axis=1), (s,), (2 * s,), axes=(1,)),
            lambda y=y: ops.reshape(ops.transpose(ops.reshape(y, (b, s, 2, 3)), (0, 2, 1, 3)), (b, s, WIDTH)),
            lambda y=y: ops.max(ops.pad(y, ((0, 0), (1, 1), (0, 0))), axis=1, keepdims=True) - y,
            lambda y=y: heads(draw, y, b, s),
        )()
    z = draw.pick(lambda: y, lambda: ops.mean(y, axis=1), lambda: ops.reshape(y, (b * s, WIDTH)))()
    return Graph((x,), (z,), "sequences")


def in_rows(draw: Draws, y: GraphNode, b: int, s: int) -> GraphNode:
    rows = ops.reshape(y, (b * s, WIDTH))
    return ops.reshape(ops.dense(rows, draw.array(WIDTH, WIDTH)), (b, s, WIDTH))


def heads(draw: Draws, y: GraphNode, b: int, s: int) -> GraphNode:
    """Attention of two heads."""

    def head() -> GraphNode:
        z = ops.reshape(in_rows(draw, y, b, s), (b, s, 2, 3))
        return ops.transpose(z, (0, 2, 1, 3))

    seen = ops.attention(head(), head(), head(), causal=draw.pick(False, True))
    return y + ops.reshape(ops.transpose(seen, (0, 2, 1, 3)), (b, s, WIDTH))


def images(draw: Draws, b: int, s: int) -> Graph:
    """[b, 3, s, WIDTH]: convolutions, pools and norms."""
    x = at.input((b, 3, s, WIDTH), name="x")
    y: GraphNode = x
    for _ in range(int(draw.rng.integers(2, 5))):
        c = y.shape[1]
        y = draw.pick(
            lambda y=y, c=c: ops.relu(ops.conv2d(y, draw.array(4, c, 3, 3), draw.array(4), padding=1)),
            lambda y=y, c=c: ops.conv2d(y, draw.array(5, c, 1, 1)),
            lambda y=y, c=c: ops.conv2d(y, draw.array(c, 1, 3, 3), padding=1, groups=c),
            lambda y=y: ops.max_pool2d(y, 3, stride=1, padding=1),
            lambda y=y: ops.avg_pool2d(y, 3, stride=1, padding=1) + y,
            lambda y=y, c=c: ops.batch_norm(
                y, draw.array(c), draw.array(c), draw.array(c), draw.array(c) ** 2 + 1
            ),
            lambda y=y: ops.mean(y, axis=(2, 3), keepdims=True) * y,
            lambda y=y: ops.concat(y, ops.sigmoid(y), axis=1),
        )()
    pooled = ops.flatten(ops.global_avg_pool2d(y))
    z = draw.pick(lambda: y, lambda: ops.dense(pooled, draw.array(4, pooled.shape[1])))()
    return Graph((x,), (z,), "images")


def strided_images(draw: Draws, b: int, h: int, w: int) -> Graph:
    """[b, 3, h, w]: convolutions and pools with strides, joined with earlier levels as in detectors."""
    x = at.input((b, 3, h, w), name="x")
    y: GraphNode = x
    levels = []
    for _ in range(int(draw.rng.integers(2, 5))):
        c = y.shape[1]
        y = draw.pick(
            lambda y=y, c=c: ops.relu(ops.conv2d(y, draw.array(4, c, 3, 3), stride=2, padding=1)),
            lambda y=y, c=c: ops.conv2d(y, draw.array(4, c, 3, 3), draw.array(4), stride=2),
            lambda y=y, c=c: ops.conv2d(y, draw.array(4, c, 2, 2), stride=2),
            lambda y=y, c=c: ops.conv2d(y, draw.array(4, c, 1, 1), stride=2),
            lambda y=y, c=c: ops.conv2d(y, draw.array(c, 1, 5, 5), stride=2, padding=2, groups=c),
            lambda y=y, c=c: ops.conv2d(y, draw.array(4, c, 3, 3), stride=3, padding=1),
            lambda y=y: ops.max_pool2d(y, 3, stride=2, padding=1),
            lambda y=y: ops.avg_pool2d(y, 2, stride=2),
            lambda y=y: ops.concat(y, ops.max_pool2d(y, 5, stride=1, padding=2), axis=1),
        )()
        levels.append(y)
    results = []
    for level in reversed(levels[:-1]):
        c, rows, columns = level.shape[1:]
        wide = ops.slice(ops.upsample_nearest(y, 4), (0, 0), (rows, columns), axes=(2, 3))
        y = ops.conv2d(wide, draw.array(c, y.shape[1], 1, 1)) + level
        results.append(y)
    flat = [ops.reshape(r, (b, r.shape[1] * r.shape[2] * r.shape[3])) for r in results]
    whole = ops.concat(*flat, axis=1) if len(flat) > 1 else ops.sigmoid(flat[0])
    return Graph((x,), (whole, ops.mean(y, axis=(2, 3))), "strided_images")


def strided_family(seed: int) -> tuple[GraphFamily, Callable[[int, int, int], Graph]]:
    """A model with b in 1 … 3, and h and w in 31 … 64, and the function that makes its graph from numbers."""

    def make(b: int, h: int, w: int) -> Graph:
        return strided_images(Draws(seed), b, h, w)

    b, h, w = te.var("b", range=(1, 3)), te.var("h", range=(31, 64)), te.var("w", range=(31, 63))
    return at.open_graph(make, b, h, w, name=f"strided_{seed}"), make


def random_family(seed: int) -> tuple[GraphFamily, Callable[[int, int], Graph]]:
    """A model with b in 1 … 6 and s in 2 … 30, and the function that makes its graph from numbers."""
    kind = (sequences, images)[seed % 2]

    def make(b: int, s: int) -> Graph:
        return kind(Draws(seed), b, s)

    b, s = te.var("b", range=(1, 6)), te.var("s", range=(2, 30))
    return at.open_graph(make, b, s, name=f"{kind.__name__}_{seed}"), make


def meant(plan: ModelPlan, choice: Mapping[Symbol, int], *arrays: Array) -> list[Array]:
    """The outputs at a choice of the symbols, group by group."""
    opened = plan.opened
    assert opened is not None
    values: dict[GraphNode, Array] = {
        x: a.reshape(-1) for x, a in zip(plan.graph.inputs, arrays, strict=True)
    }
    for n, g in enumerate(plan.groups):
        dag = g.workload.dag
        own = {s: number(x, choice) for s, x in zip(dag.symbols(), opened.kernels[n], strict=True)}
        dag = fixed(dag, own)
        given = {}
        for k, (buffer, node) in enumerate(zip(dag.inputs, g.inputs, strict=True)):
            flat = _flat(node, values)
            begin = number(opened.windows.get((n, k), 0), choice) // buffer.dtype.bytes
            given[buffer.name] = flat[begin : begin + prod(buffer.shape)].reshape(buffer.shape)
        results = reference.evaluate(dag, given)
        for buffer, node in zip(dag.outputs, g.outputs, strict=True):
            values[node] = np.asarray(results[buffer.name]).reshape(-1)
            assert values[node].nbytes == number(opened.bytes[n, g.outputs.index(node)], choice)
    shapes = [opened.shapes[name] for name in plan.graph.output_names]
    return [
        values[storage(o)].reshape([number(e, choice) for e in shape])
        for o, shape in zip(plan.graph.outputs, shapes, strict=True)
    ]


def _flat(node: GraphNode, values: Mapping[GraphNode, Array]) -> Array:
    return node.array.reshape(-1) if isinstance(node, Constant) else values[place(node, values).of]


def drawn_choices(family: GraphFamily, rng: np.random.Generator, count: int) -> Sequence[dict[Symbol, int]]:
    """The least extents, and others anywhere in the ranges."""
    least = {s: s.least for s in family.symbols}
    return [
        least,
        *({s: int(rng.integers(s.least, s.most + 1)) for s in family.symbols} for _ in range(count)),
    ]

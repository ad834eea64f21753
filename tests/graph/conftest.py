"""Random graphs: NCHW networks with everything that the rules look for, small enough for the references."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autotensor import te
from autotensor.graph.build import call, input, ops
from autotensor.graph.ir import Constant, Graph, GraphNode
from autotensor.graph.storage import storage
from autotensor.te import reference


def swish(x: te.Tensor) -> te.Tensor:
    """Elementwise, by a user."""
    return te.compute(x.shape, lambda *i: x[i] * te.sigmoid(x[i]), name="swish")


def shift_channels(x: te.Tensor) -> te.Tensor:
    """Written for NCHW: every channel gets the one before it."""
    n, c, h, w = x.shape
    return te.compute(
        (n, c, h, w),
        lambda n, c, h, w: te.if_then_else(c > 0, x[n, te.maximum(c - 1, 0), h, w], 0.0),
        name="shift",
    )


def row_sums(x: te.Tensor) -> te.Tensor:
    """A reduction by a user: over w, kept as one."""
    k = te.reduce_axis(x.shape[3], "k")
    return te.compute((*x.shape[:3], 1), lambda n, c, h, w: te.sum(x[n, c, h, k], axis=k), name="rows")


class Maker:
    """Draws operators; `values` are the four-dimensional NCHW values so far."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.x = input((int(self.rng.integers(1, 3)), int(self.rng.integers(1, 4)), 6, 5), name="x")
        self.values: list[GraphNode] = [self.x]

    def array(self, *shape: int) -> Any:
        return self.rng.standard_normal(shape).astype(np.float32)

    def pick(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def conv(self, x: GraphNode) -> GraphNode:
        outs, kernel = self.pick(1, 3, 4), self.pick(1, 1, 3)
        bias = (self.array(outs),) if self.rng.random() < 0.4 else ()
        stride = self.pick(1, 1, 2, (1, 1))
        return ops.conv2d(
            x,
            self.array(outs, x.shape[1], kernel, kernel),
            *bias,
            stride=stride,
            padding=self.pick(kernel // 2, 1),
        )

    def norm(self, x: GraphNode) -> GraphNode:
        c = x.shape[1]
        return ops.batch_norm(x, self.array(c), self.array(c), self.array(c), np.abs(self.array(c)) + 0.5)

    def residual(self, x: GraphNode) -> GraphNode:
        same = [v for v in self.values if v.shape == x.shape]
        return self.pick(*same) + x if same else x * self.array(x.shape[1], 1, 1)

    def scaled(self, x: GraphNode) -> GraphNode:
        operand = self.pick(2.0, self.array(x.shape[1], 1, 1), self.array(x.shape[3]), self.array(*x.shape))
        return self.pick(ops.multiply, ops.add, ops.subtract)(x, operand)

    def step(self, x: GraphNode) -> GraphNode:
        n, c, h, w = x.shape
        choices: list[Callable[[], GraphNode]] = [
            lambda: self.conv(x),
            lambda: self.norm(self.conv(x)),
            lambda: ops.relu(self.norm(self.conv(x))),
            lambda: self.norm(x),
            lambda: ops.relu(x),
            lambda: ops.identity(x),
            lambda: ops.sigmoid(x) * x,
            lambda: self.residual(x),
            lambda: self.scaled(x),
            lambda: ops.conv2d(ops.pad(x, ((0, 0), (0, 0), (1, 0), (2, 1))), self.array(2, c, 2, 2)),
            lambda: ops.max_pool2d(x, 2, stride=1, padding=1),
            lambda: ops.avg_pool2d(x, (1, 2), stride=1, padding=(0, 1)),
            lambda: ops.concat(x, ops.tanh(x), axis=1),
            lambda: ops.slice(x, (0,), (max(1, h - 1),), axes=(2,)),
            lambda: ops.mean(x, axis=(2, 3), keepdims=True) * x,
            lambda: ops.softmax(x, axis=1),
            lambda: ops.transpose(ops.transpose(x, (0, 2, 3, 1)), (0, 3, 1, 2)),
            lambda: ops.transpose(x, (0, 1, 3, 2)),
            lambda: ops.reshape(ops.reshape(x, (n, c, h * w)), (n, c, w, h)),
            lambda: call(swish, x),
            lambda: call(shift_channels, x),
            lambda: call(row_sums, x) + x,
            lambda: ops.bias_add(x, self.array(c), axis=1),
        ]
        return self.pick(*choices)()

    def graph(self, steps: int) -> Graph:
        for _ in range(steps):
            last = self.values[-1] if self.rng.random() < 0.8 else self.pick(*self.values)
            if min(last.shape) > 0 and np.prod(last.shape) < 2000:
                self.values.append(self.step(last))
        y = self.values[-1]
        match self.pick("map", "dense", "pooled", "means"):
            case "dense":
                flat = ops.flatten(y)
                y = ops.dense(flat, self.array(3, flat.shape[1]), self.array(3))
            case "pooled":
                flat = ops.flatten(ops.global_avg_pool2d(y))
                y = ops.softmax(ops.dense(flat, self.array(2, flat.shape[1])))
            case "means":
                y = ops.mean(y, axis=self.pick((2, 3), 1, (1, 2, 3)))
        extra = (self.pick(*self.values),) if self.rng.random() < 0.3 else ()
        return Graph((self.x,), (y, *extra), "random")


@pytest.fixture(scope="session")
def random_graph() -> Callable[..., Graph]:
    return lambda seed, steps=8: Maker(seed).graph(steps)


@pytest.fixture(scope="session")
def user_functions() -> dict[str, Callable[..., Any]]:
    return {"swish": swish, "shift_channels": shift_channels, "row_sums": row_sums}


@pytest.fixture
def array() -> Callable[..., Any]:
    """Standard normal float32 arrays; always the same ones in a test."""
    rng = np.random.default_rng(7)
    return lambda *shape: rng.standard_normal(shape).astype(np.float32)


@pytest.fixture(scope="session")
def run_groups() -> Callable[..., list[Any]]:
    """The graph's outputs, group by group through the te reference."""

    def run(graph: Graph, groups: Any, *arrays: Any) -> list[Any]:
        values = dict(zip(graph.inputs, arrays, strict=True))
        for g in groups:
            dag = g.workload.dag
            given = {}
            for buffer, node in zip(dag.inputs, g.inputs, strict=True):
                array = node.array if isinstance(node, Constant) else values[node]
                given[buffer.name] = array.reshape(buffer.shape)
            results = reference.evaluate(dag, given)
            for buffer, node in zip(dag.outputs, g.outputs, strict=True):
                values[node] = results[buffer.name].reshape(node.shape)
        return [values[storage(o)].reshape(o.shape) for o in graph.outputs]

    return run

"""`graph.explain()`: passes that did something, groups, memory, Graphviz."""

from __future__ import annotations

import numpy as np
import pytest

from autotensor.base.errors import GraphError
from autotensor.graph.build import input, ops
from autotensor.graph.explain import dot
from autotensor.graph.ir import Graph


def model() -> Graph:
    x = input((1, 3, 8, 8), name="x")
    w = np.full((4, 3, 3, 3), 0.1, np.float32)
    y = ops.relu(ops.batch_norm(ops.conv2d(x, w, padding=1), *[np.full(4, 2.0, np.float32)] * 4))
    return Graph((x,), (ops.softmax(ops.flatten(ops.global_avg_pool2d(y))),))


def test_passes_that_did_something() -> None:
    e = model().explain()
    names = [name for name, _ in e.steps]
    assert names[0] == "as written"
    assert "fold batch norm" in names
    assert "merge sums" in e.unchanged
    assert (e.before.count("batch_norm"), e.after.count("batch_norm")) == (1, 0)
    assert [g.name for g in e.groups][1].endswith("+add+relu")


def test_memory_before_and_after() -> None:
    memory = model().explain().memory
    assert memory.lower_bound_bytes <= memory.arena_bytes <= memory.unshared_bytes
    text = str(model().explain())
    assert "before: 1,856 bytes, every value in its own place" in text
    assert "after:  1,792 bytes" in text
    assert "  ##..  " in text


def test_counts_of_operations() -> None:
    text = str(model().explain())
    assert "── fold batch norm: 6 operators, 14,617 flops (before: 6 and 14,893)" in text
    assert "── 4 kernels" in text


def test_graphviz() -> None:
    x = input((2,), name="x")
    assert (
        dot(Graph((x,), (x * 2.0,), "m"))
        == """\
digraph {
  rankdir=TB; node [shape=box];
  n0 [label="x", shape=ellipse];
  n1 [label="2.0", shape=ellipse, style=dashed];
  n2 [label="multiply"];
  n0 -> n2 [label="float32[2]"];
  n1 -> n2 [label="float32[]"];
  "output" [shape=plaintext];
  n2 -> "output" [label="float32[2]"];
}"""
    )
    e = model().explain()
    assert "batch_norm" in e.dot()
    assert "batch_norm" not in e.dot("fold batch norm")
    with pytest.raises(GraphError, match="no pass 'merge sums' changed this graph"):
        e.dot("merge sums")

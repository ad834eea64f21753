"""Slices that are windows into a value: where they lie, and that models read there."""

from __future__ import annotations

import numpy as np
import pytest

from autotensor.api.models import default_traces, link_model, plan_model
from autotensor.base.errors import GraphError
from autotensor.graph.build import constant, input, ops
from autotensor.graph.evaluate import evaluate
from autotensor.graph.ir import Graph
from autotensor.graph.linking import step_places
from autotensor.graph.partition import own_outputs, partition
from autotensor.graph.storage import Window, place, storage, window
from autotensor.models import language_model
from autotensor.runtime.open_artifact import open_artifact

X = ops.relu(input((4, 3, 5), name="x"))  # 60 bytes a row, 20 a line


@pytest.mark.parametrize(
    ("begin", "end", "how", "offset"),
    [
        ((1,), (2,), {}, 60),
        ((1,), (3,), {}, 60),
        ((-1,), (None,), {}, 180),
        ((2, 1), (3, 3), {}, 140),
        ((2, 1, 3), (3, 2, 5), {}, 152),
        ((2, 1, 3), (3, 2, 4), {}, 152),
        ((3, 0), (0, 3), {"stride": (-7, 1)}, 180),  # one row, whatever the step
        ((0,), (2,), {"axes": (1,)}, None),  # rows of each of four
        ((0, 1), (2, 2), {}, None),
        ((0, 0, 0), (1, 3, 4), {}, None),
        ((0,), (4,), {"stride": (2,)}, None),
        ((2,), (2,), {}, None),  # nothing
    ],
)
def test_where_a_slice_lies(begin, end, how, offset):
    found = window(ops.slice(X, begin, end, **how))
    assert found == (None if offset is None else Window(X, offset))


def test_windows_in_views_and_in_windows():
    rows = ops.reshape(X, (12, 5))
    middle = ops.slice(rows, (3,), (9,))
    assert window(middle) == Window(X, 60)
    assert window(ops.slice(ops.reshape(middle, (2, 15)), (1,), (2,))) == Window(X, 120)
    assert storage(ops.reshape(middle, (2, 15))) is middle
    assert place(middle, made={X}) == Window(X, 60)
    assert place(middle, made={X, middle}) == Window(middle, 0)  # it has a kernel of its own


def test_constants_and_indices_have_none():
    x = input((4, 3), name="x")
    assert window(ops.slice(x, (1,), (2,))) == Window(x, 12)
    assert (
        window(ops.slice(input((4, 3), "int64", "i"), (1,), (2,))) is None
    )  # its range is checked as a whole
    assert window(ops.slice(constant(np.zeros((4, 3), np.float32)), (1,), (2,))) is None
    assert window(X) is None


def parts(count: int = 3) -> Graph:
    """Softmax of the rows of a product, in parts; the second part is an output, too."""
    x, w = input((count, 20), name="x"), constant(np.eye(20, dtype=np.float32) + 0.1)
    y = ops.dense(x, w)
    rows = [ops.slice(y, (n,), (n + 1,)) for n in range(count)]
    return Graph((x,), (ops.concat(*map(ops.softmax, rows), axis=0), rows[1]), "parts", ("y", "row"))


def compiled(graph, target="llvm -threads=2"):
    plan = plan_model(graph, target)
    return open_artifact(link_model(plan, default_traces(plan)))


def test_windows_have_no_kernels_and_one_task():
    graph = own_outputs(parts())
    names = [[g.head.op_name for g in partition(graph, windows=w)] for w in (False, True)]
    assert [n.count("slice") for n in names] == [3, 1]  # an output is stored by a kernel
    assert names[1].count("softmax") == 3
    assert len([t for t in plan_model(graph, "llvm").tasks if "softmax" in t.name]) == 1
    assert "slice" in [
        g.head.op_name for g in plan_model(graph, "opencl").groups
    ]  # kernels want aligned ones


def test_models_read_windows():
    graph = parts()
    x = np.random.default_rng(0).standard_normal((3, 20)).astype(np.float32)
    for got, expected in zip(compiled(graph)(x), evaluate(graph, x), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_models_read_windows_of_arguments():
    x = input((3, 20), name="x")
    graph = Graph((x,), tuple(ops.softmax(ops.slice(x, (n,), (n + 1,))) for n in range(3)), "rows")
    assert [t.name.split()[0] for t in plan_model(graph).tasks] == ["softmax"]
    a = np.random.default_rng(0).standard_normal((3, 20)).astype(np.float32)
    for got, expected in zip(compiled(graph)(a), evaluate(graph, a), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_a_planted_fault_a_value_that_dies_before_its_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_whole(groups):
        return {x: n for n, g in enumerate(groups) for x in g.inputs}

    monkeypatch.setattr(step_places, "last_readers", only_whole)
    with pytest.raises(GraphError, match=r"kernel 'softmax.*' writes t\d at workspace.arena\+\d+ over a0"):
        compiled(parts())


def test_steps_of_a_recurrent_layer_are_one_task():
    kinds = [t.name for t in plan_model(language_model.build(tokens=9, vocabulary=30, hidden=16)).tasks]
    assert not any("slice" in k for k in kinds)
    assert len([k for k in kinds if k.startswith("lstm_cell")]) == 3  # the first and the last step differ

"""Models that answer before they are compiled: which answer a call gives, and that each is right."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from making import floats, model, node

import autotensor as at
from autotensor import te
from autotensor.api import instant_models, models
from autotensor.api.instant_models import InstantModel
from autotensor.base.errors import AutotensorError, CodegenError, InputError, TargetError
from autotensor.graph import evaluate
from autotensor.graph.ir import Graph
from autotensor.graph.symbols.graph_families import GraphFamily
from autotensor.graph.symbols.open_graphs import OpenGraph, Shapes

PATIENCE_S = 60.0
X = floats(1, 8, 9, 9)


def small() -> Graph:
    x = at.input(X.shape, name="x")
    y = at.ops.relu(at.ops.conv2d(x, floats(16, 8, 3, 3, seed=1), padding=1))
    return Graph((x,), (at.ops.max_pool2d(y, kernel=2),), "small")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compiling begins with the model, and ends with the test."""
    monkeypatch.setattr(instant_models, "HEAD_START_S", 0.0)
    yield
    join()


def join() -> None:
    for thread in threading.enumerate():
        if thread.name == "autotensor-instant":
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Nothing is compiled before it is open."""
    opened, real = threading.Event(), models.linked

    def later(*args, **options):
        assert opened.wait(PATIENCE_S)
        return real(*args, **options)

    monkeypatch.setattr(models, "linked", later)
    yield opened
    opened.set()


def test_the_first_answer_waits_for_no_compiler(gate: threading.Event) -> None:
    f = InstantModel(small(), "llvm -threads=1")
    first = f(X)
    assert not f._future().done()
    gate.set()
    compiled = at.compile_model(small(), target="llvm -threads=1")(X)
    np.testing.assert_allclose(first, compiled, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(f.compiled()(X), compiled)
    np.testing.assert_array_equal(f(X), compiled)  # bit for bit: the sums of NumPy have another order


def test_what_is_compiled_answers_where_numpy_is_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = threading.Event()
    late = []

    def slow(node, inputs, real=evaluate.evaluate_node):
        late.append(node)
        assert compiled.wait(PATIENCE_S)
        return real(node, inputs)

    monkeypatch.setattr(evaluate, "evaluate_node", slow)
    f = InstantModel(small(), "llvm -threads=1")
    y = f(X)
    assert f._future().done()
    compiled.set()
    join()
    assert len(late) == 1  # it ends after the operator that it was at
    monkeypatch.undo()
    np.testing.assert_array_equal(y, at.compile_model(small(), target="llvm -threads=1")(X))


def test_an_error_of_numpy_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(node, inputs):
        raise MemoryError

    monkeypatch.setattr(evaluate, "evaluate_node", failing)
    y = InstantModel(small(), "llvm -threads=1")(X)
    monkeypatch.undo()
    np.testing.assert_array_equal(y, at.compile_model(small(), target="llvm -threads=1")(X))


def test_an_error_of_the_compiler_is_the_next_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*args, **options):
        raise CodegenError("no code today.")

    monkeypatch.setattr(models, "linked", failing)
    f = InstantModel(small())
    with pytest.raises(CodegenError, match="no code today"):
        f.compiled()
    with pytest.raises(CodegenError, match="no code today"):
        f(X)


def test_answers_are_fresh_arrays(gate: threading.Event) -> None:
    x = at.input((2, 3), name="x")
    graph = Graph((x,), (at.ops.reshape(x, shape=(3, 2)), at.ops.relu(x)), "views")
    given = np.ones((2, 3), np.float32)
    view, _ = InstantModel(graph)(given)
    view[:] = 7
    assert (given == 1).all()


def test_any_model_is_compiled_so(gate: threading.Event) -> None:
    f = at.compile_model(small(), target="llvm -threads=1", instant=True)
    first = f(x=X)
    assert [(a.name, a.role, a.shape) for a in f.args] == [
        ("x", "input", (1, 8, 9, 9)),
        ("output", "output", (1, 16, 4, 4)),
    ]
    assert "not compiled yet" in repr(f)
    gate.set()
    f.wait()
    compiled = at.compile_model(small(), target="llvm -threads=1")
    np.testing.assert_allclose(first, compiled(X), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(f(x=X), compiled(X))
    assert f.signature == compiled.signature  # all that is not asked for before waits
    assert repr(f) == repr(compiled)


def test_results_for_given_arrays_are_compiled_ones() -> None:
    f = at.compile_model(small(), target="llvm -threads=1", instant=True)
    out = np.empty((1, 16, 4, 4), np.float32)
    assert f(X, out=out) is out
    np.testing.assert_array_equal(out, f.compiled()(X))


def test_a_pickled_one_is_compiled_again() -> None:
    f = pickle.loads(pickle.dumps(at.compile_model(small(), target="llvm -threads=1", instant=True)))
    f.wait()
    assert f(X).shape == (1, 16, 4, 4)


class Doubled(OpenGraph):
    """x * 2, for any number of rows."""

    name, shapes, is_bounded = "doubled", {"x": (2, 3)}, False

    def open_axes(self, name: str) -> tuple[int, ...]:
        return (0,)

    def at(self, shapes: Shapes) -> Graph:
        x = at.input(shapes["x"], name="x")
        return Graph((x,), (x * 2.0,), self.name)

    def family(self, shapes: Shapes, end: int = 64) -> GraphFamily:
        return at.open_graph(lambda n: self.at({"x": (n, 3)}), te.var("n", range=(1, end)))


def test_open_extents_are_those_of_the_call(gate: threading.Event) -> None:
    f = at.compile_model(Doubled(), target="llvm -threads=1", instant=True)
    for rows in (2, 5):
        np.testing.assert_array_equal(f(np.ones((rows, 3), np.float32)), np.full((rows, 3), 2, np.float32))
    assert not f._future().done()
    gate.set()
    f.wait()
    np.testing.assert_array_equal(f(np.ones((9, 3), np.float32)), np.full((9, 3), 2, np.float32))


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"trials": 3}, "instant=True: 3 trials would be measured before the first answer. Measure them"),
        ({"target": "llvm -numerics=strict"}, "in another order than strict numerics prescribe"),
    ],
)
def test_what_takes_time_is_refused(how: dict[str, Any], said: str) -> None:
    with pytest.raises(AutotensorError, match=said):
        at.compile_model(small(), instant=True, **how)


def test_a_family_is_refused() -> None:
    family = at.open_graph(lambda n: at.input((n, 3), name="x") * 2.0, te.var("n", range=(1, 8)), name="net")
    with pytest.raises(
        InputError, match=r"model .net. is a family of graphs, and NumPy computes one\. Give that"
    ):
        at.compile_model(family, instant=True)


# -- of ONNX files -------------------------------------------------------------------------------------------


def product() -> onnx.ModelProto:
    w = floats(8, 4, seed=2)
    return model([node("MatMul", ["x", "w"])], {"x": ("n", 8)}, weights={"w": w})


def test_a_file_answers_for_each_shape_and_waits_for_all(gate: threading.Event) -> None:
    f, usual = at.OnnxModel(product(), instant=True), at.OnnxModel(product())
    xs = [floats(n, 8, seed=n) for n in (2, 5)]
    first = [f(x)[0] for x in xs]
    gate.set()
    f.wait()
    for x, y in zip(xs, first, strict=True):
        np.testing.assert_allclose(y, usual(x)[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(f(x)[0], usual(x)[0])


def test_strict_numerics_wait_for_the_compiler() -> None:
    with pytest.raises(TargetError, match="NumPy's, which adds in another order than strict numerics"):
        at.OnnxModel(product(), "llvm -numerics=strict", instant=True)
    at.OnnxModel(product(), "llvm -numerics=strict")

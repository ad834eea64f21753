"""Independent kernels: which kernel waits for which, answers, failures, the timeline."""

from __future__ import annotations

import numpy as np
import pytest

from autotensor.api.parallel import compile_parallel
from autotensor.base.errors import ArgumentError
from autotensor.graph.build import input, ops
from autotensor.insight.timeline import Span, Timeline, side_by_side


def diamond():
    ones = input((2, 2), name="ones")
    a = ones * 2.0
    c, b = a + 2.0, a + 1.0
    d = b * c
    return compile_parallel([a, b, c, d], names={a: "A", b: "B", c: "C", d: "D"})


def test_the_decks_listing() -> None:
    program = diamond()
    assert [w.split(": ")[1].split(" | ") for w in str(program).splitlines()][0::2] == [["A"], ["D"]]
    outputs, timeline = program.run(np.ones((2, 2), np.float32))
    assert [o[0, 0] for o in outputs] == [2, 3, 4, 12]
    assert timeline.span("D").start_s >= max(timeline.span(n).end_s for n in "ABC")
    assert {s.name for s in timeline.spans} == set("ABCD")


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("fuse", [False, True])
def test_answers_are_those_of_numpy(workers: int, fuse: bool) -> None:
    x, w = input((8, 16)), input((16, 4))
    towers = [ops.relu(ops.matmul(x, w) * float(n + 1)) for n in range(6)]
    total = ops.reshape(sum(towers[1:], towers[0]), (4, 8))
    program = compile_parallel([total, towers[0]], workers=workers, fuse=fuse)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(n.shape).astype(np.float32) for n in (x, w))
    for _ in range(20):
        first, second = program(a, b)
        np.testing.assert_allclose(first, (np.maximum(a @ b, 0) * 21).reshape(4, 8), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(second, np.maximum(a @ b, 0), rtol=1e-4, atol=1e-5)


def test_failures_reach_the_caller() -> None:
    program = diamond()
    with pytest.raises(ArgumentError, match="takes 1 arrays, got 2"):
        program(np.ones((2, 2), np.float32), np.ones((2, 2), np.float32))
    with pytest.raises(ArgumentError):
        program(np.ones((2, 2), np.float64))
    assert program(np.ones((2, 2), np.float32))[3][0, 0] == 12


def test_timeline() -> None:
    t = Timeline((Span("A", 0, 0.0, 0.5), Span("B", 0, 0.5, 1.0), Span("C", 1, 0.5, 0.75)))
    assert side_by_side(t.spans) == (("B", "C"),)
    assert t.busy == pytest.approx(1.25 / 2)
    first, second, *rest = str(t).splitlines()
    assert first == f"worker 0  |{'A' * 32}{'B' * 32}|"
    assert second == f"worker 1  |{' ' * 32}{'C' * 16}{' ' * 16}|"
    assert rest[0] == "A: A, 0 to 500000 µs"


def test_trace_file(tmp_path) -> None:
    import json

    Timeline((Span("A", 1, 0.0, 2e-6),)).save(tmp_path / "t.json")
    (event,) = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert (event["name"], event["tid"], event["dur"]) == ("A", 1, 2.0)

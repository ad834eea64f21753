"""Scans: their meaning, refusals, and equal keys for any names."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from recurrences import CASES, iir, one_channel

import autotensor as at
from autotensor import te
from autotensor.base.errors import TensorError
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import evaluate
from autotensor.te.workload import Workload


def test_of_one_channel() -> None:
    x = np.arange(50, dtype=np.float32)
    found = evaluate(ComputeDAG.of([*one_channel()]), {"x": x})["y"]
    expected = x.copy()
    for t in range(1, 50):
        expected[t] = np.float32(0.5) * expected[t - 1] + x[t]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_of_several_first_steps() -> None:
    x = np.random.default_rng(0).standard_normal((40, 37)).astype(np.float32)
    found = evaluate(ComputeDAG.of([*iir(order=3)]), {"x": x}, accumulate=np.float64)["y"]
    expected = x.astype(np.float64)
    for t in range(3, 40):
        expected[t] = x[t] + sum(0.5**k * expected[t - k] for k in (1, 2, 3))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_the_text_of_a_workload_holds_it(name: str) -> None:
    dag = ComputeDAG.of([*CASES[name]()])
    w = Workload.of(dag, name)
    again = Workload.from_text(w.text, key=w.key)
    assert again.dag.carried == w.dag.carried != ()
    assert again.dag.stages == w.dag.stages


def test_names_are_no_part_of_the_key() -> None:
    x, s = te.placeholder((50,), name="other"), te.placeholder((50,), name="before")
    first = te.compute((1,), lambda i: x[0], name="one")
    y = te.scan(first, te.compute((50,), lambda i: 0.5 * s[i - 1] + x[i], name="two"), s, name="three")
    assert Workload.of(ComputeDAG.of([x, y])).key == Workload.of(ComputeDAG.of([*one_channel()])).key


def scan(update: Any, first: Any = None, n: int = 8) -> Any:
    x, s = te.placeholder((20, n), name="x"), te.placeholder((20, n), name="s")
    init = first if first is not None else te.compute((1, n), lambda i, j: x[i, j], name="init")
    u = te.compute((20, n), lambda i, j: update(x, s, i, j), name="u")
    return ComputeDAG.of([te.scan(init, u, s, name="y")])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: scan(lambda x, s, i, j: s[i, j]), "scan 'y': 'u' reads its state at u"),
        (lambda: scan(lambda x, s, i, j: s[i - 2, j]), "it can read steps i - 1 to i - 1"),
        (lambda: scan(lambda x, s, i, j: s[2 * i - 1, j]), "as many as init has"),
        (lambda: scan(lambda x, s, i, j: s[i - 1, j], te.placeholder((1, 9))), "its init (1, 9)"),
        (lambda: scan(lambda x, s, i, j: s[i - 1, j], te.placeholder((21, 8))), "init has 21 of 20 steps"),
        (lambda: scan(lambda x, s, i, j: s[i - 1, j] > 0), "have types float32, float32 and bool"),
    ],
)
def test_what_is_refused(make: Any, says: str) -> None:
    with pytest.raises(TensorError, match=re.escape(says.replace("at u", "at"))):
        make()


def lower_system(n: int = 12, wide: int = 5) -> list[Any]:
    """x[i] = (b[i] - Σ_{k < i} l[i, k] x[k]) / l[i, i]."""
    m, b = te.placeholder((n, n), name="m"), te.placeholder((n, wide), name="b")
    s, k = te.placeholder((n, wide), name="s"), te.reduce_axis(n, name="k")
    body = lambda i, j: te.sum(te.select(k < i, m[i, k] * s[k, j], 0.0), axis=k)  # noqa: E731
    dot = te.compute((n, wide), body, name="dot")
    first = te.compute((1, wide), lambda i, j: b[i, j] / m[i, i], name="first")
    later = te.compute((n, wide), lambda i, j: (b[i, j] - dot[i, j]) / m[i, i], name="later")
    return [m, b, te.scan(first, later, s, name="x")]


def test_all_earlier_steps_may_be_read_where_a_condition_says_so() -> None:
    rng = np.random.default_rng(0)
    m = np.tril(rng.standard_normal((12, 12))) * 0.3 + 2 * np.eye(12)
    b = rng.standard_normal((12, 5))
    given = [m.astype(np.float32), b.astype(np.float32)]
    want = np.linalg.solve(m, b)
    found = evaluate(ComputeDAG.of(lower_system()), dict(zip("mb", given, strict=True)), np.float64)["x"]
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(at.build(lower_system())(*given), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("condition", ["k <= i", "k < i + 1", "k > i", "k < 19", "i < 19"])
def test_a_condition_must_say_that_a_step_is_before(condition: str) -> None:
    k = te.reduce_axis(20, name="k")

    def update(x: Any, s: Any, i: Any, j: Any) -> Any:
        cond = eval(condition, {"k": k, "i": i})
        return te.sum(te.select(cond, s[k, j], 0.0), axis=k)

    with pytest.raises(TensorError, match=r"reads its state at k; .* te\.select\(k < i, s\[k\], 0\.0\)"):
        scan(update)


def test_what_steps_compute_on_their_way_is_no_result() -> None:
    x, s = te.placeholder((20,), name="x"), te.placeholder((20,), name="s")
    g = te.compute((20,), lambda i: s[i - 1] * 2.0, name="g")
    y = te.scan(
        te.compute((1,), lambda i: x[i]), te.compute((20,), lambda i: g[i] + x[i], name="u"), s, name="y"
    )
    with pytest.raises(TensorError, match="'g', which its steps compute on their way, is a result"):
        ComputeDAG.of([x, y, g])
    z = te.compute((20,), lambda i: g[i] + y[i], name="z")
    with pytest.raises(TensorError, match="'z' reads what its steps compute"):
        ComputeDAG.of([x, z])
    with pytest.raises(TensorError, match="'s' is the state of a scan; it is not an argument"):
        ComputeDAG.of([x, s, y])


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("given", [1, 3])
def test_what_init_needs_may_be_computed_in_the_loop_over_steps(given: int, copied: bool) -> None:
    x, h = te.placeholder((9, 5), name="x"), te.placeholder((9, 5), name="h")
    twice = te.compute((given, 5), lambda t, i: x[t, i] * 2, name="twice")
    first = te.compute((given, 5), lambda t, i: twice[t, i] + 1, name="first")
    step = te.compute((9, 5), lambda t, i: h[t - 1, i] + h[t - given, i] + x[t, i], name="step")
    y = te.scan(first, step, h, name="y")
    s = te.create_schedule(y)
    s["first"].compute_at(s["y"], "t")
    s["step"].compute_at(s["y"], "t")
    s["twice"].compute_at(s["y"], "t")
    if copied:
        copy = s.cache_read("first", "local", ["y"])
        s[copy].compute_at(s["y"], "t")
    xs = np.arange(45, dtype=np.float32).reshape(9, 5)
    want = np.empty_like(xs)
    for t in range(9):
        want[t] = xs[t] * 2 + 1 if t < given else want[t - 1] + want[t - given] + xs[t]
    np.testing.assert_array_equal(at.build(s, [x, y])(xs), want)

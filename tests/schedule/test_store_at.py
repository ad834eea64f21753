"""store_at: the elements that each iteration computes, refusals, and the loop picture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from comparison import check

from autotensor import te
from autotensor.base.errors import ScheduleError
from autotensor.lowering.pipeline import lower, lower_nest
from autotensor.schedule.extents import derive
from autotensor.schedule.loop_picture import picture
from autotensor.schedule.primitives.compute_at import ComputeAt
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.primitives.store_at import StoreAt
from autotensor.schedule.schedule import Schedule, create_schedule
from autotensor.schedule.state import Ref, State


def chain(rows: Callable[[Any], Any] = lambda i: i) -> Schedule:
    """C reads three rows of B around `rows(i)`, B three of A."""
    a = te.placeholder((70, 12), name="A")
    b = te.compute((60, 12), lambda y, x: a[y, x] + a[y + 1, x] + a[y + 2, x], name="B")
    c = te.compute((24, 12), lambda y, x: b[rows(y), x] + b[rows(y) + 2, x], name="C")
    s = create_schedule(c)
    s[c].split("y", factors=[4, 2])
    s[b].compute_at(s[c], "y.1")
    return s


def test_only_new_rows_are_computed() -> None:
    s = chain()
    s["B"].store_at(s["C"], "y.0")
    extents = derive(s.state)
    assert extents["B", "y"] == 2
    assert extents.windows["B"].rows == 4
    assert extents.early["B"] == 1
    text = str(lower_nest(s.state).run[0])
    assert "for C_y_1 in range(-1, 4)" in text
    assert "% 2 * 2" in text.replace("%", " % ").replace("*", " * ").replace("  ", " ")
    check(s.dag, s.trace)


def test_what_is_read_by_a_sliding_stage_keeps_no_more_than_its_new_rows_need() -> None:
    """A chain of eight stencils; each keeps three rows."""
    x = te.placeholder((40, 8), name="X")
    stages = [x]
    for n in range(8):
        before = stages[-1]
        shape = (before.shape[0] - 2, 8)
        body = lambda y, z, t=before: t[y, z] + t[y + 1, z] + t[y + 2, z]  # noqa: E731
        stages.append(te.compute(shape, body, name=f"s{n}"))
    s = create_schedule(stages[-1])
    s["s7"].split("y", factors=[6, 1])
    for n in reversed(range(7)):
        s[f"s{n}"].compute_at(s["s7"], "y.1")
        s[f"s{n}"].store_at(s["s7"], "y.0")
    extents = derive(s.state)
    assert {int(w.rows) for w in extents.windows.values()} == {3}
    assert [int(extents.early[f"s{n}"]) for n in range(7)] == [14, 12, 10, 8, 6, 4, 2]
    check(s.dag, s.trace)


def test_several_readers_of_one_ring() -> None:
    a = te.placeholder((40, 9), name="A")
    b = te.compute((40, 9), lambda y, x: a[y, x] * 2.0, name="B")
    c = te.compute((36, 9), lambda y, x: b[y, x] + b[y + 2, x], name="C")
    d = te.compute((32, 9), lambda y, x: c[y, x] - c[y + 1, x] + b[y + 4, x], name="D")
    s = create_schedule(d)
    s[d].split("y", factors=[5, 3])
    for name in ("C", "B"):
        s[name].compute_at(s[d], "y.1")
        s[name].store_at(s[d], "y.0")
    s[d].parallel("y.0")
    check(s.dag, s.trace)


def test_where_rows_decide_a_border_an_iteration_asks_once() -> None:
    a = te.placeholder((64, 32), name="A")

    def smooth(t: Any, name: str) -> Any:
        def body(y: Any, x: Any) -> Any:
            return te.select(te.all(y >= 1, y < 63), t[y - 1, x] + t[y + 1, x], t[y, x])

        return te.compute((64, 32), body, name=name)

    c = smooth(smooth(a, "B"), "C")
    s = create_schedule(c)
    s["C"].split("y", factors=[64, 1])
    s["B"].compute_at(s["C"], "y.1")
    s["B"].store_at(s["C"], "y.0")
    loads = [line for line in str(lower(s.state).run[0]).splitlines() if "=" in line and "B[" in line]
    assert any(" if " not in line for line in loads if "A[" in line)
    check(s.dag, s.trace)


REFUSED: dict[str, tuple[Callable[[], Schedule], Callable[[Schedule], Any], str]] = {
    "not attached": (
        lambda: chain(),
        lambda s: (s["B"].compute_root(), s["B"].store_at(s["C"], "y.0")),
        "stage 'B' is not computed inside a loop of 'C'. Use compute_at first.",
    ),
    "another loop": (
        lambda: chain(),
        lambda s: s["B"].store_at(s["C"], "y.2"),
        "loop 'y.2' of 'C' is not right outside 'y.1', where stage 'B' is computed. Store it at 'y.0'.",
    ),
    "outermost": (
        lambda: chain(),
        lambda s: (s["B"].compute_at(s["C"], "y.0"), s["B"].store_at(s["C"], "y.1")),
        "Split 'y.0' first.",
    ),
    "parallel": (
        lambda: chain(),
        lambda s: (s["C"].parallel("y.1"), s["B"].store_at(s["C"], "y.0")),
        "loop 'y.1' of 'C' is parallel; its iterations do not follow one another. Compute 'B' at a plain "
        "loop.",
    ),
    "loops moved later": (
        lambda: chain(),
        lambda s: (s["B"].store_at(s["C"], "y.0"), s["C"].reorder("x", "y.1"), lower(s.state)),
        "loop 'y.0' of 'C' is not right outside 'y.1', where stage 'B' is computed. Store it at 'y.2'.",
    ),
    "backwards": (
        lambda: chain(lambda y: 30 - y),
        lambda s: (s["B"].store_at(s["C"], "y.0"), lower(s.state)),
        "reads of stage 'B' moves backwards or by unequal steps; nothing of it can be kept. "
        "Leave store_at out.",
    ),
    "unequal steps": (
        lambda: chain(lambda y: y * 3 // 4),
        lambda s: (s["B"].store_at(s["C"], "y.0"), lower(s.state)),
        "moves backwards or by unequal steps",
    ),
    "the same": (
        lambda: chain(lambda y: y * 0),
        lambda s: (s["B"].store_at(s["C"], "y.0"), lower(s.state)),
        "all iterations of loop 'y.1' of 'C' read the same of stage 'B'. Compute it at loop 'y.0'.",
    ),
    "vectors": (
        lambda: chain(),
        lambda s: (s["B"].store_at(s["C"], "y.0"), s["B"].vectorize("y"), lower(s.state)),
        "axis 'y' of stage 'B' is vectorized, but the region moves along 'y' from iteration to iteration. "
        "Vectorize another axis.",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    make, steps, message = REFUSED[name]
    with pytest.raises(ScheduleError) as caught:
        steps(make())
    assert str(caught.value).startswith("store_at: ")
    assert message in str(caught.value)


def test_compute_at_again_forgets_the_storage() -> None:
    s = chain()
    s["B"].store_at(s["C"], "y.0")
    s["B"].compute_at(s["C"], "y.1")
    assert not derive(s.state).windows


def test_a_population_s_picture_is_that_of_each_of_its_members() -> None:
    dag = chain().dag
    sizes = Ref("h", 0), Ref("h", 1)
    steps = (SplitStep("C", "y", sizes), ComputeAt("B", "C", "y.1"), StoreAt("B", "C", "y.0"))

    def replayed(*steps: Any) -> State:
        state = State.initial(dag)
        for step in steps:
            state = step.apply(state)
        return state

    options = np.array([(4, 2), (3, 1), (6, 4), (2, 8)])
    together = picture(replayed(*steps), {r: options[:, n] for n, r in enumerate(sizes)}, len(options))
    for row, option in enumerate(options.tolist()):
        alone = picture(replayed(SplitStep("C", "y", tuple(option)), *steps[1:]), {})
        for many, one in zip(together.stages, alone.stages, strict=True):
            assert np.broadcast_to(many.points, len(options))[row] == one.points
            for a, b in zip(many.levels, one.levels, strict=True):
                assert np.broadcast_to(a.trips, len(options))[row] == b.trips
            for a, b in zip(many.bytes, one.bytes, strict=True):
                assert [np.broadcast_to(x, len(options))[row] for x in a] == [*b]

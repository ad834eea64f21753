"""Operations that a point really executes."""

from __future__ import annotations

from autotensor import te
from autotensor.base.target import parse
from autotensor.schedule.stage_work import executed
from autotensor.te.dag import ComputeDAG
from autotensor.te.tensor import Tensor
from autotensor.te.terms import flops


def of(tensor: Tensor) -> float:
    return executed(ComputeDAG.of(tensor).stages[-1])


def test_sums_count_their_joins() -> None:
    x, w = te.placeholder((4, 8), name="x"), te.placeholder((8,), name="w")
    k = te.reduce_axis(8, name="k")
    assert of(te.compute((4,), lambda i: te.sum(x[i, k] * w[k], axis=k), name="y")) == 2.0


def test_of_rows_chosen_by_position_one_is_executed() -> None:
    x = te.placeholder((4,), name="x")
    rows = te.compute(
        (3, 4),
        lambda p, i: te.select(p == 0, x[i] + 1.0 + 2.0, te.select(p == 1, x[i] * 3.0, x[i])),
        name="y",
    )
    assert of(rows) == (2 + 1 + 0) / 3


def test_choices_by_value_are_executed_on_both_sides() -> None:
    x = te.placeholder((4,), name="x")
    both = te.compute((4,), lambda i: te.select(x[i] > 0.0, x[i] + 1.0, x[i] * 2.0), name="y")
    assert of(both) == 3.0


def test_other_conditions_by_position_count_as_they_stand() -> None:
    x = te.placeholder((4,), name="x")
    some = te.compute((4,), lambda i: te.select(i < 2, x[i] + 1.0, 0.0), name="y")
    assert of(some) == 1.0


def test_a_transform_executes_a_part_of_what_it_spells() -> None:
    from autotensor.operators.conv import conv2d
    from autotensor.schedule.state import State
    from schedules.algorithms.winograd import F4, expand

    x = te.placeholder((1, 16, 16, 16), name="x")
    w = te.placeholder((16, 16, 3, 3), name="w", constant=True)
    y = conv2d(x, w, padding=1, layout="NHWC")
    state = State.initial(ComputeDAG.of([x, w, y]))
    stages = expand(F4)(state, state.stages[-1])
    assert stages is not None
    assert parse().kind == "llvm"
    spelt = {s.name.rpartition(".")[2]: flops(s) / s.points() for s in stages}
    real = {s.name.rpartition(".")[2]: executed(s) for s in stages}
    assert real["D"] < spelt["D"] / 4
    assert real["R"] < spelt["R"] / 3
    assert real["M"] == spelt["M"] == 2.0

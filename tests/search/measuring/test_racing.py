"""The parent's side of a race, with a child that gives planned answers."""

from __future__ import annotations

from typing import Any

import pytest

from autotensor import te
from autotensor.base.target import host
from autotensor.search.measuring import racing
from autotensor.search.measuring.building import Built
from autotensor.search.measuring.measure_request import MeasureOptions
from autotensor.search.measuring.racing import DISTURBED, RETAKES, Entrant, Race, questions_of
from autotensor.te.dag import ComputeDAG

CALM, BUSY = 1e-3, 2 * DISTURBED * 1e-3  # seconds of the reference kernel


def test_a_machine_that_is_never_calm_is_not_waited_for_in_every_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    race = Race(host(), MeasureOptions())
    race._limited, race._best, race._calm = False, None, CALM
    race._loaded = {0}
    references: list[float] = []  # that the child will see

    def answer(request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        reference = references.pop(0)
        disturbed = request["calm"] is not None and reference > request["calm"]
        return {"reference": reference, "samples": {} if disturbed else {"0": (1e-3, 2)}}

    rests: list[float] = []
    monkeypatch.setattr(race, "_ask", answer)
    monkeypatch.setattr(racing.time, "sleep", rests.append)
    entrant = Entrant(0, Built({"meta": {}}, "sha"), checks=[1e-3])

    def rests_of(*seen: float) -> int:
        references[:] = seen
        rests.clear()
        race._round([entrant])
        assert not references  # all were requested
        return len(rests)

    assert rests_of(CALM) == 0
    assert rests_of(BUSY, CALM) == 1
    assert rests_of(*[BUSY] * (RETAKES + 1)) == RETAKES
    assert rests_of(BUSY) == 0  # they are there all the time
    assert rests_of(CALM) == 0  # and now they are not
    assert rests_of(BUSY, CALM) == 1
    assert len(entrant.samples) == len(entrant.references) == 6


def test_who_is_likely_slower_is_dropped_in_a_batch_and_not_at_the_end_of_a_run() -> None:
    race = Race(host(), MeasureOptions())
    race._repeat = 15
    leader, other = (Entrant(n, Built({"meta": {}}, "sha")) for n in range(2))
    leader.samples, other.samples = [1.0, 1.1, 0.9], [1.1, 1.15, 1.15]
    race._limited = True
    assert race._unfinished([leader, other], None) == [leader]
    race._limited = False
    assert race._unfinished([leader, other], None) == [leader, other]


@pytest.mark.parametrize(("rounded", "kinds"), [(False, ["normal", "integer"]), (True, ["normal", "normal"])])
def test_an_arg_max_of_rounded_numbers_is_not_asked_on_whole_numbers(rounded: bool, kinds: list[str]) -> None:
    """On whole numbers, many cosines are equal, and each rounding chooses another one of them."""
    x, k, n = te.placeholder((40, 6), name="x"), te.reduce_axis(6, name="k"), te.reduce_axis(40, name="n")
    size = te.compute((40,), lambda i: te.sum(x[i, k] * x[i, k], axis=k), name="size")
    unit = te.compute((40, 6), lambda i, j: x[i, j] / te.sqrt(size[i]) if rounded else x[i, j], name="unit")
    r = te.reduce_axis(6, name="r")
    near = te.compute((40, 40), lambda i, j: te.sum(unit[i, r] * unit[j, r], axis=r), name="near")
    last = te.comm_reducer(
        lambda a, b: (te.select(a[1] >= b[1], a[0], b[0]), te.maximum(a[1], b[1])),
        lambda t0, t1: (te.const(-1, t0), te.min_value(t1)),
        name="argmax",
    )
    at, most = te.compute((40,), lambda i: last((n, near[i, n]), axis=n), name="most")
    asked = questions_of(ComputeDAG.of([x, at, most]), (0,))
    assert [kind for kind, _, _ in asked] == kinds
    assert len(set(asked)) == 2

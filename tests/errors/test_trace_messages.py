"""Messages about traces read from text, and about a computation's arguments: the text is the golden."""

from __future__ import annotations

import pytest
from message_cases import Cases, schedule

from autotensor import te
from autotensor.base.errors import ScheduleError, TensorError
from autotensor.schedule import Ref, Trace
from autotensor.schedule.extents import derive
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.trace import VERSION
from autotensor.te.dag import ComputeDAG

CASES = Cases()


# -- traces as text ------------------------------------------------------------------------------------------


@CASES.says("the trace is not JSON.")
def not_json() -> None:
    Trace.from_json("steps")


@CASES.says(f"the trace has version 7; this version reads {VERSION}.")
def another_version() -> None:
    Trace.from_json('{"version": 7, "steps": []}')


@CASES.says(f"the trace has version None; this version reads {VERSION}.")
def no_version() -> None:
    Trace.from_json("[]")


@CASES.says("step 'SplitStep' takes 4 arguments, got 2.")
def missing_arguments() -> None:
    Trace.from_json('{"version": 1, "steps": [["SplitStep", "C", "i"]]}')


@CASES.says(
    "step 'SplitStep': argument 'factors' is [4, -1]; it must be a list of positive whole numbers or holes."
)
def negative_factor_in_a_record() -> None:
    Trace.from_json('{"version": 1, "steps": [["SplitStep", "C", "i", [4, -1], null]]}')


@CASES.says("step 'Unroll': argument 'axis' is 3; it must be a text.")
def wrong_type_in_a_record() -> None:
    Trace.from_json('{"version": 1, "steps": [["Unroll", "C", 3]]}')


@CASES.says(
    "stage 'C' has no axis 'i'; it has i.0, i.1, j, k. "
    '\n  s["C"].split("i", factors=[4])\n> s["C"].vectorize("i")'
)
def trace_that_does_not_apply() -> None:
    steps = '[["SplitStep", "C", "i", [4], null], ["Vectorize", "C", "i"], ["Unroll", "C", "k"]]'
    Trace.from_json(f'{{"version": 1, "steps": {steps}}}').replay(schedule().dag)


@CASES.says("hole 'tile' is not decided.")
def hole_not_decided() -> None:
    derive(SplitStep("C", "i", (Ref("tile"),)).apply(schedule().state))


@CASES.says("hole 'tile' is not decided. Decided: rows, columns.")
def hole_not_filled() -> None:
    Trace((SplitStep("C", "i", (Ref("tile"),)),)).fill({"rows": (1,), "columns": (2,)})


def test_unknown_step() -> None:
    with pytest.raises(ScheduleError, match=r"^step 'Skew' is unknown to this version\. Known: .*SplitStep"):
        Trace.from_json('{"version": 1, "steps": [["Skew", "C", "i"]]}')


@pytest.mark.parametrize("step", ['"Unroll"', "[]", "[[]]", "{}", '[["Unroll"], "C"]', "null", "3"])
def test_steps_that_are_none(step: str) -> None:
    with pytest.raises(ScheduleError, match="is unknown to this version"):
        Trace.from_json(f'{{"version": 1, "steps": [{step}]}}')


# -- tensors and arguments -----------------------------------------------------------------------------------


@CASES.says("the arguments lack 'A'. List every input and every result.", TensorError)
def argument_missing() -> None:
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: a[i] + 1, name="B")
    ComputeDAG.of([b]).with_args([b])


@CASES.says("the arguments list a tensor twice: A, B, A.", TensorError)
def argument_twice() -> None:
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: a[i] + 1, name="B")
    ComputeDAG.of([b]).with_args([a, b, a])


@pytest.mark.parametrize("name", [*CASES])
def test_message(name: str) -> None:
    CASES.check(name)

"""Objects that people meet at the prompt print one short line, however large they are."""

from __future__ import annotations

import numpy as np
import pytest

import autotensor as at
from autotensor import te
from autotensor.base.target import parse
from autotensor.te.workload import Workload
from schedules.generate import generate


def objects() -> dict[str, object]:
    a, b = te.placeholder((128, 64), name="A"), te.placeholder((64, 96), name="B")
    k = te.reduce_axis(64, name="k")
    c = te.compute((128, 96), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c)
    workload = Workload.of(s.dag)
    x = at.input((1, 8, 16, 16), name="x")
    y = at.ops.relu(at.ops.conv2d(x, np.full((8, 8, 3, 3), 0.01, np.float32), padding=1) + x)
    return {
        "ComputeDAG(A, B -> C; stages C)": s.dag,
        "State(C: i, j, k)": s.state,
        "Artifact(C: A, B, C; llvm/": at.build(s, [a, b, c]).artifact,
        "Workload(C: ": workload,
        "Sketch(by tile_cpu; ": generate(workload.dag, parse("llvm -mcpu=znver4"))[0],
        "ModelPlan(model: 3 groups, 3 tasks; llvm/": at.plan_model(y),
        "Target(llvm/znver4/v64/t2)": parse("llvm -mcpu=znver4 -threads=2"),
    }


@pytest.mark.parametrize(("begins", "thing"), objects().items())
def test_a_line_is_enough(begins: str, thing: object) -> None:
    said = repr(thing)
    assert said.startswith(begins)
    assert len(said) < 200
    assert "\n" not in said

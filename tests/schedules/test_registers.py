"""Register tiles of untuned models stay in registers: no default carries a vector through the stack."""

from __future__ import annotations

import pytest

from autotensor.api.models import plan_model
from autotensor.base.target import parse
from autotensor.codegen.llvm_asm import asm_facts
from autotensor.compiler import compile_trace
from autotensor.models import MODELS
from schedules.generate import default_trace


@pytest.mark.slow
@pytest.mark.parametrize("cpu", ["x86-64-v4", "x86-64-v3"])
@pytest.mark.parametrize("model", [m for m in MODELS.names() if m not in ("resnet", "resnet34")])
def test_no_default_keeps_part_of_its_tile_on_the_stack(model: str, cpu: str) -> None:
    target = parse(f"llvm -mcpu={cpu} -threads=2")
    carried = {}
    for task in plan_model(MODELS.get(model).build(), target).tasks:
        dag = task.workload.dag
        artifact = compile_trace(dag, default_trace(dag, target), target, "kernel", asm=True)
        if found := asm_facts(artifact.texts["asm"]).carried:
            carried[str(task)] = found
    assert carried == {}

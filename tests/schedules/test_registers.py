"""Register tiles of untuned models stay in registers: no default carries a vector through the stack."""

from __future__ import annotations

import pytest

from autotensor.api.models import plan_model
from autotensor.base.target import Target, parse
from autotensor.codegen.llvm.assembly import AsmFacts, asm_facts
from autotensor.compiler import compile_trace
from autotensor.models import MODELS
from schedules.generate import default_trace


def facts_of_defaults(model: str, target: Target) -> dict[str, AsmFacts]:
    found = {}
    for task in plan_model(MODELS.get(model).build(), target).tasks:
        dag = task.workload.dag
        artifact = compile_trace(dag, default_trace(dag, target), target, "kernel", asm=True)
        found[str(task)] = asm_facts(artifact.texts["asm"])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("cpu", ["x86-64-v4", "x86-64-v3"])
@pytest.mark.parametrize("model", [m for m in MODELS.names() if m not in ("resnet", "resnet34")])
def test_no_default_keeps_part_of_its_tile_on_the_stack(model: str, cpu: str) -> None:
    facts = facts_of_defaults(model, parse(f"llvm -mcpu={cpu} -threads=2"))
    assert {task: f.carried for task, f in facts.items() if f.carried} == {}


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mobilenet_v2", "dcgan", "resnet18"])
def test_with_32_registers_no_default_puts_a_vector_aside(model: str) -> None:
    """In innermost loops; Winograd's transforms, which strict numerics forbid, have more than 32 values.

    Of a Zen 4, whose steps of a reduction are not written out: between those LLVM moves loads ahead.
    """
    facts = facts_of_defaults(model, parse("llvm -mcpu=znver4 -threads=2 -numerics=strict"))
    assert {task: f.spills for task, f in facts.items() if f.spills} == {}

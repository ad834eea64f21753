"""Register tiles of untuned models stay in registers: no default carries a vector through the stack."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotensor import te
from autotensor.api.models import plan_model
from autotensor.base.target import Target, parse
from autotensor.codegen.llvm.assembly import AsmFacts, asm_facts
from autotensor.compiler import compile_trace
from autotensor.models import MODELS
from autotensor.te.dag import ComputeDAG
from schedules.generate import default_trace
from schedules.kit import tiles


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
    """Only innermost loops count. Strict numerics leave out Winograd's transforms, which have more than 32
    values. A Zen 4 does not write out the steps of a reduction; between such steps, LLVM would move loads
    ahead.
    """
    facts = facts_of_defaults(model, parse("llvm -mcpu=znver4 -threads=2 -numerics=strict"))
    assert {task: f.spills for task, f in facts.items() if f.spills} == {}


def product_facts(rows: int, columns: int, depth: int, target: Target) -> AsmFacts:
    a, b = te.placeholder((rows, depth), name="a"), te.placeholder((depth, columns), name="b")
    k = te.reduce_axis(depth, name="k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    dag = ComputeDAG.of([a, b, c])
    artifact = compile_trace(dag, default_trace(dag, target), target, "product", asm=True)
    return asm_facts(artifact.texts["asm"])


@pytest.mark.parametrize("extents", [(512, 512, 512), (128, 384, 64), (33, 1000, 64)])
def test_a_product_that_is_not_fused_with_its_sum_has_a_register(
    extents: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The product waits there for its sum. Without this register, the largest tiles would move vectors to the
    stack in every step. Such tiles come first if scalars fill whole registers."""
    monkeypatch.setattr(tiles, "spread_cycles", lambda _: 0.0)
    target = parse("llvm -mcpu=x86-64-v2 -threads=1")
    assert target.sum_registers == target.vector_registers - 1
    more = replace(target, vector_registers=17)
    assert product_facts(*extents, target).spills <= 2 < product_facts(*extents, more).spills

"""Inputs that would end LLVM's process raise an error of one sentence: targets, and text from a file."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import autotensor as at
from autotensor import te
from autotensor.base.errors import ArtifactError, CodegenError, TargetError
from autotensor.base.processor_features import FAMILIES
from autotensor.base.target import host, parse
from autotensor.codegen.llvm import build as llvm_build
from autotensor.codegen.llvm.build import build
from autotensor.codegen.llvm.build_child import build_apart
from autotensor.runtime.files import artifact_file as artifacts

EMPTY = "define void @f() {\n  ret void\n}\n"
# Passes the verifier, but no processor has it.
DEADLY = "declare void @llvm.nvvm.barrier0()\n" + EMPTY.replace(
    "ret", "call void @llvm.nvvm.barrier0()\n  ret"
)
x86 = pytest.mark.skipif(not host().triple.startswith("x86_64"), reason="targets of x86-64")


@x86
@pytest.mark.parametrize(
    ("target", "says"),
    [
        (
            "llvm -mcpu=i386",
            "LLVM has no processor 'i386' for x86_64",
        ),
        ("llvm -mcpu=help", "no code for processor 'help'|LLVM has no processor 'help'"),
        ("llvm -mattr=help", "no code for processor '.*' with features 'help'"),
        ("llvm -mattr=+nonsense", "LLVM has no feature '.?nonsense' of "),
        ("llvm -mtriple=wasm32 -mcpu=znver5", "LLVM has no processor 'znver5' for wasm32"),
    ],
)
def test_targets_that_llvm_cannot_compile_for(target: str, says: str) -> None:
    with pytest.raises(TargetError, match=says):
        build(EMPTY, parse(target))


def test_usual_targets_are_known(capfd) -> None:
    """These are not tried in a child, because LLVM would print to standard error."""
    for family, record in FAMILIES.items():
        for name in record.known:
            machine = llvm_build.target_machine(f"{family}-unknown-linux-gnu", name, "", 3)
            assert llvm_build.build_with(machine, llvm_build._SAMPLE).object
    assert capfd.readouterr().err == ""


def test_text_that_ends_llvm_is_a_sentence() -> None:
    here = host()
    with pytest.raises(CodegenError, match=r"^LLVM cannot compile it: LLVM ERROR: Cannot select"):
        build_apart(DEADLY, here.triple, here.arch, here.features)
    with pytest.raises(
        CodegenError, match=r"^LLVM rejects the generated code: LLVM IR parsing error [^\n]*$"
    ):
        build_apart("nonsense", here.triple, here.arch, here.features)
    code, _ = build_apart(EMPTY, here.triple, here.arch, here.features)
    assert code == build(EMPTY, here).object


def test_recompiling_a_file_whose_text_ends_llvm(tmp_path) -> None:
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] * 2.0, name="B")
    f = at.build([A, B])
    path = tmp_path / "f.atm"
    f.save(path)
    assert (at.load(path, recompile=True)(np.ones(8, np.float32)) == 2).all()
    kept = artifacts.load(path)
    for text, says in ((DEADLY, "Cannot select"), ("nonsense", "LLVM IR parsing error")):
        artifacts.save(path, replace(kept, texts={**kept.texts, "llvm": text}))
        with pytest.raises(ArtifactError, match=f"its LLVM text cannot be compiled: .*{says}"):
            at.load(path, recompile=True)
    # compiles, but is not what the file says it is
    artifacts.save(path, replace(kept, texts={**kept.texts, "llvm": EMPTY}))
    with pytest.raises(ArtifactError, match=r"has no function '.*' in its object code"):
        at.load(path, recompile=True)

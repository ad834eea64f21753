"""LLVM text of one processor's files, compiled for another one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autotensor import te
from autotensor.base.target import Target, parse
from autotensor.codegen.llvm.backend import needs
from autotensor.codegen.llvm.build_child import build_apart
from autotensor.codegen.llvm.foreign_text import adapted
from autotensor.compiler import compile_trace
from autotensor.runtime import saved_model
from autotensor.runtime.files import artifact_file
from autotensor.runtime.files.artifact import Artifact
from autotensor.runtime.linking.linker import host_machine
from autotensor.runtime.linking.loader import fits_here
from autotensor.te.dag import ComputeDAG
from schedules.generate import default_trace

pytestmark = pytest.mark.skipif(host_machine() != "x86_64", reason="compiles x86-64 code")
V2, V3, V4 = (parse(f"llvm -mcpu=x86-64-{v} -threads=1") for v in ("v2", "v3", "v4"))
MASKS = "=^Yk,"
N = 43


def made_for(target: Target) -> Artifact:
    """Doubles elements, the last of which do not fill a vector: their load has a mask."""
    A = te.placeholder((N,), name="A")
    dag = ComputeDAG.of([A, te.compute(A.shape, lambda i: A[i] * 2.0, name="B")])
    return compile_trace(dag, default_trace(dag, target), target, name="twice")


@pytest.mark.parametrize("here", [V2, V3, V4], ids=["v2", "v3", "v4"])
@pytest.mark.parametrize("made", [V3, V4], ids=["v3", "v4"])
def test_a_file_of_another_processor_is_right(made: Target, here: Target, tmp_path: Path) -> None:
    artifact = made_for(made)
    assert (MASKS in artifact.texts["llvm"]) is (made is V4)
    assert "@llvm.masked.load" in artifact.texts["llvm"]

    def compiler(text: str) -> tuple[bytes, tuple[str, ...]]:
        text, features = adapted(text, here)
        return build_apart(text, here.triple, here.arch, features)[0], needs(here)

    artifact_file.save(tmp_path / "twice.atm", artifact)
    rebuilt = saved_model.rebuilt(artifact, compiler)
    if not fits_here(rebuilt):
        pytest.skip(f"this processor does not run {here.arch}")
    twice = saved_model.load(tmp_path / "twice.atm", recompile=True, compiler=compiler)
    a = np.arange(N, dtype=np.float32)
    np.testing.assert_array_equal(twice(a), 2 * a)


def test_a_text_without_copies_of_masks_gets_no_registers_of_masks() -> None:
    """LLVM would fold its loads into operations with the same mask."""
    assert adapted(made_for(V3).texts["llvm"], V4)[1].endswith("-avx512f")
    assert adapted(made_for(V4).texts["llvm"], V4) == (made_for(V4).texts["llvm"], V4.features)
    assert adapted("define void @f() { ret void }", V4)[1] == V4.features

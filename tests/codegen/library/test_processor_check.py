"""The features that native code reads from the processor, compared with LLVM's."""

from __future__ import annotations

import ctypes

import llvmlite.binding as llvm
import pytest

from autotensor.base.errors import ArtifactError
from autotensor.codegen.dot_instructions import DOTS
from autotensor.codegen.library.processor_check import ARM, X86, processor_check
from autotensor.codegen.llvm import backend
from autotensor.runtime.linking.linker import host_machine
from autotensor.runtime.native.assembler import assemble
from autotensor.runtime.native.launcher import compiled

KNOWN = X86 if host_machine() == "x86_64" else ARM


def fits(*needs: str) -> bool:
    text = assemble(processor_check(host_machine(), needs), {}, {})
    text = text.replace("define internal i1 @processor_fits", "define i1 @processor_fits")
    asked = ctypes.CFUNCTYPE(ctypes.c_bool)(compiled(text, ("processor_fits",))["processor_fits"])
    return asked()


@pytest.mark.parametrize("name", KNOWN)
def test_each_feature_is_what_llvm_says(name: str) -> None:
    has = dict(llvm.get_host_cpu_features())
    assert fits(name) == has.get(name, False)


def test_all_must_be_there() -> None:
    has = [n for n in KNOWN if fits(n)]
    lacks = [n for n in KNOWN if n not in has]
    assert fits(*has)
    assert fits()
    for name in lacks:
        assert not fits(*has, name)


def test_every_feature_that_code_may_need_is_known() -> None:
    needed = {*backend._NEEDS, *(n for name in DOTS for n in DOTS.get(name).needs)}
    assert needed <= {*X86, *ARM}
    with pytest.raises(ArtifactError, match="no way is known to detect, on a processor, teleport"):
        processor_check("x86_64", ["avx", "teleport"])


def test_of_other_families_nothing_is_asked() -> None:
    assert "asm" not in processor_check("riscv64", ["v"])

"""Limits of a target come from its triple and its processor's name, by LLVM's tables, on whatever machine."""

from __future__ import annotations

import platform
from dataclasses import replace

import llvmlite.binding as llvm
import pytest

from autotensor.base import target as targets
from autotensor.base.errors import TargetError
from autotensor.base.processor_features import FAMILIES, features_named
from autotensor.base.target import Target, features_of, host, parse, switched

AVX512 = {"avx512f", "avx512vl", "avx512bw", "avx512dq", "avx512cd"}
# → processor, bytes and number of vector registers, some features, some that it lacks
STATED = {
    "-mcpu=x86-64": ("x86-64", 16, 16, set(), {"sse4.1", "avx"}),
    "-mcpu=x86-64-v3": ("x86-64-v3", 32, 16, {"avx2", "fma"}, {"avx512f", "avxvnni"}),
    "-mcpu=x86-64-v4": ("x86-64-v4", 64, 32, AVX512, {"avx512vnni"}),
    "-mcpu=cascadelake": ("cascadelake", 64, 32, {"avx512vnni"}, {"avx512bf16"}),
    "-mcpu=alderlake": ("alderlake", 32, 16, {"avxvnni"}, {"avx512f"}),
    "-mcpu=znver5": ("znver5", 64, 32, {"avx512bf16", "avxvnni"}, {"amx-tile"}),
    "-mcpu=sapphirerapids": ("sapphirerapids", 64, 32, {"amx-int8", "amx-bf16"}, set()),
    "-mtriple=x86_64-linux-gnu": ("x86-64", 16, 16, set(), {"avx"}),
    "-mtriple=aarch64-linux-gnu": ("generic", 16, 32, {"neon"}, {"dotprod", "sve"}),
    "-mtriple=arm64-apple-darwin -mcpu=apple-m1": ("apple-m1", 16, 32, {"dotprod"}, {"i8mm", "sve"}),
    "-mcpu=neoverse-n1": ("neoverse-n1", 16, 32, {"dotprod"}, {"i8mm", "bf16", "sve"}),
    "-mcpu=neoverse-n2": ("neoverse-n2", 16, 32, {"i8mm", "bf16", "sve2"}, set()),
    "-mtriple=riscv64": ("generic-rv64", 16, 16, set(), {"v"}),
    "-mcpu=sifive-x280": ("sifive-x280", 16, 32, {"v"}, set()),
    "-mtriple=wasm32": ("generic", 16, 16, set(), {"simd128"}),
}


@pytest.mark.parametrize("options", STATED)
@pytest.mark.parametrize("here", ["this machine", "another one"])
def test_limits_of_stated_processors(options: str, here: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if here == "another one":
        other = Target("llvm", "fancy", "+avx512f,+fancy", host().triple, 1, 64, 32, (1 << 10, 1 << 30))
        monkeypatch.setattr(targets, "host", lambda: other)
    target = parse(f"llvm {options}")
    arch, width, registers, has, lacks = STATED[options]
    assert (target.arch, target.vector_bytes, target.vector_registers) == (arch, width, registers)
    assert target.cache_bytes == Target("llvm").cache_bytes
    assert features_of(target) >= has
    assert not features_of(target) & lacks


@pytest.mark.skipif(platform.system() != "Linux", reason="cpuid's names and LLVM's are one on Linux")
def test_the_tables_agree_with_this_machine() -> None:
    """This machine has the features that LLVM lists for its name. But a hypervisor may hide some, or give
    the name of an older model."""
    family = host().triple.partition("-")[0]
    here = {name for name, has in llvm.get_host_cpu_features().items() if has} & set(FAMILIES[family].asked)
    named = features_named(family, host().arch)
    assert here <= named or named <= here


def test_a_name_that_llvm_does_not_know_has_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    for family in (*FAMILIES, "sparc"):
        for name in ("nonsense", "help", 'a"b'):
            assert features_named(family, name) == frozenset()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("-mcpu=zen9", "LLVM has no processor 'zen9' for .* Use -mcpu=native"),
        ("-mcpu=zen4", "LLVM has no processor 'zen4' for .* Did you mean 'znver4'"),
        ("-mcpu=i386", "LLVM has no processor 'i386' for "),
        ("-mcpu=x86-64-v9", "LLVM has no processor 'x86-64-v9' for "),
        ("-mcpu=neoverse-n99", "LLVM has no processor 'neoverse-n99' for aarch64-unknown-linux-gnu"),
        ("-mcpu=znver4 -mattr=+avx2,+foo", "LLVM has no feature 'foo' of 'znver4' for "),
        ("-mcpu=native -mattr=-foo", "LLVM has no feature 'foo' of "),
        ("-mtriple=foo", "LLVM has no code generator for 'foo'"),
        ("-mtriple=foo -mcpu=znver4", "LLVM has no code generator for 'foo'"),
    ],
)
def test_a_name_that_llvm_does_not_have_is_refused_at_once(
    options: str, says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(TargetError, match=says):
        parse(f"llvm {options}")
    assert capfd.readouterr() == ("", "")


def test_native_of_another_family_is_refused() -> None:
    with pytest.raises(TargetError, match="this machine is no riscv64"):
        parse("llvm -mcpu=native -mtriple=riscv64-linux-gnu")
    assert parse("llvm -mcpu=native") == replace(host())


def test_what_a_stated_list_leaves_out_is_switched_off() -> None:
    """LLVM adds a list of features to those of the name. A list that is given for a processor is complete."""
    text = switched(parse("llvm -mcpu=x86-64-v4 -mattr=+avx2,+fma"))
    assert text.endswith(",+avx2,+fma")
    assert "-avx512f" in text.split(",")
    assert switched(parse("llvm -mcpu=x86-64-v4")) == ""

"""The fingerprint rule: exact, compatible, refused, each with its reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotensor.base.machine import HostMachine
from autotensor.base.target import Target
from schedules.machines import VECTORS, Fit, Verdict, fit, identity

BASE = ("64bit", "sse4.1", "sse4.2", "avx", "avx2", "fma", "f16c", "bmi", "bmi2")
WIDE = (*BASE, "avx512f", "avx512vl", "avx512bw", "avx512dq", "avx512cd", "avx512vnni")
ZEN4 = HostMachine("AMD EPYC (25/17/1)", WIDE, 2, (32 << 10, 1 << 20, 32 << 20))


def target(m: HostMachine, threads: int = 2, arch: str = "znver4", **other: object) -> Target:
    wide = "avx512f" in m.features
    limits = {"vector_bytes": 64 if wide else 32, "vector_registers": 32 if wide else 16, **other}
    features = ",".join(f"+{f}" for f in m.features)
    return Target("llvm", arch, features=features, num_cores=threads, **limits)


def verdict(theirs: HostMachine, ours: HostMachine, **our_target: object) -> Verdict:
    """The answer for a record of two threads of a Zen 4."""
    return fit(theirs, target(theirs), ours, target(ours, **our_target))


@pytest.mark.parametrize(
    "same",
    [
        {},
        {"cpu_model": "AMD EPYC 9R14 (25/17/2)"},  # a hypervisor that tells more, another stepping
        {"features": (*WIDE, "shstk", "clwb")},  # nothing that code may use
    ],
)
def test_the_same_processor_is_exact(same):
    assert verdict(ZEN4, replace(ZEN4, **same)) == Verdict(Fit.EXACT)


@pytest.mark.parametrize(
    ("other", "our_target", "reason"),
    [
        ({"cpu_model": "AMD Ryzen (25/97/2)"}, {}, "measured on AMD EPYC (25/17/1)"),
        ({"cpu_model": "AMD EPYC"}, {}, "measured on AMD EPYC (25/17/1)"),
        ({"features": (*WIDE, "avx512bf16")}, {}, "measured on AMD EPYC (25/17/1) with other features"),
        ({"caches": (48 << 10, 2 << 20, 1 << 30)}, {}, "measured on AMD EPYC (25/17/1) with other caches"),
        ({"cores": 4}, {}, "measured on 2 cores, not 4"),
        ({}, {"threads": 1}, "measured with 2 threads, not 1"),
        ({}, {"arch": "x86-64-v4"}, "measured as llvm/znver4/v64/t2, not llvm/x86-64-v4/v64/t2"),
    ],
)
def test_what_is_like_it_is_compatible(other, our_target, reason):
    assert verdict(ZEN4, replace(ZEN4, **other), **our_target) == Verdict(Fit.COMPATIBLE, reason)


@pytest.mark.parametrize(
    ("other", "our_target", "reason"),
    [
        ({"features": BASE}, {}, "made for vectors of 64 bytes, not 32"),
        ({}, {"vector_registers": 16}, "made for 32 registers, not 16"),
        ({}, {"numerics": "strict"}, "made for fast numerics, not strict"),
        ({"features": tuple(f for f in WIDE if f != "fma")}, {}, "made for a processor with fma"),
        ({"caches": (32 << 10, 256 << 10)}, {}, "made for an L2 cache of 1024 KiB, not 256 KiB"),
        ({"caches": (128 << 10, 1 << 20)}, {}, "made for an L1 cache of 32 KiB, not 128 KiB"),
    ],
)
def test_what_is_unlike_is_refused(other, our_target, reason):
    assert verdict(ZEN4, replace(ZEN4, **other), **our_target) == Verdict(Fit.REFUSED, reason)


def test_another_kind_of_device_is_refused():
    gpu = replace(target(ZEN4), kind="cuda")
    assert fit(ZEN4, target(ZEN4), ZEN4, gpu) == Verdict(Fit.REFUSED, "made for llvm, not cuda")


def test_a_wider_processor_may_measure_what_a_narrower_one_found():
    """This machine has everything that the record's machine had. Only the target says how wide the code
    is."""
    narrow = replace(ZEN4, features=BASE, cpu_model="AMD EPYC (25/1/1)")
    found = verdict(narrow, ZEN4, vector_bytes=32, vector_registers=16)
    assert found == Verdict(Fit.COMPATIBLE, "measured on AMD EPYC (25/1/1)")


def test_identity_is_what_exact_asks_of_machines():
    assert identity(replace(ZEN4, cpu_model="X (25/17/9)", features=(*WIDE, "shstk"))) == identity(ZEN4)
    for other in ({"cores": 1}, {"caches": (1,)}, {"cpu_model": "X"}, {"features": BASE}):
        assert identity(replace(ZEN4, **other)) != identity(ZEN4)


def test_vectors_are_features_that_code_may_use():
    """A name that `needs` does not know would be missing everywhere."""
    from autotensor.codegen.llvm.backend import needs

    everything = Target("llvm", features=",".join(f"+{f}" for f in VECTORS))
    assert set(needs(everything)) == VECTORS

"""The functions whose libraries are tested."""

from __future__ import annotations

import pytest

import autotensor as at
from autotensor import te
from autotensor.runtime.linking.linker import host_machine
from autotensor.runtime.module import Module


@pytest.fixture(scope="session")
def meeting() -> Module:
    """Three parallel kernels. Each reads values that other threads have written, so all threads must wait in
    between."""
    return built("llvm -threads=2")


@pytest.fixture(scope="session")
def meeting_of_avx2() -> Module:
    """The same without AVX-512, which valgrind does not know."""
    return built(f"llvm{' -mcpu=haswell' if host_machine() == 'x86_64' else ''} -threads=2")


def built(target: str) -> Module:
    a, b = te.placeholder((16, 24), name="A"), te.placeholder((24, 20), name="B")
    k = te.reduce_axis(24, name="k")
    d = te.compute((16, 20), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="D")
    e = te.compute((16, 20), lambda i, j: te.exp(d[i, j]), name="E")
    f = te.compute((16, 20), lambda i, j: e[i, j] + e[15 - i, j], name="F")
    s = te.create_schedule(f)
    for stage in (d, e, f):
        s[stage].parallel("i")
    found = at.build(s, [a, b, f], target=target, name="meeting")
    assert isinstance(found, Module)
    return found

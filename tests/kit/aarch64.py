"""Runs kernels and models for aarch64 on this machine: as C libraries, linked by a cross compiler, under
qemu-user.

    artifact ─▶ library of `prepare` ─▶ qemu ─▶ prepared weights ─▶ library of `entry` ─▶ qemu ─▶ outputs

Debian's packages: gcc-aarch64-linux-gnu, libc6-dev-arm64-cross, qemu-user. Without them, tests are skipped;
`.ci/run` counts this as a failure.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from c_programs import caller, ran

from autotensor.base.dtype import dtype_of
from autotensor.codegen.library.write import write_library
from autotensor.runtime.files.artifact import ArgSpec, Artifact

Array = np.ndarray[Any, np.dtype[Any]]

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
MISSING = [name for name in (COMPILER, EMULATOR) if not shutil.which(name)]
needs_qemu = pytest.mark.skipif(bool(MISSING), reason=f"for qemu's tests {' and '.join(MISSING)} is missing")


def program(artifact: Artifact, folder: Path) -> Path:
    """caller.c with the artifact's library."""
    write_library(artifact, folder, "f")
    return caller(folder, "f", "-static", compiler=COMPILER)


def run(artifact: Artifact, folder: Path, inputs: Sequence[Array], cpu: str, threads: int = 2) -> list[Array]:
    """The outputs of an artifact without constants, or with values for the arrays that its entry reads."""
    files = [folder / f"in{n}" for n in range(len(inputs))]
    for file, array in zip(files, inputs, strict=True):
        array.tofile(file)
    outputs = artifact.role("output")
    results = [folder / f"out{n}" for n in range(len(outputs))]
    weights = folder / "f.weights"
    ran([EMULATOR, "-cpu", cpu, str(program(artifact, folder))], "run", weights, threads, 0, *files, *results)
    return [
        np.fromfile(file, dtype_of(spec.dtype).numpy).reshape(spec.shape)
        for file, spec in zip(results, outputs, strict=True)
    ]


def prepared(artifact: Artifact, folder: Path, cpu: str) -> Artifact:
    """The artifact with values for the arrays that its entry reads. `prepare` runs as a library of its own:
    its inputs are the constants, and its outputs are the prepared arrays."""
    if artifact.prepare is None:
        return artifact
    roles = {"constant": "input", "prepared": "output", "input": "workspace", "output": "workspace"}

    def as_library(spec: ArgSpec) -> ArgSpec:
        return replace(spec, role=roles.get(spec.role, spec.role))

    library = replace(
        artifact, entry=artifact.prepare, prepare=None, args=tuple(map(as_library, artifact.args)), values={}
    )
    constants = [artifact.values[spec.name] for spec in artifact.role("constant")]
    made = run(library, folder, constants, cpu)
    names = [spec.name for spec in artifact.role("prepared")]
    return replace(artifact, values={**artifact.values, **dict(zip(names, made, strict=True))})

"""Kernel source with a host: a program that runs by itself and computes the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotensor import te
from autotensor.base.target import parse
from autotensor.codegen.c import nvrtc
from autotensor.compiler import compile_trace
from autotensor.insight.standalone_program import harness
from autotensor.te.dag import ComputeDAG
from schedules.generate import default_trace


def program(kind: str) -> str:
    x = te.placeholder((100,), name="x")
    dag = ComputeDAG.of([x, te.compute((100,), lambda i: x[i] * 0.0 + 3.0, name="y")])
    target = parse(kind)
    return harness(compile_trace(dag, default_trace(dag, target), target, "three"))


@pytest.mark.parametrize("kind", ["opencl", "cuda"])
def test_it_is_python_with_the_kernel_inside(kind: str) -> None:
    text = program(kind)
    compile(text, "harness.py", "exec")
    assert "SOURCE" in text
    assert ("__kernel void" if kind == "opencl" else "__global__ void") in text
    assert "autotensor" not in text


@pytest.mark.opencl
def test_it_runs_without_us(tmp_path: Path) -> None:
    file = tmp_path / "harness.py"
    # what PoCL needs on a processor that its LLVM does not know is in autotensor only
    trial = "from autotensor.runtime.device.devices import open_device; open_device('opencl')\n"
    file.write_text(trial + program("opencl"))
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "y (100,) float32 [3. 3. 3. 3. 3. 3. 3. 3.]" in done.stdout


@pytest.mark.skipif(nvrtc.library() is None, reason=f"NVRTC is not installed. {nvrtc.INSTALL}.")
def test_it_runs_on_a_card_of_numpy(tmp_path: Path) -> None:
    """The stand-in takes what CuPy's wheels take."""
    file = tmp_path / "harness.py"
    file.write_text(program("cuda"))
    root = Path(__file__).parents[2]
    folders = [root / "benchmarks" / "simulated_card" / "stand_in", root / "benchmarks", root]
    path = os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, str(file)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    assert "y (100,) float32 [3. 3. 3. 3. 3. 3. 3. 3.]" in done.stdout

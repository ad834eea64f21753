"""runtime/device/cuda.py against CuPy 13 and 14: each call it makes binds to the wheel's own parameters.

    cuda.py ──runs on──▶ the stand-in, all its calls ──has no parameter that is not──▶ in CuPy's wheels

cupy-13.json and cupy-14.json are what benchmarks/simulated_card/cupy_facts.py says of the wheels; where a
CuPy is installed they are held against it. CUPY_PYTHONS may name interpreters that have one.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from gpu_cases import CASES

from autotensor.base.target import parse
from autotensor.codegen.c import nvrtc
from autotensor.compiler import compile_state
from autotensor.runtime.device.nvrtc_library import OPTIONS

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
FACTS = ROOT / "benchmarks" / "simulated_card" / "cupy_facts.py"
CUDA = ROOT / "autotensor" / "runtime" / "device" / "cuda.py"
WHEELS = {n: json.loads((HERE / f"cupy-{n}.json").read_text()) for n in (13, 14)}
STAND_IN = [str(ROOT / "benchmarks" / "simulated_card" / "stand_in"), str(ROOT / "benchmarks")]
INTERPRETERS = [p for p in os.environ.get("CUPY_PYTHONS", "").split(os.pathsep) if p]
ONLY_VALUES = {"ndarray.__getitem__", "ndarray.__setitem__"}  # operators, whose parameters are never named
needs_nvrtc = pytest.mark.skipif(nvrtc.library() is None, reason=f"NVRTC is not installed. {nvrtc.INSTALL}.")

WRONG_CALLS = (
    "shared_mem=call=>shared_memory=call",
    "Stream(non_blocking=True)=>Stream(nonblocking=True)",
    "get(self._stream, out=into=>get(self._stream, into=into",
    'createProgram(source, "kernels.cu", (), ())=>createProgram(source, "kernels.cu")',
    "module.load(binary)=>module.load_data(binary)",
    "ATTRIBUTE_NUM_REGS, kernel.ptr)=>ATTRIBUTE_NUM_REGS, kernel)",
    "funcSetAttribute(kernel.ptr, wanted=>funcSetAttribute(wanted, kernel.ptr",
    "*nvrtc_library.OPTIONS)\n        program=>'--ftz=true')\n        program",
    "begin_capture()=>start_capture()",
    'p["sharedMemPerBlockOptin"]=>p["sharedMemoryPerBlockOptin"]',
    "kernel(call.grid, call.block, call.memories=>kernel(call.grid, call.block, list(call.memories)",
    "first.record(self._stream)=>first.record(stream_=self._stream)",
    "cuda.get_elapsed_time(first, last)=>cuda.elapsed_time(first, last)",
)


def child(*command: str, stand_in: bool = True, **more: str) -> subprocess.CompletedProcess[str]:
    path = [*(STAND_IN if stand_in else []), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), **more}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def stand_in() -> dict[str, Any]:
    done = child(sys.executable, str(FACTS))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["names"]
    return found


@pytest.mark.parametrize("wheel", WHEELS)
def test_the_stand_in_takes_nothing_that_cupy_does_not(wheel: int, stand_in: dict[str, Any]) -> None:
    real = WHEELS[wheel]["names"]
    assert {
        n: differences(n, own, real[n]) for n, own in stand_in.items() if differences(n, own, real[n])
    } == {}


def differences(name: str, own: dict[str, Any] | None, real: dict[str, Any] | None) -> str:
    """Why a call that fits the stand-in might not fit CuPy; "" if it fits."""
    if own is None or real is None or own["kind"] != real["kind"]:
        return f"{own} is {real}"
    if own["kind"] != "callable" or name in ONLY_VALUES:
        return ""
    theirs = [tuple(p) for p in real["parameters"]]
    loose = any(kind == "var_keyword" for _, kind in theirs)
    for n, (parameter, kind) in enumerate(map(tuple, own["parameters"])):
        if kind == "keyword_only" and (loose or parameter in {p for p, _ in theirs}):
            continue
        if kind in ("var_positional", "var_keyword") or (n < len(theirs) and theirs[n] == (parameter, kind)):
            continue
        return f"{parameter} ({kind}) of {own['parameters']} is not in {theirs}"
    return ""


def test_a_parameter_that_cupy_lacks_is_seen() -> None:
    real = WHEELS[14]["names"]["cuda.Stream"]
    own = {
        "kind": "callable",
        "parameters": [["null", "positional_or_keyword"], ["nonblocking", "keyword_only"]],
    }
    assert "nonblocking" in differences("cuda.Stream", own, real)


@needs_nvrtc
def test_every_call_is_made_and_binds() -> None:
    """The tests that need a card, and each error, on the stand-in: no line with a call is left out."""
    done = child(sys.executable, str(HERE / "exercise_cuda.py"))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    ran = set(json.loads(done.stdout.splitlines()[-1]))
    calls = {n.lineno for n in ast.walk(ast.parse(CUDA.read_text())) if isinstance(n, ast.Call)}
    missed = {n: CUDA.read_text().splitlines()[n - 1].strip() for n in sorted(calls - ran)}
    allowed = [line for line in missed.values() if not is_only_told_elsewhere(line)]
    assert not allowed, allowed


def is_only_told_elsewhere(line: str) -> bool:
    """Decorators, which ran at import, and the messages of a missing package and of no card at all."""
    return "TargetError(" in line or line.startswith("@")


@needs_nvrtc
@pytest.mark.parametrize(
    "change", [pytest.param(c, marks=[pytest.mark.slow] * (n > 1)) for n, c in enumerate(WRONG_CALLS)]
)
@pytest.mark.sample(1)
def test_a_wrong_call_is_found(change: str) -> None:
    done = child(sys.executable, str(HERE / "exercise_cuda.py"), change)
    assert done.returncode != 0
    assert "is not in cuda.py" not in done.stderr, change


@pytest.mark.parametrize("extra", ["cuda12x", "cuda13x"])
def test_whoever_installs_cupy_gets_a_compiler(extra: str) -> None:
    """A machine with a card has its driver, and as a rule nothing else."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        needed = tomllib.load(file)["project"]["optional-dependencies"][extra]
    assert [part for part in ("cupy", "nvrtc", "runtime") if not any(part in n for n in needed)] == []


@pytest.mark.skipif(not INTERPRETERS, reason="CUPY_PYTHONS names no interpreter with CuPy")
@pytest.mark.parametrize("python", INTERPRETERS)
def test_what_is_written_down_of_the_wheel_is_true(python: str, tmp_path: Path) -> None:
    """All sources of the tests compile by CuPy's names for NVRTC, too."""
    files = []
    for name in CASES:
        files.append(tmp_path / f"{name}.cu")
        files[-1].write_bytes(compile_state(CASES[name]().state, parse("cuda -arch=sm_80"), name).objects[0])
    options = {"CUDA_OPTIONS": json.dumps(OPTIONS)}
    done = child(python, str(FACTS), *map(str, files), stand_in=False, **options)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["names"] == WHEELS[int(found["version"].split(".")[0])]["names"]
    assert found["raw_module_adds"] == ["-ftz=true"], "why cuda.py compiles with options of its own"
    assert found["refused"] == {}

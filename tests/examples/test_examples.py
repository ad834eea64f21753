"""Every example runs, checks its own answers, and prints a schedule, loops and a timing.

Small sizes, few trials, one log.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from entry_points import declared

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = {
    "00_first_taste": ["--points", "100"],
    "01_vector_add": ["--size", "1000"],
    "02_gemm_by_hand": ["--size", "100", "--threads", "2"],
    "03_tune_gemm": ["--size", "50", "--trials", "3"],
    "04_new_operator": ["--size", "8", "--channels", "16", "--trials", "3"],
    "05_own_model": ["--size", "8", "--channels", "8", "--trials", "4"],
    "06_load_and_serve": ["--clients", "4", "--calls", "20"],
    "07_lecture": ["--size", "32"],
    "08_argmax_rfactor": ["--size", "10007"],
    "09_train": ["--steps", "50", "--rows", "32"],
    "12_c_program": [],
}
EXTRAS = {"10_onnx_model": "onnx", "11_torch_compile": "torch"}  # what an example needs
WITH_EXTRAS: dict[str, list[str]] = {
    "10_onnx_model": [],
    "11_torch_compile": ["--trials", "2", "--width", "8"],
}
NAIVE = """\
for y in range(1024):
  for x in range(1024):
    C[y][x] = 0
    for k in range(1024):
      C[y][x] += A[k][y] * B[k][x]
"""
TILED = """\
for yo in range(128):
  for xo in range(128):
    C[yo*8:yo*8+8][xo*8:xo*8+8] = 0
    for ko in range(128):
      for yi in range(8):
        for xi in range(8):
          for ki in range(8):
            C[yo*8+yi][xo*8+xi] += A[ko*8+ki][yo*8+yi] * B[ko*8+ki][xo*8+xi]
"""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One log for all examples: the machine's rates are measured once."""
    return tmp_path_factory.mktemp("log") / "tuning.db"


def run(name: str, log: Path, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *(SMALL | WITH_EXTRAS)[name]],
        cwd=folder,
        env={
            **os.environ,
            **(declared(folder) if name in WITH_EXTRAS else {}),
            "AUTOTENSOR_DB": str(log),
            "PYTHONWARNINGS": "error",
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize(
    "name", [*SMALL, *(pytest.param(n, marks=getattr(pytest.mark, EXTRAS[n])) for n in WITH_EXTRAS)]
)
def test_example(name: str, log: Path, tmp_path: Path) -> None:
    printed = run(name, log, tmp_path)
    assert "schedule" in printed
    assert "time: " in printed
    assert any(word in printed for word in ("loops:", "graph:", "kernels:", "tiled:"))
    if name == "07_lecture":
        assert f"naive:\n{NAIVE}" in printed
        assert f"tiled:\n{TILED}" in printed


def needed(example: Path) -> list[str]:
    """The packages that an example imports, and that a plain installation lacks."""
    nodes = list(ast.walk(ast.parse(example.read_text("utf-8"))))
    names = [a.name for n in nodes if isinstance(n, ast.Import) for a in n.names]
    names += [n.module or "" for n in nodes if isinstance(n, ast.ImportFrom)]
    always = {*sys.stdlib_module_names, "numpy", "autotensor"}
    return sorted({n.partition(".")[0] for n in names} - always)


MISSING = [(p, name) for p in sorted(EXAMPLES.rglob("*.py")) for name in needed(p)]


@pytest.mark.parametrize(("example", "package"), MISSING, ids=lambda x: getattr(x, "stem", x))
def test_a_missing_package_is_named_with_its_installation(
    example: Path, package: str, tmp_path: Path
) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")  # read by generate_text only
    tokenizer = ["--tokenizer", str(tmp_path / "tokenizer.json")] * (package == "tokenizers")
    words = [str(example), *tokenizer]
    blocked = f"import runpy, sys; sys.modules[{package!r}] = None; sys.argv = {words}; "
    done = subprocess.run(
        [sys.executable, "-c", f"{blocked}runpy.run_path({str(example)!r}, run_name='__main__')"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    # an example may need two packages, and name the one that is missing first
    assert re.fullmatch(r".* needs the package \w+: pip install .*\.\n", done.stderr), done.stderr


def test_every_example_is_run() -> None:
    assert set(SMALL | WITH_EXTRAS) == {p.stem for p in EXAMPLES.glob("[0-9]*.py")}

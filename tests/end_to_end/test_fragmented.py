"""Code is loaded into any free space, however arrays and libraries have divided the address space."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import autotensor as at
from autotensor.models import MODELS

ROOT = Path(__file__).parents[2]
HOLES = (4, 8, 16)  # KiB
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reserves as Linux does")

KERNEL = """
import numpy as np, autotensor as at
from autotensor import te
A = te.placeholder((1000,), name="A")
body = lambda i: sum((te.tanh(A[i] * float(n)) for n in range(1, 120)), te.sigmoid(A[i]))
B = te.compute((1000,), body, name="B")
def check(f):
    a = np.full(1000, 0.1, "float32")
    want = np.tanh(0.1 * np.arange(1, 120)).sum() + 1 / (1 + np.exp(-0.1))
    np.testing.assert_allclose(f(a), np.full(1000, want), rtol=1e-4)
"""
BUILT = (
    KERNEL
    + """
from autotensor.runtime.linking import elf
f = at.build(te.create_schedule(B), [A, B])
(code,) = [s.size for s in elf.read(f.artifact.objects[0]).sections.values() if s.is_code]
assert code > 16 << 10, code  # fits no hole, as its constants do
check(f)
"""
)
TUNED = (
    KERNEL
    + """
import sys
at.tune([A, B], trials=8, db=sys.argv[1], progress=False)
check(at.build([A, B], db=sys.argv[1]))
"""
)
LOADED = """
import sys, numpy as np, autotensor as at
from autotensor.runtime.sample_arrays import sample_inputs
f = at.load(sys.argv[1])
assert len(f.artifact.objects) >= {least}, len(f.artifact.objects)
assert np.isfinite(f(*sample_inputs(f.args, f.artifact.index_range))).all()
"""
MODEL = """
import sys, autotensor as at
from autotensor.models import MODELS
at.compile_model(MODELS.get("{name}").build(), db=":memory:", trials={trials}).save(sys.argv[1])
"""


def in_pieces(code: str, holes: int, *args: str, beside: str = "", timeout_s: float = 300) -> None:
    """Runs `code` in a child whose address space has nothing but small holes within 3 GB.

    beside: modules that it has imported before.
    """
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "kit"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "fragments", str(holes), beside, code, *args],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=timeout_s,
    )  # fmt: skip
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    """The file of a network by its name, compiled once."""
    folder = tmp_path_factory.mktemp("networks")

    def compiled(name: str) -> str:
        path = folder / f"{name}.atm"
        if not path.exists():
            at.compile_model(MODELS.get(name).build(), db=":memory:").save(path)
        return str(path)

    return compiled


@pytest.mark.parametrize("holes", HOLES)
@pytest.mark.sample(1)
def test_one_kernel(holes: int) -> None:
    in_pieces(BUILT, holes)


@pytest.mark.parametrize("holes", HOLES)
@pytest.mark.sample(1)
def test_a_saved_network(holes: int, networks) -> None:
    in_pieces(LOADED.format(least=5), holes, networks("small_cnn"))


@pytest.mark.torch
@pytest.mark.parametrize("holes", HOLES)
def test_beside_torch_and_jax(holes: int, networks) -> None:
    """The default build of torch maps 3 GB of libraries."""
    pytest.importorskip("torch")
    beside = "torch,jax.numpy" if importlib.util.find_spec("jax") else "torch"
    in_pieces(BUILT, holes, beside=beside)
    in_pieces(LOADED.format(least=5), holes, networks("small_cnn"), beside=beside)


@pytest.mark.slow
@pytest.mark.parametrize("holes", HOLES)
@pytest.mark.parametrize(("name", "least"), [("mobilenet_v2", 20), ("resnet50", 20)])
def test_a_large_saved_network(holes: int, name: str, least: int, networks) -> None:
    in_pieces(LOADED.format(least=least), holes, networks(name))


@pytest.mark.slow
@pytest.mark.parametrize("holes", HOLES)
def test_tuning_a_kernel(holes: int, tmp_path: Path) -> None:
    in_pieces(TUNED, holes, str(tmp_path / "log.db"))


@pytest.mark.slow
@pytest.mark.parametrize("holes", HOLES)
def test_tuning_a_model(holes: int, tmp_path: Path) -> None:
    in_pieces(MODEL.format(name="small_cnn", trials=64), holes, str(tmp_path / "m.atm"), timeout_s=500)

"""The modules that `import autotensor`, and loading and running a model, import."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import autotensor as at
from autotensor.models import MODELS

HEAVY = {
    "xgboost", "sqlalchemy", "alembic", "torch", "onnx", "typer", "click", "rich", "tqdm", "psutil",
    "msgspec", "scipy", "platformdirs", "filelock", "safetensors", "cupy", "pyopencl", "distributed", "PIL",
    "pandas", "sklearn",
}  # fmt: skip
ABOVE = ("autotensor.te", "autotensor.search", "autotensor.graph", "schedules", "tuning_db")


def modules_after(code: str) -> set[str]:
    """Names of all modules of a fresh process after running `code`."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys, json; print(json.dumps(list(sys.modules)))"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def atm(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "small_cnn.atm"
    at.compile_model(MODELS.get("small_cnn").build(), db=":memory:").save(path)
    return path


def test_import_is_light():
    loaded = modules_after("import autotensor")
    assert not loaded & (HEAVY | {"numpy", "llvmlite"})
    assert not {m for m in loaded if m.startswith(ABOVE)}


def test_te_needs_no_database_and_no_search():
    loaded = modules_after(
        "import autotensor as at; from autotensor import te; at.create_schedule; at.lower; at.Target"
    )
    assert not loaded & HEAVY


def test_inference_needs_numpy_and_llvmlite_only(atm):
    code = (
        "import autotensor as at, numpy as np\n"
        f"m = at.load({str(atm)!r})\n"
        "assert m(np.zeros((1, 1, 8, 8), 'float32')).shape == (1, 10)"
    )
    loaded = modules_after(code)
    assert {"numpy", "llvmlite"} <= loaded
    assert not loaded & HEAVY
    assert not {m for m in loaded if m.startswith(ABOVE)}
    standard = set(sys.stdlib_module_names) | {"numpy", "llvmlite", "autotensor", "ml_dtypes", "__main__"}
    standard |= {"sitecustomize", "usercustomize"}  # what a distribution runs at every start of Python
    assert not {r for r in (m.split(".")[0] for m in loaded) if r not in standard and not r.startswith("_")}


def test_loaded_model_answers(atm):
    x = np.random.default_rng(0).random((1, 1, 8, 8), dtype=np.float32)
    expected = at.compile_model(MODELS.get("small_cnn").build(), db=":memory:")(x)
    np.testing.assert_array_equal(at.load(atm)(x), expected)

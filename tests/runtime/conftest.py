"""Lets the tests of this folder share `runtime_kernels`; importlib mode adds no folder to the path."""

import shutil
import sys
from pathlib import Path

import pytest

from autotensor.runtime.native import threads

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def libgomp(tmp_path: Path) -> str:
    """An OpenMP runtime that is not xgboost's, though a copy of it."""
    return str(shutil.copy(threads.xgboost_openmp()[0], tmp_path / "libgomp.so.1"))

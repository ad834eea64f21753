"""The tests of this folder share `runtime_kernels` and more, and kernels of `native/test_threads`."""

import shutil
import sys
from pathlib import Path

import pytest

from autotensor.runtime.native import threads

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "native")]


@pytest.fixture
def libgomp(tmp_path: Path) -> str:
    """An OpenMP runtime that is not xgboost's, though a copy of it."""
    return str(shutil.copy(threads.xgboost_openmp()[0], tmp_path / "libgomp.so.1"))

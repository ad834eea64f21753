"""Lets the tests of this folder share their helpers; importlib mode adds no folder to the path."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True, scope="module")
def _own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Each module has a cache of its own, and no other process makes it wait for the timing lock."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOTENSOR_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        folder = str(tmp_path_factory.mktemp("tmp"))  # the timing lock is there
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", folder)
        yield

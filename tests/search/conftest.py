"""Lets the tests of this folder share their helpers; importlib mode adds no folder to the path. No test uses the person's cache."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOTENSOR_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield

"""Shared by all tests: goldens, a log for one test, and a path to the helpers in `kit`."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from postgres_server import Server

HERE = Path(__file__).parent
sys.path += [folder for folder in (str(HERE / "kit"), str(HERE)) if folder not in sys.path]

# Shipped schedules have an effect only on machines like those on which they were measured. Tests of shipped
# schedules turn them on.
os.environ["AUTOTENSOR_NO_SHIPPED"] = "1"
os.environ["AUTOTENSOR_STRICT"] = "1"  # a rule that fails is a failure here; a user's model runs without it
os.unsetenv("COLUMNS")  # readline, which pytest imports, sets it behind os.environ: messages would be folded
os.environ.pop("COLUMNS", None)  # as in the workers of pytest-xdist, which inherit it
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each child process would compile all modules again

# The timing lock is a file in the folder for temporary files; workers that shared it would wait for it.
if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    folder = tempfile.mkdtemp(prefix=f"{worker}-")  # short: paths of sockets have at most 107 characters
    os.chmod(folder, 0o1777)  # as /tmp: servers run as another user
    os.environ["TMPDIR"] = tempfile.tempdir = folder

# A busy machine is slow at anything, at making up inputs too.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

Golden = Callable[[str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files instead of comparing"
    )


def pytest_unconfigure(config: pytest.Config) -> None:
    if worker:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)  # before the other markers' tests are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """CI's second run takes the files that say `mark.opencl`: each test with that mark has to be in one."""
    files = {item.path for item in items if item.get_closest_marker("opencl")}
    if hidden := [file for file in files if "mark.opencl" not in file.read_text()]:
        raise pytest.UsageError(
            f"the tests of {hidden} are marked opencl elsewhere; .ci/run would miss them."
        )
    for item in beyond_samples(items):
        item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    gc.freeze()  # modules and tests live to the end: a collection of garbage, 3 s with them, leaves them out


def beyond_samples(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """The cases of tests marked `sample(n)` but n of each.

    Checksums of the cases' names choose the n: they do not follow the order of one parameter.
    """
    families: dict[tuple[Path, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sample"):
            families[item.path, getattr(item, "originalname", item.name)].append(item)
    for family in families.values():
        mark = family[0].get_closest_marker("sample")
        assert mark is not None
        yield from sorted(family, key=lambda item: crc32(item.name.encode()))[mark.args[0] :]


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A PostgreSQL server; each test that uses it empties it first."""
    from postgres_server import running

    with running() as found:
        yield found


@pytest.fixture
def own_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Schedules must not change between two compilations because another process is tuning."""
    monkeypatch.setenv("AUTOTENSOR_DB", str(tmp_path / "tuning.db"))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares a text with tests/golden/<the test's path>/<the test's name>.txt."""
    module = Path(str(request.node.path)).relative_to(HERE).with_suffix("")
    name = request.node.name.replace("[", "-").replace("]", "").replace("/", "_")
    file = HERE / "golden" / module / f"{name}.txt"

    def compare(text: str) -> None:
        text = text.rstrip("\n") + "\n"
        if request.config.getoption("--update-golden"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            return
        if not file.exists():
            pytest.fail(f"{file} does not exist; run pytest with --update-golden and read what it writes.")
        assert text == file.read_text(), f"differs from {file}"

    return compare

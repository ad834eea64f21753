"""The documentation is true: its code runs and prints what the page says, its links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from entry_points import declared

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXTRAS = {"pytorch": "torch", "onnx": "onnx"}  # page → marker
TEXTS = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]


def runnable(page: Path) -> object:
    """Pages about an extra are run where it is tested."""
    marks = [getattr(pytest.mark, EXTRAS[page.stem])] if page.stem in EXTRAS else []
    return pytest.param(page, marks=marks, id=page.stem)


@pytest.mark.parametrize("page", [runnable(p) for p in PAGES])
def test_code_of_the_page(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    entries = declared(tmp_path) if page.stem in EXTRAS else {}
    environment = {
        **os.environ,
        **entries,
        "AUTOTENSOR_DB": str(tmp_path / "tuning.db"),
        "PYTHONWARNINGS": "error",
    }
    update = ["--update"] if request.config.getoption("--update-golden") else []
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("run_page.py")), str(page), *update],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,  # the only time-out is pytest's, which `--timeout` sets for a busy machine
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", TEXTS, ids=lambda p: p.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", TEXTS, ids=lambda p: p.stem)
def test_files_that_are_named_exist(page: Path) -> None:
    """Paths in backticks below our own folders; those that a page would add are announced."""
    ours = r"`((?:autotensor|schedules|tuning_db|tests|examples|benchmarks|docs)/[\w/.-]+\.(?:py|md|json))`"
    new = set(re.findall(r"<!-- new: (\S+) -->", page.read_text()))
    for name in re.findall(ours, page.read_text()):
        assert name in new or (ROOT / name).exists(), f"{page.name} names {name}"


def test_the_index_lists_every_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "index.md" or f"({page.name})" in index, f"{page.name} is not listed"

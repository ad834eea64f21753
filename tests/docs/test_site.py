"""The site: what is made from the code is complete, and every written page has its place."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

import autotensor as at
from autotensor import te
from autotensor.cli.main import VERBS

ROOT = Path(__file__).parents[2]


@pytest.fixture
def generated(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "site"))
    return importlib.import_module("generated_pages")


def test_every_public_name_has_a_docstring(generated: ModuleType) -> None:
    names = generated.public_names()
    assert {f"te.{n}" for n in te.__all__} <= names.keys()
    assert {f"at.{n}" for n in at.__all__} - names.keys() == {"at.te", "at.ops", "at.__version__"}
    for name, value in names.items():
        made = dataclasses.is_dataclass(value) and (value.__doc__ or "").startswith(f"{value.__name__}(")
        assert inspect.getdoc(value), f"{name} has no docstring"
        assert not made, f"{name} has no docstring but a signature"


def test_every_public_name_is_in_the_reference(generated: ModuleType) -> None:
    heads = re.findall(r"^## (\S+)$", generated.reference(), re.MULTILINE)
    assert heads == list(generated.public_names())


def test_every_verb_has_its_help(generated: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generated, "_run", lambda words: " ".join(words))
    page = generated.commands()
    for verb in VERBS:
        assert f"## autotensor {verb}\n" in page
        assert f"{verb} --help" in page


def test_every_dependency_has_a_licence(generated: ModuleType) -> None:
    page = generated.licences(ROOT)
    assert "| numpy | " in page
    assert "see its files" not in page


def test_every_page_is_in_the_menu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "site"))
    build = importlib.import_module("build_site")
    written = {page.stem for page in (ROOT / "docs").glob("*.md")}
    placed = [name for names in build.PARTS.values() for name in names.split()]
    assert sorted(placed) == sorted(written - {"index"})

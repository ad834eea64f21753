"""Doors: parts that other packages bring by entry points, and every mistake that they can make."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from entry_points import installed

from autotensor.base.doors import Door, name_of
from autotensor.base.errors import InputError

TEA = "from collections import OrderedDict as assam\nnumber = 7\n"
GROUP = "autotensor.teas"
TEAS: Door[type] = Door(
    "tea", GROUP, lambda thing: isinstance(thing, type), {"fennel": "collections:Counter"}
)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package that brings teas; some of them are not teas."""
    (tmp_path / "tea_shop.py").write_text(TEA)
    (tmp_path / "burnt_tea.py").write_text("1 / 0")
    names = {
        "assam": "tea_shop:assam",
        "fennel": "tea_shop:number",
        "seven": "tea_shop:number",
        "burnt": "burnt_tea:any",
        "none": "tea_shop:ceylon",
    }
    monkeypatch.syspath_prepend(str(installed(tmp_path, "tea-shop", {GROUP: names})))
    yield tmp_path
    sys.modules.pop("tea_shop", None)


def test_names_cost_no_import(shop: Path) -> None:
    assert TEAS.names() == ("assam", "burnt", "fennel", "none", "seven")
    TEAS.known("seven")
    assert TEAS.modules() == ("burnt_tea", "tea_shop")
    assert "tea_shop" not in sys.modules


def test_things_by_name_and_as_they_are(shop: Path) -> None:
    assert TEAS.get("assam").__name__ == "OrderedDict"
    assert TEAS.get("fennel").__name__ == "Counter", "what is ours stays ours"
    assert TEAS.get(dict) is dict
    assert TEAS.find("oolong") is None


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("asam", "tea 'asam' is unknown. Did you mean 'assam'? Known: assam, burnt, fennel, none, seven."),
        ("seven", "entry point 'seven' of autotensor.teas gives 7, not a tea. docs/extend.md shows one."),
        (
            "burnt",
            "entry point 'burnt' of autotensor.teas cannot be loaded (ZeroDivisionError: division by zero). "
            "Repair or uninstall the package.",
        ),
        (
            "none",
            "entry point 'none' of autotensor.teas cannot be loaded (AttributeError: module 'tea_shop' has "
            "no attribute 'ceylon'). Repair or uninstall the package.",
        ),
        (7, "7 is not a tea. docs/extend.md shows one."),
    ],
)
def test_mistakes_are_one_sentence(shop: Path, what: object, said: str) -> None:
    with pytest.raises(InputError) as caught:
        TEAS.get(what)  # type: ignore[arg-type]
    assert str(caught.value) == said


def test_two_packages_of_one_mind_and_of_two(shop: Path, tmp_path: Path) -> None:
    installed(tmp_path, "tea-copy", {GROUP: {"assam": "tea_shop:assam"}})
    assert TEAS.get("assam")
    installed(tmp_path, "tea-house", {GROUP: {"assam": "tea_house:assam"}})
    with pytest.raises(
        InputError, match=r"'assam' of autotensor.teas is given twice: tea_\w+:assam, .*Uninst"
    ):
        TEAS.get("assam")


def test_what_a_thing_is_called() -> None:
    assert name_of("assam") == "assam"
    assert name_of(Door) == "autotensor.base.doors:Door"
    for nameless in (lambda: 0, partial(int, base=2)):
        with pytest.raises(InputError, match=r"has no name. Write it with `def` or `class`"):
            name_of(nameless)

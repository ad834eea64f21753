"""README's picture and the figures next to it come from the table that README names."""

from __future__ import annotations

import importlib
from pathlib import Path
from statistics import geometric_mean
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def draw(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "pictures"))
    return importlib.import_module("draw")


@pytest.mark.parametrize("name", ["light", "dark"])
def test_the_committed_picture_is_what_is_drawn(draw: ModuleType, name: str) -> None:
    drawn = draw.picture(draw.ratios(draw.TABLE.read_text()), draw.COLOURS[name])
    assert (draw.PICTURES / f"tensor-programs-{name}.svg").read_text() == drawn


def test_readme_says_what_the_table_says(draw: ModuleType) -> None:
    rows = draw.ratios(draw.TABLE.read_text())
    said = " ".join((ROOT / "README.md").read_text().split())
    row = [str(len(rows)), "128"]
    for ratios in ([r.untuned for r in rows], [r.tuned for r in rows]):
        ahead, far = sum(x > 1 for x in ratios), sum(x < 0.7 for x in ratios)
        row += [f"{geometric_mean(ratios):.2f} ×", str(ahead), str(far)]
    assert f"({draw.TABLE.relative_to(ROOT)})) | {' | '.join(row)} |" in said

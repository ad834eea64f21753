"""Pictures: their contents, and texts that do not overlap."""

from __future__ import annotations

import builtins
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from autotensor.base.errors import InputError
from autotensor.insight import plot
from autotensor.insight.search_history import History, Point, fall

pytest.importorskip("matplotlib")

MAKERS = ("default", "drafted", "bred", "step", "random", "transfer")


def long_history(
    name: str = "conv2d 3x3 56x56x64->64 +add+relu", count: int = 90, scale: float = 1e-4
) -> History:
    """Times within a factor of 30, every eleventh trial a failure, predictions some 20 % off."""
    points = []
    for n in range(count):
        seconds = scale * (1.0 + 30.0 * ((n * 37) % 90) / 90.0 / (1.0 + n / 10.0))
        predicted = seconds * (0.8 + 0.4 * ((n * 53) % 90) / 90.0)
        maker = MAKERS[min(len(MAKERS) - 1, (n * 7) % 6)] if n else "default"
        points.append(Point(n, None if n % 11 == 10 else seconds, predicted if n else None, maker))
    return History(name, 3.0, tuple(points), points[0].seconds, 0.6 * scale)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that were written."""
    found: list[Any] = []
    save = plot._save

    def keep(figure: Any, path: Path) -> None:
        save(figure, path)
        found.append(figure)

    monkeypatch.setattr(plot, "_save", keep)
    return found


def assert_readable(figure: Any) -> None:
    """Labels with units on all axes; no two texts on each other, none outside the picture."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    whole = figure.bbox
    boxes = []
    for axes in figure.axes:
        assert axes.get_xlabel()
        assert axes.get_ylabel()
        texts = [axes.xaxis.label, axes.yaxis.label, axes.title, *axes.texts]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True)
            texts += [label for at, label in ticks if low <= at <= high]
        texts += axes.get_legend().get_texts() if axes.get_legend() else []
        boxes += [(t.get_text(), t.get_window_extent(renderer)) for t in texts if t.get_text()]
    inside = [(text, b) for text, b in boxes if b.width and b.height]
    for text, box in inside:
        if whole.x0 <= box.x0 and box.x1 <= whole.x1 and whole.y0 <= box.y0 and box.y1 <= whole.y1:
            continue
        pytest.fail(f"{text!r} is cut off")
    for (one, a), (other, b) in combinations(inside, 2):
        assert not a.overlaps(b), f"{one!r} lies on {other!r}"


def test_a_task(tmp_path: Path, drawn: list[Any]) -> None:
    plot.draw_task(long_history(), tmp_path / "task.png")
    assert (tmp_path / "task.png").read_bytes().startswith(b"\x89PNG")
    (figure,) = drawn
    left, right = figure.axes
    assert left.get_ylabel() == "time, µs"
    assert left.get_xlabel() == "trials"
    shown = [t.get_text() for t in left.get_legend().get_texts()]
    assert {"best so far", "failed (8)", "default", "drafted"} <= set(shown)
    assert any(t.startswith("bound, ") for t in shown)
    assert right.get_xscale() == right.get_yscale() == "log"
    assert right.get_title().startswith("rank correlation 0.")
    assert_readable(figure)


@pytest.mark.parametrize("scale", [1e-6, 1e-4, 0.03])
def test_axes_of_any_size_are_readable(tmp_path: Path, drawn: list[Any], scale: float) -> None:
    plot.draw_task(long_history(scale=scale), tmp_path / "task.png")
    flat = History(
        "flat", 1.0, tuple(Point(n, scale * (1 + n / 50), scale, "bred") for n in range(6)), None, None
    )
    plot.draw_task(flat, tmp_path / "flat.png")
    for figure in drawn:
        assert_readable(figure)


def test_a_model(tmp_path: Path, drawn: list[Any]) -> None:
    tasks = [long_history(f"task {n}", 40, 1e-5 * (n + 1)) for n in range(5)]
    found = fall(tasks)
    assert found is not None
    where = "Fast CPU 9000 (25/17/1), llvm/znver4/v64/t2, measured 2026-09-12"
    plot.draw_model("resnet18", tasks, found, tmp_path / "model.png", where)
    (figure,) = drawn
    assert figure.get_suptitle() == f"resnet18\n{where}"
    left, right = figure.axes
    assert left.get_ylabel().startswith("all kernels together, ")
    assert "median of 5" in right.get_title()
    assert_readable(figure)


def test_without_predictions(tmp_path: Path, drawn: list[Any]) -> None:
    plot.draw_task(History("new", 1.0, (Point(1, 1e-3, None, "default"),), 1e-3, None), tmp_path / "new.png")
    (figure,) = drawn
    assert [t.get_text() for t in figure.axes[1].texts] == ["no predictions in the log"]
    assert_readable(figure)


def test_matplotlib_is_optional(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match="matplotlib, which is not installed") as refused:
        plot.draw_task(long_history(), tmp_path / "task.png")
    assert refused.value.fix == 'pip install "autotensor[plot]"'
    assert not list(tmp_path.iterdir())

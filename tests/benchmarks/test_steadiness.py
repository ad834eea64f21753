"""Steadiness of calls: the work of a child in each scene, and the table."""

from __future__ import annotations

from pathlib import Path

import pytest
import steadiness
from contests.results import Results
from jobs import steadiness_child


def test_figures_are_of_the_calls_of_all_processes():
    found = steadiness.summary([[1.0, 2.0, 3.0], [10.0]])
    assert found["median"] == 2.5
    assert found["mean"] == 4.0
    assert found["calls"] == 4
    assert found["medians"] == [2.0, 10.0]


def test_the_table_has_our_ratio_to_libgomp(tmp_path: Path):
    results = Results.open(tmp_path / "none.json", 2, "")
    theirs, ours = steadiness.summary([[100.0, 200.0]]), steadiness.summary([[50.0, 25.0]])
    results.rows["busy dcgan"] = {"openmp-system": theirs, "pool": ours}
    row = "| busy dcgan | 150 | 38 | 0.25 | 150 | 38 | 0.25 | 199 | 50 | 0.25 |"
    assert row in steadiness.page(results).splitlines()


def test_something_is_done_before_each_call():
    done: list[str] = []
    found = steadiness_child.times(lambda: done.append("call"), 1e-3, lambda: done.append("before"))
    assert done == ["before", "call"] * len(found)


def test_an_unknown_scene_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(steadiness_child, "ours", lambda folder: steadiness_child.nothing)
    with pytest.raises(ValueError, match="no scene 'noisy'"):
        steadiness_child.scene("noisy", tmp_path, 0.0)


@pytest.mark.parametrize("scene", sorted(steadiness.SCENES))
def test_every_scene_times_calls(scene: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With peers and models that do nothing."""
    for name in ("ours", "onnxruntime"):
        monkeypatch.setattr(steadiness_child, name, lambda folder: steadiness_child.nothing)
    assert steadiness_child.scene(scene, tmp_path, 0.01)

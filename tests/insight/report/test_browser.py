"""The page in a browser without a network: every chart is drawn, in light and dark, without errors or
warnings.

Needs playwright, and the Chromium of a system or playwright's own (marker `browser`).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from made_up_runs import add_run

from autotensor.api.log_handle import log
from autotensor.api.models import plan_model
from autotensor.models import MODELS
from tuning_db import connect

pytestmark = pytest.mark.browser
DRAWN_S = 4.0  # all charts, from opening the file on
FRAME_S = 0.016
BACKGROUND = {"light": "rgb(251, 251, 250)", "dark": "rgb(17, 21, 27)"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    own = shutil.which("chromium") or shutil.which("google-chrome")
    with playwright.sync_playwright() as p:
        opened = p.chromium.launch(executable_path=own, args=["--no-sandbox"])
        yield opened
        opened.close()


def opened(browser: Any, path: Path, scheme: str, said: list[str]) -> Any:
    """A tab with the page when all is drawn; errors, warnings and requests go to `said`."""
    context = browser.new_context(color_scheme=scheme, offline=True, viewport={"width": 1080, "height": 900})
    tab = context.new_page()
    tab.on("console", lambda m: said.append(f"{m.type}: {m.text}"))
    tab.on("pageerror", lambda e: said.append(f"error: {e}"))
    tab.on("request", lambda r: said.append(f"asked for {r.url}") if r.url != path.as_uri() else None)
    tab.metrics = context.new_cdp_session(tab)
    tab.metrics.send("Performance.enable", {"timeDomain": "threadTicks"})
    tab.goto(path.as_uri(), timeout=120_000)
    tab.wait_for_selector("html[data-drawn]", timeout=120_000)
    return tab


@pytest.fixture
def one_and_two(two_runs: Path, tmp_path: Path) -> list[Path]:
    pytest.importorskip("altair")
    pages = [tmp_path / "one.html", tmp_path / "two.html"]
    with log(str(two_runs)) as handle:
        keys = [r.key for r in handle.runs(model="mlp")]
        handle.report(keys[0]).save(pages[0])
        handle.report(*keys).save(pages[1])
    return pages


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_is_drawn_offline_without_a_word(one_and_two, browser, scheme):
    for path in one_and_two:
        said: list[str] = []
        tab = opened(browser, path, scheme, said)
        charts = tab.locator("[data-chart]")
        assert charts.count() == int(tab.evaluate("document.documentElement.dataset.drawn"))
        for n in range(charts.count()):
            box = charts.nth(n).locator("canvas").bounding_box()
            assert box["width"] > 200
            assert box["height"] > 40
        assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == BACKGROUND[scheme]
        assert tab.evaluate("document.documentElement.scrollWidth") <= 1080  # nothing sticks out
        assert [s for s in said if "data:" not in s] == []
        tab.context.close()


def test_the_button_changes_the_colours(one_and_two, browser):
    tab = opened(browser, one_and_two[0], "light", [])
    tab.click("#theme")
    tab.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == BACKGROUND["dark"]
    tab.context.close()


@pytest.mark.timeout(900)
def test_ten_thousand_trials_are_drawn_and_scrolled_without_stutter(tmp_path, browser):
    pytest.importorskip("altair")
    path, page = tmp_path / "log.db", tmp_path / "many.html"
    with connect(path) as store:
        add_run(store, plan_model(MODELS.get("resnet18").build()).search_tasks(), 13_000, "resnet18")
    with log(str(path)) as handle:
        report = handle.report()
    assert report.figures.trials > 10_000
    assert report.save(page) <= 3 << 20
    said: list[str] = []
    tab = opened(browser, page, "light", said)
    drawing = busy_s(tab)
    tab.evaluate(
        """async () => {
            for (let n = 0; n < 60; n++) {
                window.scrollBy(0, 100);
                await new Promise(requestAnimationFrame);
            }
        }"""
    )
    assert drawing < DRAWN_S
    assert (busy_s(tab) - drawing) / 60 < FRAME_S
    assert [s for s in said if "data:" not in s] == []
    tab.context.close()


def busy_s(tab: Any) -> float:
    """Processor time of the page's main thread so far: others on the machine do not count."""
    metrics = tab.metrics.send("Performance.getMetrics")["metrics"]
    found: float = next(m["value"] for m in metrics if m["name"] == "TaskDuration")
    return found

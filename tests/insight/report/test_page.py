"""The page: one complete file with the log's figures; and the message if the extra is not installed."""

from __future__ import annotations

import builtins
import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from against_sql import assert_of_the_log
from cli_tools import cli

from autotensor.api.log_handle import log
from autotensor.insight.report.findings import default_won, findings
from autotensor.insight.report.page import page
from autotensor.insight.report.task_figures import Reason

MOST = 3 << 20  # bytes
EXTRA = ("altair", "vl_convert", "jinja2")


class Reader(HTMLParser):
    """Texts by element id, addresses, and headings; tags must be closed in order."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: dict[str, str] = {}
        self.heads: list[str] = []
        self.addresses: list[str] = []
        self.charts: list[str] = []
        self._open: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.addresses += [known[n] or "" for n in ("src", "href") if n in known]
        self.charts += [known["data-chart"] or ""] if "data-chart" in known else []
        if tag not in ("meta", "link", "br"):
            self._open.append((tag, known.get("id") or ""))

    def handle_endtag(self, tag: str) -> None:
        opened, _ = self._open.pop()
        assert opened == tag

    def handle_data(self, data: str) -> None:
        if self._open:
            tag, id = self._open[-1]
            if id:
                self.texts[id] = self.texts.get(id, "") + data
            if tag in ("h1", "h2", "h3"):
                self.heads.append(data)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert not reader._open
    return reader


@pytest.fixture(scope="module")
def written(two_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page of one run, and of two."""
    for name in EXTRA:
        pytest.importorskip(name)
    folder = tmp_path_factory.mktemp("pages")
    pages = {"one": folder / "one.html", "two": folder / "two.html"}
    with log(str(two_runs)) as handle:
        keys = [r.key for r in handle.runs(model="mlp")]
        handle.report(keys[0]).save(pages["one"])
        handle.report(*keys).save(pages["two"])
    return pages


def test_figures_in_the_page_are_the_logs(written, ask):
    for name, count in (("one", 1), ("two", 2)):
        found = json.loads(read(written[name].read_text()).texts["figures"])
        assert len(found) == count
        for d in found:
            assert d["version"] == 1
            assert_of_the_log(d, ask)


def test_a_page_is_one_file_and_small(written):
    for path in written.values():
        assert path.stat().st_size <= MOST
        assert read(path.read_text()).addresses == ["data:,"]
        assert list(path.parent.glob("*.part")) == []


def test_every_chart_has_a_specification_with_its_rows(written):
    page = read(written["two"].read_text())
    specs = json.loads(page.texts["charts"])
    assert sorted(page.charts) == sorted(specs)
    assert {name.partition("-")[2] for name in specs} == {
        "times", "shares", "kernels", "fall", "convergence", "makers", "rules", "failures", "drift",
        "spreads",
    }  # fmt: skip
    for name, spec in specs.items():
        named = set(re.findall(r'"data":\s*\{"name":\s*"(\w+)"', json.dumps(spec)))
        assert named <= set(spec["datasets"]), name
        assert all(spec["datasets"].values())
        assert spec["$schema"].startswith("https://vega.github.io/schema/vega-lite/")


def test_the_page_answers_first(written):
    heads = read(written["one"].read_text()).heads
    assert heads[:4] == ["mlp", "Tune next", "Failed most", "Why the winner wins"]
    assert heads[-1] == "How to repeat it"


def test_text_of_a_log_stays_text(two_runs, tmp_path, written):
    """A name cannot become an element or end a script."""
    with log(str(two_runs)) as handle:
        f = handle.report().figures
    evil = "</script><script>alert(1)</script>"
    text = page(replace(f, model=evil, tasks=tuple(replace(t, name=evil) for t in f.tasks)))
    assert evil not in text
    assert json.loads(read(text).texts["figures"])[0]["model"] == evil


def test_rows_say_what_was_raced_and_where_the_default_won(two_runs, written):
    with log(str(two_runs)) as handle:
        f = handle.report().figures
    assert ">not raced<" not in page(f)
    first, *others = sorted(f.tasks, key=default_won)  # a task whose default lost comes first
    assert not default_won(first)
    won = replace(first.result, winner=first.result.default, ratio=1.0, lower=1.0, upper=1.0, raced="")
    text = page(replace(f, tasks=(replace(first, result=won), *others)))
    assert text.count(">not raced<") == 1
    defaults = [len(re.findall(r'<td class="n">the default\s*<', t)) for t in (page(f), text)]
    assert defaults[1] == defaults[0] + 1
    assert "1.000 to 1.000" not in text


def test_the_open_task_is_the_one_that_the_finding_explains(two_runs, written):
    with log(str(two_runs)) as handle:
        f = handle.report().figures
    for order in (f.tasks, f.tasks[::-1]):
        turned = replace(f, tasks=order)
        opened = re.findall(r"<details open>\s*<summary>(.*?)</summary>", page(turned))
        assert [html.unescape(name) for name in opened] == [findings(turned)[2].answer]


def test_a_notebook_shows_the_page_in_a_frame(two_runs, written):
    with log(str(two_runs)) as handle:
        shown = handle.report()._repr_html_()
    assert shown is not None
    assert shown.startswith('<iframe srcdoc="')
    assert shown.count("<") == 2


@pytest.mark.parametrize("name", EXTRA)
def test_without_the_extra_one_sentence_says_how_to_get_it(name, two_runs, tmp_path, monkeypatch):
    imported = builtins.__import__

    def refuse(wanted: str, *args: Any, **more: Any) -> Any:
        if wanted.partition(".")[0] == name:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return imported(wanted, *args, **more)

    from autotensor.insight.report import page

    page._scripts.cache_clear()
    monkeypatch.setattr(builtins, "__import__", refuse)
    monkeypatch.delitem(__import__("sys").modules, "autotensor.insight.report.charts", raising=False)
    said = cli("report", "--db", two_runs, "-o", tmp_path / "out.html")
    assert said.code == 1
    assert said.err.count("\n") == 1
    assert 'which is not installed. pip install "autotensor[report]"' in said.err
    assert not (tmp_path / "out.html").exists()
    with log(str(two_runs)) as handle:
        assert handle.report()._repr_html_() is None


def test_the_verb_writes_and_says_what_it_found(two_runs, tmp_path, written):
    said = cli("report", "mlp", "--db", two_runs, "-o", tmp_path / "mlp.html")
    assert said.code == 0
    assert "Tune next: dense" in said.out
    assert said.out.splitlines()[-1].startswith(f"{tmp_path / 'mlp.html'}: ")
    assert read((tmp_path / "mlp.html").read_text()).heads[0] == "mlp"


def test_json_is_the_figures_and_writes_nothing(two_runs, tmp_path, monkeypatch, ask):
    monkeypatch.chdir(tmp_path)
    said = cli("report", "--db", two_runs, "--json")
    assert_of_the_log(json.loads(said.out)[0], ask)
    assert list(tmp_path.iterdir()) == []


def test_the_text_of_two_runs_tells_of_both_and_compares_them(two_runs):
    with log(str(two_runs)) as handle:
        keys = [r.key for r in handle.runs(model="mlp")]
        report, alone = handle.report(*keys), handle.report(keys[0])
    text = str(report).splitlines()
    heads = [line for line in text if line.startswith(("A: ", "B: "))]
    assert [h.partition(";")[0] for h in heads] == [
        f"{letter}: mlp, {f.trials} trials" for letter, f in (("A", report.figures), ("B", report.against))
    ]
    assert sum(line.startswith("Why the winner wins: ") for line in text) == 2
    shown = [line for line in text if "; B / A " in line]
    assert len(shown) == len(report.pairs) > 0
    assert all(line.endswith(f": {p.verdict}") for line, p in zip(shown, report.pairs, strict=True))
    assert "A and B have no task in common." in str(replace(report, pairs=()))
    assert not [line for line in str(alone).splitlines() if line.startswith(("A: ", "B: "))]


def test_a_run_is_repeated_from_a_checkout(two_runs, written):
    with log(str(two_runs)) as handle:
        f = handle.report().figures
    o = f.origins[0]
    unknown = page(replace(f, origins=(replace(o, commit="", version="0.1.0"),)))
    known = page(replace(f, origins=(replace(o, commit="1f0c"),)))
    assert "<pre># version 0.1.0; the log does not know the commit\npip install .\n" in unknown
    assert "<pre>git checkout 1f0c" in known
    assert "\npip install .\n" in known
    assert "autotensor==" not in unknown + known


def test_a_decision_of_another_structure_is_not_called_untried(two_runs, written):
    with log(str(two_runs)) as handle:
        f = handle.report().figures
    structure, rows = Reason("structure", "tile", "nest", 1.2, 2), Reason("t0/rows", "8", "4", None, 0)
    t = f.tasks[0]
    text = page(replace(f, tasks=(replace(t, reasons=(structure, rows)),)))
    assert "only the default, of another structure" in text
    assert "0 of the structure" in text
    assert "none worked" in page(replace(f, tasks=(replace(t, reasons=(rows,)),)))

"""A report as one HTML file without other files: text, figures, charts, and the scripts that draw them.

    page(figures)          one run
    page(a, b, pairs)      two runs, side by side

jinja2, altair and vl-convert are optional (`pip install "autotensor[report]"`) and imported only here and in
`charts.py`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from autotensor.base.errors import InputError
from autotensor.insight.report.chart_rows import chart_rows
from autotensor.insight.report.figures import Figures, document
from autotensor.insight.report.findings import (
    Finding,
    beaten,
    default_won,
    explained,
    findings,
    of_other_structure,
    seconds_text,
    together,
    whole_gain,
    why,
)
from autotensor.insight.units import percent
from tuning_db.records import Conditions

TEMPLATE = Path(__file__).with_name("page.html")
CONDITIONS = {
    Conditions.ALONE: "alone",
    Conditions.BESIDE: "while others worked",
    Conditions.SAME_CODE: "not run, for another trial had the same code",
}
NOISY = 0.1  # the page warns of noise if the samples' spread is at least this
INSTALL = 'pip install "autotensor[report]"'


@dataclass(frozen=True, slots=True)
class Pair:
    """A task in both runs: its seconds in each, and their ratio with bounds."""

    task: str
    a_s: float
    b_s: float
    ratio: float
    lower: float
    upper: float
    verdict: str


@dataclass(frozen=True, slots=True)
class Column:
    """One run on the page."""

    letter: str  # A or B, if the page shows two runs
    figures: Figures
    findings: tuple[Finding, ...]
    charts: dict[str, dict[str, Any]]


def page(first: Figures, second: Figures | None = None, pairs: Sequence[Pair] = ()) -> str:
    """The page of one run, or of two runs and their comparison.

    Raises InputError without the packages of the extra `report`.
    """
    try:
        import jinja2

        from autotensor.insight.report.charts import charts

        scripts = _scripts()
    except ImportError as e:
        raise InputError(f"reports need {e.name}, which is not installed.", fix=INSTALL) from e
    shown = [first] if second is None else [first, second]
    columns = [
        Column("AB"[n], f, findings(f), charts(chart_rows(f), 4 - len(shown))) for n, f in enumerate(shown)
    ]
    drawn = {f"{c.letter}-{name}": spec for c in columns for name, spec in c.charts.items()}
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {"time": seconds_text, "percent": percent, "instant": _instant}
    text: str = environment.from_string(TEMPLATE.read_text()).render(
        columns=columns,
        pairs=pairs,
        title=" and ".join(dict.fromkeys(f.title for f in shown)),
        figures=_json([document(f) for f in shown]),
        charts=_json(drawn),
        scripts=scripts,
        default_won=default_won,
        explained=explained,
        whole_gain=whole_gain,
        why=why,
        noisy=NOISY,
        beaten=beaten,
        together=together,
        of_other_structure=of_other_structure,
        conditions=CONDITIONS,
        command=repeatable,
    )
    return text


def repeatable(command: str) -> str:
    """A command as a person would type it: the log holds the arguments of the process.

    >>> repeatable("__main__.py tune mlp"), repeatable("python train.py")
    ('autotensor tune mlp', 'python train.py')
    """
    first, _, rest = command.partition(" ")
    return f"autotensor {rest}" if first in ("__main__.py", "autotensor") else command


def _instant(text: str) -> str:
    """
    >>> _instant("2026-11-28T10:22:16.830113+00:00")
    '2026-11-28 10:22'
    """
    return text[:16].replace("T", " ")


def _json(data: Any) -> str:
    """JSON that may be placed in a script element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=str)
    return text.replace("<", "\\u003c")


@cache
def _scripts() -> str:
    """The sources of Vega, Vega-Lite and Vega-Embed, for the version of Vega-Lite that altair writes."""
    import altair
    import vl_convert

    version = ".".join(altair.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    found: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", version)
    return found.replace("</script", "<\\/script")


__all__ = ["Pair", "page"]

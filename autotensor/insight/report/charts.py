"""The charts of a report in Vega-Lite, one function each. Their rows have the same names in `chart_rows.py`.

    charts(rows) ──▶ {"times": specification, …}     only charts that have something to draw

altair (extra `report`) is imported only here. Colours with a meaning of their own are the page's two accents.
Other colours come from the palette of Okabe and Ito, which people with any colour vision can tell apart, on a
light or a dark page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import altair as alt

from autotensor.insight.plot import COLOURS
from autotensor.insight.report.chart_rows import Rows
from autotensor.insight.report.tally import OUTCOMES

Chart = Any  # altair's charts

BEFORE, AFTER, LIMIT = "#9aa7b8", "#1a80bb", "#d55e00"
ROW = 24  # pixels of a bar
# the axis is this many times as long as the longest bar, so that the number next to the bar has room
ROOM = 1.1
PANEL = (248, 130)  # pixels of the panel with one task's convergence
SECONDS = "format(datum.value, '.3~s') + 's'"  # 0.0015 ▶ 1.5ms
RATE = "format(datum.value / 1e9, ',.3~f')"
PALETTE = [c for c in COLOURS if c != "#8c6d31"]


def charts(rows: Mapping[str, Rows], panels: int) -> dict[str, dict[str, Any]]:
    """Specifications by the names of the rows that they hold. `panels` is the number of tasks in a row of
    panels.
    """
    made = {}
    for name, draw in CHARTS.items():
        if rows[name]:
            others = {extra: rows[extra] for extra in ALSO.get(name, ())}
            spec = draw(rows).to_dict(validate=False)
            if "facet" in spec:
                spec["columns"] = panels
            made[name] = spec | {"datasets": {name: rows[name], **others}}
    return made


def times(rows: Mapping[str, Rows]) -> Chart:
    """The time before as a broad bar, and the time after as a narrow bar on it, with bounds and the machine's
    limit.
    """
    data = alt.Chart(alt.NamedData("times")).encode(
        y=alt.Y("task:N", sort=None, title=None, axis=alt.Axis(labelLimit=280)),
        tooltip=[
            alt.Tooltip("task:N"),
            *_seconds_tooltips("before_s", "after_s", "low_s", "high_s", "bound_s"),
            alt.Tooltip("raced:N"),
            alt.Tooltip("trial:Q", title="winner, trial"),
        ],
    )
    time = alt.Axis(labelExpr=SECONDS, tickCount=7, title="seconds of one inference")
    before = data.mark_bar(color=BEFORE, size=16, opacity=0.55).encode(x=alt.X("before_s:Q", axis=time))
    after = data.mark_bar(color=AFTER, size=8).encode(x="after_s:Q")
    bounds = data.mark_rule(color="#e69f00", strokeWidth=2.5).encode(x="low_s:Q", x2="high_s:Q")
    limit = data.mark_tick(color=LIMIT, thickness=2.5, size=18).encode(x="bound_s:Q")
    return (before + after + bounds + limit).properties(width="container", height=ROW * len(rows["times"]))


def shares(rows: Mapping[str, Rows]) -> Chart:
    data = alt.Chart(alt.NamedData("shares")).encode(
        y=alt.Y("task:N", sort=None, title=None, axis=alt.Axis(labelLimit=280)),
        x=alt.X(
            "share:Q",
            axis=alt.Axis(format=".0%", tickCount=7, title="of the time of all kernels"),
            scale=alt.Scale(domain=[0, ROOM * max(row["share"] for row in rows["shares"])], nice=False),
        ),
        tooltip=[
            alt.Tooltip("task:N"),
            alt.Tooltip("share:Q", format=".1%"),
            *_seconds_tooltips("seconds"),
        ],
    )
    words = data.mark_text(align="left", dx=4).encode(text=alt.Text("share:Q", format=".1%"))
    bars = data.mark_bar(color=AFTER, size=14)
    return (bars + words).properties(width="container", height=ROW * len(rows["shares"]))


def kernels(rows: Mapping[str, Rows]) -> Chart:
    """Every kernel from before (hollow) to after (full), below the machine's limits."""
    x = alt.X(
        "intensity:Q",
        scale=alt.Scale(type="log", nice=False),
        axis=alt.Axis(title="operations for each byte of inputs and outputs", tickCount=6, grid=False),
    )
    rates = [row[n] for row in rows["kernels"] for n in ("before", "after")]
    rates += [max((row["rate"] for row in rows["roofs"]), default=max(rates))]
    scale = alt.Scale(type="log", nice=False, domain=[min(rates) / 2, max(rates) * 1.5])
    y = alt.Y("rate:Q", scale=scale, axis=alt.Axis(labelExpr=RATE, title="GFLOP/s", tickCount=6))
    roofs = (
        alt.Chart(alt.NamedData("roofs"))
        .mark_line(strokeWidth=1.5, clip=True)
        .encode(
            x=x,
            y=y,
            detail="roof:N",
            strokeDash=alt.StrokeDash("roof:N", title=None, sort=None),
            color=alt.value("#8892a0"),
        )
    )
    about = [
        alt.Tooltip("task:N"),
        alt.Tooltip("share:Q", format=".1%", title="share of the time"),
        alt.Tooltip("intensity:Q", format=".3~s"),
        alt.Tooltip("before:Q", format=".3~s", title="before, FLOP/s"),
        alt.Tooltip("after:Q", format=".3~s", title="after, FLOP/s"),
    ]
    data = alt.Chart(alt.NamedData("kernels")).encode(x=x, tooltip=about)
    way = data.mark_rule(color=AFTER, opacity=0.6, strokeWidth=1.5).encode(y="before:Q", y2="after:Q")
    size = alt.Size("share:Q", scale=alt.Scale(range=[30, 500]), legend=None)
    before = data.mark_point(color=BEFORE, filled=False, strokeWidth=1.5).encode(y="before:Q", size=size)
    after = data.mark_circle(color=AFTER, opacity=0.85).encode(y="after:Q", size=size)
    return (roofs + way + before + after).properties(width="container", height=340)


def fall(rows: Mapping[str, Rows]) -> Chart:
    data = alt.Chart(alt.NamedData("fall"), width="container", height=220).encode(
        x=alt.X(
            "trials:Q", axis=alt.Axis(tickCount=10, title="trials, of all tasks in the order of measuring")
        ),
        y=alt.Y(
            "seconds:Q",
            scale=alt.Scale(zero=False),
            axis=alt.Axis(labelExpr=SECONDS, title="all kernels together"),
        ),
    )
    line = data.mark_line(interpolate="step-after", color="#8892a0", strokeWidth=2)
    points = (
        data.transform_filter("datum.made_by != ''")
        .mark_circle(size=70, opacity=1)
        .encode(color=_by_maker(rows), tooltip=["trials:Q", *_seconds_tooltips("seconds"), "made_by:N"])
    )
    return line + points


def convergence(rows: Mapping[str, Rows]) -> Chart:
    """A panel for each task. A click on an origin makes its trials stand out."""
    chosen = alt.selection_point(fields=["made_by"], bind="legend", name="origin")
    seconds = alt.Axis(labelExpr=SECONDS, title=None, tickCount=4)
    y = alt.Y("seconds:Q", scale=alt.Scale(type="log", nice=False), axis=seconds)
    base = alt.Chart().encode(
        x=alt.X("number:Q", title=None, axis=alt.Axis(grid=False, tickMinStep=1, tickCount=5)), y=y
    )
    trials = (
        base.transform_filter("datum.what == 'trial'")
        .mark_circle(size=24)
        .encode(
            color=_by_maker(rows),
            opacity=alt.condition(chosen, alt.value(0.75), alt.value(0.06)),
            tooltip=["trial:Q", "number:Q", *_seconds_tooltips("seconds"), "made_by:N"],
        )
        .add_params(chosen)
    )
    best = base.transform_filter("datum.what == 'best'").mark_line(
        interpolate="step-after", color="#8892a0", strokeWidth=1.5
    )
    levels = (  # without x: a line across the panel
        alt.Chart()
        .transform_filter("datum.what == 'default' || datum.what == 'bound'")
        .mark_rule(strokeWidth=1.2)
        .encode(
            y=y,
            strokeDash=alt.StrokeDash(
                "what:N", title=None, scale=alt.Scale(domain=["default", "bound"], range=[[6, 3], [2, 2]])
            ),
            color=alt.value("#8892a0"),
        )
    )
    width, height = PANEL
    tasks = list(dict.fromkeys(row["task"] for row in rows["convergence"]))
    return (
        alt.layer(best, levels, trials, data=alt.NamedData("convergence"))
        .properties(width=width, height=height)
        .facet(facet=alt.Facet("task:N", title=None, sort=tasks, header=alt.Header(labelLimit=width)))
        .resolve_scale(x="independent", y="independent")
    )


def makers(rows: Mapping[str, Rows]) -> Chart:
    return _matrix("makers", "made by")


def rules(rows: Mapping[str, Rows]) -> Chart:
    return _matrix("rules", "rules of the sketch")


def failures(rows: Mapping[str, Rows]) -> Chart:
    data = alt.Chart(alt.NamedData("failures")).encode(
        y=alt.Y("failure:N", sort=None, title=None, axis=alt.Axis(labelLimit=420)),
        x=alt.X("trials:Q", axis=alt.Axis(tickMinStep=1, tickCount=8)),
        color=alt.Color(
            "status:N",
            title=None,
            sort=None,
            scale=alt.Scale(range=[LIMIT, *PALETTE[1:3], *PALETTE[4:], "#7f7f7f"]),
        ),
        tooltip=["status:N", "signature:N", "trials:Q", alt.Tooltip("example:Q", title="such a trial")],
    )
    words = data.mark_text(align="left", dx=4).encode(text="trials:Q", color=alt.value("#8892a0"))
    return (data.mark_bar(size=14) + words).properties(width="container", height=ROW * len(rows["failures"]))


def drift(rows: Mapping[str, Rows]) -> Chart:
    data = alt.Chart(alt.NamedData("drift"), width="container", height=170).encode(
        x=alt.X("first:Q", title="trial", axis=alt.Axis(tickCount=8), scale=alt.Scale(zero=False)),
        tooltip=[
            "first:Q",
            "last:Q",
            *(alt.Tooltip(f"{n}:Q", format=".3f") for n in ("low", "middle", "high")),
        ],
    )
    band = data.mark_area(opacity=0.25, color=AFTER).encode(
        y=alt.Y("low:Q", scale=alt.Scale(zero=False), axis=alt.Axis(title="× its median", tickCount=5)),
        y2="high:Q",
    )
    return band + data.mark_line(color=AFTER, point=True).encode(y="middle:Q")


def spreads(rows: Mapping[str, Rows]) -> Chart:
    return (
        alt.Chart(alt.NamedData("spreads"), width="container", height=170)
        .mark_bar(color=AFTER)
        .encode(
            x=alt.X(
                "spread:N",
                sort=None,
                title="between the slowest and the fastest sample of a trial",
                axis=alt.Axis(labelAngle=0),
            ),
            y=alt.Y("trials:Q", axis=alt.Axis(tickMinStep=1)),
            tooltip=["spread:N", "trials:Q"],
        )
    )


def _matrix(name: str, title: str) -> Chart:
    """Outcomes of the trials of each kind. A darker cell is a larger share of the trials of its kind."""
    data = alt.Chart(alt.NamedData(name), height=alt.Step(ROW + 4), width=alt.Step(96)).encode(
        x=alt.X(
            "outcome:N",
            title=None,
            sort=list(OUTCOMES),
            axis=alt.Axis(orient="top", labelAngle=0, domain=False, ticks=False),
        ),
        y=alt.Y("kind:N", title=title, sort=None, axis=alt.Axis(labelLimit=320, domain=False, ticks=False)),
        tooltip=["kind:N", "outcome:N", "trials:Q", alt.Tooltip("share:Q", format=".1%")],
    )
    cells = data.mark_rect(color=AFTER, cornerRadius=3).encode(
        opacity=alt.Opacity("share:Q", scale=alt.Scale(domain=[0, 1], range=[0.08, 0.85]), legend=None)
    )
    return cells + data.mark_text(fontWeight="bold").encode(text="trials:Q")


def _by_maker(rows: Mapping[str, Rows]) -> Any:
    """One colour for each origin, the same in all charts."""
    known = list(dict.fromkeys(row["kind"] for row in rows["makers"]))
    colours = [PALETTE[n % len(PALETTE)] for n in range(len(known))]
    return alt.Color("made_by:N", title=None, scale=alt.Scale(domain=known, range=colours))


def _seconds_tooltips(*names: str) -> list[Any]:
    return [alt.Tooltip(f"{n}:Q", format=".4~s", title=f"{n.removesuffix('_s')}, s") for n in names]


CHARTS: Mapping[str, Callable[[Mapping[str, Rows]], Chart]] = {
    "times": times,
    "shares": shares,
    "kernels": kernels,
    "fall": fall,
    "convergence": convergence,
    "makers": makers,
    "rules": rules,
    "failures": failures,
    "drift": drift,
    "spreads": spreads,
}
ALSO = {"kernels": ("roofs",)}  # rows that a chart draws besides its own

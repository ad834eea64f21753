"""Pictures of a table: bars against each peer, and a roofline with every kernel as a dot.

Colours are fixed per contestant and chosen to differ for most colour-blind people (Okabe & Ito, 2008).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from pathlib import Path
from typing import Any

from contests.published_table import Table, best_peer, compared, typical
from contests.ratios import geometric_mean
from contests.results import Results

OURS, WON, EVEN, LOST, PEER = "#0072B2", "#0072B2", "#BBBBBB", "#D55E00", "#E69F00"
MOST = 8.0  # bars end at this ratio: 8 times as fast, or 8 times as slow


def draw(results: Results, table: Table, stem: Path) -> list[Path]:
    """Writes STEM.png, and STEM-roofline.png if the ceilings are known. Writes nothing without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        print("No pictures: matplotlib is not installed.")
        return []
    matplotlib.use("Agg")
    if not table.rows or not table.mine or not table.peers:
        return []
    drawn = [_bars(table, stem.with_name(f"{stem.name}.png"), results.data["title"])]
    if "ceilings" in results.data and any(r.get("flops") for r in table.rows.values()):
        drawn.append(_roofline(results, table, stem.with_name(f"{stem.name}-roofline.png")))
    return drawn


def best_of_ours(table: Table) -> str:
    """The contestant that represents autotensor in pictures: the strict one, tuned if there is a tuned
    one."""
    return next((m for m in ("tuned", "default") if m in table.mine), table.mine[0])


def _bars(table: Table, path: Path, title: str) -> Path:
    """Draws a panel for each peer, with a bar for each row in the order of the ratios. Bars are blue where
    autotensor is certainly faster."""
    import matplotlib.pyplot as plt

    mine = best_of_ours(table)
    figure, axes = plt.subplots(
        len(table.peers), 1, figsize=(11, 1.7 * len(table.peers)), sharex=True, squeeze=False
    )
    for axis, peer in zip(axes[:, 0], table.peers, strict=True):
        found = [r for row in table.rows.values() if (r := compared(row, peer, mine)) is not None]
        found.sort(key=lambda r: -r.value)
        heights = [log2(min(MOST, max(1 / MOST, r.value))) for r in found]
        colours = [{"won": WON, "lost": LOST, "even": EVEN}[r.verdict] for r in found]
        axis.bar(range(len(found)), heights, color=colours, width=0.85)
        axis.axhline(0, color="black", linewidth=0.8)
        _ratio_ticks(axis, heights)
        mean = geometric_mean(r.value for r in found) if found else float("nan")
        axis.set_title(f"against {peer}: {mean:.2f} times as fast (geometric mean of {len(found)})",
                       fontsize=9, loc="left")  # fmt: skip
        for side in ("top", "right", "bottom"):
            axis.spines[side].set_visible(False)
        axis.set_xticks([])
    figure.suptitle(
        f"{title}: peer's time / autotensor's ({mine}), one bar a row; grey: not sure at 95 %", fontsize=10
    )
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path


def _ratio_ticks(axis: Any, heights: Sequence[float]) -> None:
    top = max(1.0, *(abs(h) for h in heights)) if heights else 1.0
    axis.set_ylim(min(-0.6, min(heights, default=0) - 0.1), top + 0.1)
    ticks = [t for t in (-3, -2, -1, 0, 1, 2, 3) if axis.get_ylim()[0] <= t <= axis.get_ylim()[1]]
    axis.set_yticks(ticks, [f"{2**t}x" if t >= 0 else f"1/{2**-t}" for t in ticks], fontsize=8)


def _roofline(results: Results, table: Table, path: Path) -> Path:
    """Draws operations per second over operations per byte that must move, for autotensor and the best peer
    of each row."""
    import matplotlib.pyplot as plt

    ceilings, mine = results.data["ceilings"], best_of_ours(table)
    figure, axis = plt.subplots(figsize=(8, 5.5))
    xs: list[float] = []
    for row in table.rows.values():
        if not row.get("flops"):
            continue
        x = row["flops"] / row["bytes"]
        peer = best_peer(row, table.peers)
        pair = (typical(row, mine), typical(row, peer) if peer else None)
        ys = [row["flops"] / t / 1e9 if t else None for t in pair]
        xs.append(x)
        for y, colour, marker in zip(ys, (OURS, PEER), ("o", "x"), strict=True):
            if y:
                axis.plot(x, y, marker, color=colour, markersize=5, alpha=0.8)
        if ys[0] and ys[1]:
            axis.plot([x, x], ys, "-", color="#CCCCCC", linewidth=0.8, zorder=0)
    low, high = min(xs) / 2, max(xs) * 2
    points = [low * (high / low) ** (n / 100) for n in range(101)]
    for name, rate in ceilings.items():
        if name != "flops":
            roof = [min(ceilings["flops"], x * rate) / 1e9 for x in points]
            axis.plot(points, roof, "-" if name == "memory" else ":", color="black", linewidth=1)
            axis.annotate(f"{name}: {rate / 1e9:.0f} GB/s", (points[2], roof[2] * 1.1), fontsize=8)
    axis.annotate(f"{ceilings['flops'] / 1e9:.0f} GFLOP/s", (high, ceilings["flops"] / 1e9 * 1.08),
                  fontsize=8, ha="right")  # fmt: skip
    axis.plot([], [], "o", color=OURS, label=f"autotensor ({mine})")
    axis.plot([], [], "x", color=PEER, label="best peer of the row")
    axis.legend(loc="lower right", fontsize=8)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("operations per byte of inputs, weights and result")
    axis.set_ylabel("GFLOP/s")
    axis.set_title("Roofline: caches are warm, so dots may stand above the roof of memory", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path

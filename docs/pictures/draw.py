"""README's picture, from a table of `benchmarks/results`: python docs/pictures/draw.py

One bar a program, sorted: the best peer's time over ours, not tuned (dots) and tuned (bars), on a logarithmic
axis. Written for light and dark pages, as SVG without fonts or scripts of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from pathlib import Path
from statistics import geometric_mean
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "benchmarks" / "results" / "tensor-programs-zen3-1core.md"
PICTURES = ROOT / "docs" / "pictures"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 880, 300, 56, 16, 52, 34
LEAST, MOST = 0.125, 16.0  # ratios beyond are drawn at the edge
TICKS = (0.125, 0.25, 0.5, 1, 2, 4, 8, 16)


class Ratio(NamedTuple):
    """The best peer's time over ours."""

    program: str
    untuned: float
    tuned: float


@dataclass(frozen=True, slots=True)
class Colours:
    text: str
    grid: str
    ahead: str
    behind: str
    dot: str


COLOURS = {
    "light": Colours("#1f2328", "#d1d9e0", "#2a7f62", "#c4643a", "#1f2328"),
    "dark": Colours("#e6edf3", "#3d444d", "#4cc38a", "#f0883e", "#e6edf3"),
}


def ratios(table: str) -> list[Ratio]:
    """The rows of a table of tensor programs; the last two columns are the ratios."""
    rows = [[cell.strip() for cell in line.strip("| \n").split("|")] for line in table.splitlines()]
    numbers = [(row[0], row[-2], row[-1]) for row in rows if len(row) > 3]
    return [Ratio(p, float(u), float(t)) for p, u, t in numbers if u[:1].isdigit() and t[:1].isdigit()]


def picture(rows: list[Ratio], colours: Colours) -> str:
    """The SVG."""
    rows = sorted(rows, key=lambda r: r.tuned)
    step = (WIDTH - LEFT - RIGHT) / len(rows)
    untuned, tuned = (geometric_mean(r[n] for r in rows) for n in (1, 2))
    title = f"{len(rows)} tensor programs, one core of a Zen 3: the best peer's time over ours"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12" fill="{colours.text}" role="img">',
        f"<title>{title}</title>",
        f'<text x="{LEFT}" y="18" font-size="15">{title}</text>',
        f'<text x="{LEFT}" y="38">dots: not tuned, geometric mean {untuned:.2f} ×; bars: 128 trials, '
        f"{tuned:.2f} ×; above 1 ×: ahead</text>",
    ]
    for tick in TICKS:
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{height(tick):.1f}" y2="{height(tick):.1f}" '
            f'stroke="{colours.text if tick == 1 else colours.grid}"/>'
            f'<text x="{LEFT - 8}" y="{height(tick) + 4:.1f}" text-anchor="end">{tick:g} ×</text>'
        )
    for n, row in enumerate(rows):
        x, end, one = LEFT + n * step, height(row.tuned), height(1)
        colour = colours.ahead if row.tuned >= 1 else colours.behind
        parts.append(
            f'<rect x="{x + 1:.1f}" y="{min(end, one):.1f}" width="{step - 2:.1f}" '
            f'height="{abs(end - one):.1f}" fill="{colour}"/>'
            f'<circle cx="{x + step / 2:.1f}" cy="{height(row.untuned):.1f}" r="2.2" fill="{colours.dot}"/>'
        )
    parts.append(
        f'<text x="{LEFT}" y="{HEIGHT - 10}">peers: XLA, torch, torch.compile, opt_einsum, numba, and Halide '
        f"with three autoschedulers</text>"
    )
    return "\n".join([*parts, "</svg>"]) + "\n"


def height(ratio: float) -> float:
    """The y of a ratio.

    >>> height(LEAST) - height(MOST) == HEIGHT - TOP - BOTTOM
    True
    """
    share = log(min(max(ratio, LEAST), MOST) / LEAST) / log(MOST / LEAST)
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    for name, colours in COLOURS.items():
        (PICTURES / f"tensor-programs-{name}.svg").write_text(picture(ratios(TABLE.read_text()), colours))

"""The table of results: rows that may be published, autotensor's contestants and peers, and their ratios.

A row in which a result of autotensor differs from torch's is withheld.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from contests.ratios import Ratio, ratio
from contests.results import Results, times

MINE = ("default", "default-fast", "tuned", "tuned-fast", "backend", "backend-tuned")
FILE = "file:"  # prefix of a contestant that is a compiled file of autotensor
NOISY = 0.15  # figures with more spread than this between blocks or processes are marked with ~

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """The content of a report."""

    rows: Mapping[str, Row]  # the rows that may be published
    withheld: Mapping[str, str]  # row ─▶ why
    untuned: Mapping[str, str]  # "row contestant" ─▶ why tuning failed; the schedules known before were used
    mine: tuple[str, ...]
    peers: tuple[str, ...]

    @staticmethod
    def of(results: Results) -> Table:
        columns = dict.fromkeys(c for row in results.rows.values() for u in row["units"] for c in u["cells"])
        mine = [c for c in columns if is_mine(c)]
        withheld = {n: why for n, row in results.rows.items() if (why := _wrong(row, mine))}
        rows = {n: row for n, row in results.rows.items() if n not in withheld}
        peers = [c for c in columns if c not in mine and any(seconds(r, c) for r in rows.values())]
        tuning = results.data.get("tuning", {})
        untuned = {key: a["failed"] for key, a in tuning.items() if "failed" in a}
        return Table(rows, withheld, untuned, tuple(mine), tuple(peers))


def is_mine(contestant: str) -> bool:
    return contestant in MINE or contestant.startswith(FILE)


def _wrong(row: Row, mine: Iterable[str]) -> str:
    """Why the row may not be published: what is wrong with a result of autotensor; "" if all results are
    right."""
    for unit in row["units"]:
        for name in mine:
            if reason := unit["cells"].get(name, {}).get("refused"):
                return f"{name} {reason}"
    return ""


def effective(row: Row, name: str) -> str:
    """The contestant whose times count for this one. If fast numerics change nothing, it is the strict
    contestant."""
    skipped = any("skip" in u["cells"].get(name, {}) for u in row["units"])
    return name.removesuffix("-fast") if name.endswith("-fast") and skipped else name


def seconds(row: Row, name: str, which: str = "median") -> list[float]:
    """The contestant's times, from all units in which it has one."""
    return [t for t in times(row, effective(row, name), which) if t is not None]


def typical(row: Row, name: str, which: str = "median") -> float | None:
    """The contestant's time: the median over processes of their medians, or the least of all."""
    found = seconds(row, name, which)
    if not found:
        return None
    return median(found) if which == "median" else min(found)


def noisy(row: Row, name: str) -> bool:
    """Whether the times of blocks differ by more than NOISY."""
    name = effective(row, name)
    cells = [u["cells"][name] for u in row["units"] if "rounds" in u["cells"].get(name, {})]
    blocks = [b for c in cells for b in c["rounds"]]
    return bool(blocks) and max(blocks) / min(blocks) - 1 > NOISY


def compared(row: Row, peer: str, mine: str) -> Ratio | None:
    """peer / ours over the units that have both."""
    pairs = zip(times(row, peer), times(row, effective(row, mine)), strict=True)
    both = [(p, m) for p, m in pairs if p is not None and m is not None]
    return ratio([p for p, _ in both], [m for _, m in both]) if both else None


def best_peer(row: Row, peers: Sequence[str]) -> str | None:
    """The fastest peer of the row, by its median process."""
    known = {p: t for p in peers if (t := typical(row, p)) is not None}
    return min(known, key=known.__getitem__) if known else None

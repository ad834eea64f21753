"""Results as a Markdown table: medians, minima, and how many times as fast as each peer autotensor is.

A row counts as won or lost only if the 95 % bound of the ratio says so. A row in which a result of autotensor
differs from torch's is withheld.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median

from contests import table_pictures
from contests.contest import why_not
from contests.markdown import grid, paragraphs
from contests.published_table import Row, Table, best_peer, compared, noisy, seconds, typical
from contests.ratios import Ratio, geometric_mean
from contests.results import Results


def write(results: Results, scale: float, unit: str) -> None:
    """Writes the Markdown file next to the JSON file, and pictures if matplotlib is installed."""
    table = Table.of(results)
    drawn = table_pictures.draw(results, table, results.path.with_suffix(""))
    text = "\n".join(_page(results, table, scale, unit, drawn))
    results.path.with_suffix(".md").write_text(text + "\n")
    print(f"Wrote {results.path.with_suffix('.md')}" + "".join(f", {p}" for p in drawn))
    for name, why in table.withheld.items():
        print(f"WITHHELD {name}: {why}")


def _page(results: Results, table: Table, scale: float, unit: str, drawn: Sequence[Path]) -> Iterable[str]:
    data = results.data
    m = data["machine"]
    yield from paragraphs(f"# {data['title']}: {unit}, {data['threads']} threads, float32")
    versions = ", ".join(f"{k} {v}" for k, v in m["versions"].items())
    yield f"{m['cpu']}, {m['cores']} cores, caches {_sizes(m['caches'])}. {versions}."
    if c := data.get("ceilings"):
        yield (
            f"Measured ceilings: {c['flops'] / 1e9:.0f} GFLOP/s, "
            f"{c['memory'] / 1e9:.0f} GB/s from memory (all threads)."
        )
    yield ""
    processes = [len(r["units"]) for r in table.rows.values()] or [0]
    yield from paragraphs(
        f"Each program in a process of its own, {_span(processes)} set(s) of processes, timed in turns; "
        "median of the processes' medians, `~`: blocks or processes differ by more than 15 %. A ratio is the "
        "peer's time over ours, paired by process, with its one-sided 95 % bound; won and lost only where "
        "the bound says so. Peers have their own layout (`-cl`: channels last), ours has channels last; "
        "weights are constants. Every output agrees with torch's (onnxruntime's where torch is –) within "
        "1e-4 of the largest element. "
        f"Rows: {_days(results)}; versions of our source: {', '.join(sorted(results.sources()))}."
    )
    for path in drawn:
        yield f"![{path.stem}]({path.name})"
    yield ""
    yield from _summary(table)
    yield from _contestants(table)
    yield from _times(table, "median", scale, unit, data.get("ceilings"))
    yield from _times(table, "min", scale, unit, None)
    yield from notes(table)


def _summary(table: Table) -> Iterable[str]:
    """A table with autotensor's contestants in rows and peers in columns."""
    if not table.rows or not table.mine or not table.peers:
        return
    yield from paragraphs("## How many times as fast as the peer (geometric mean; rows won – even – lost)")
    best = [(row, p) for row in table.rows.values() if (p := best_peer(row, table.peers))]
    by_peer = [[(row, p) for row in table.rows.values()] for p in table.peers]
    yield from grid(
        ("ours", *table.peers, "the best of them in each row"),
        [(mine, *(_against(pairs, mine) for pairs in (*by_peer, best))) for mine in table.mine],
    )
    groups = _groups(table.rows)
    if len(groups) > 1:
        yield from paragraphs("## The same by group, against the best peer of each row")
        lines = []
        for group, rows in groups.items():
            pairs = [(row, p) for row in rows if (p := best_peer(row, table.peers))]
            lines.append((group, len(rows), *(_against(pairs, m) for m in table.mine)))
        yield from grid(("group", "rows", *table.mine), lines)


def _against(pairs: Sequence[tuple[Row, str]], mine: str) -> str:
    found = [r for row, peer in pairs if (r := compared(row, peer, mine)) is not None]
    if not found:
        return "–"
    won, even, lost = (sum(r.verdict == v for r in found) for v in ("won", "even", "lost"))
    return f"{geometric_mean(r.value for r in found):.2f} ({won} – {even} – {lost})"


def _contestants(table: Table) -> Iterable[str]:
    """For every contestant, its version, the distance of its results from torch's, and how many cores it
    used."""
    yield from paragraphs("## Contestants")
    lines = []
    for name in (*table.mine, *table.peers):
        cells = [u["cells"].get(name, {}) for row in table.rows.values() for u in row["units"]]
        timed = [c for c in cells if "median" in c]
        if not timed:
            continue
        rows = sum(bool(seconds(row, name)) for row in table.rows.values())
        cores = [c["cores"] for c in timed if "cores" in c]
        error = f"{max(c['error'] for c in timed):.0e}"
        used = f"{median(cores):.2f}" if cores else "–"
        lines.append((name, timed[-1].get("version") or "–", rows, error, used))
    heads = ("", "version", "rows", "error at most, of the largest element", "cores used (median)")
    yield from grid(heads, lines)


def _groups(rows: Mapping[str, Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for name, row in rows.items():
        if "." in name:
            group = f"{name.split('.')[0]} {name.rsplit('.', 1)[1]}"
        else:
            group = name.split("_")[0] if name.startswith(("gemm_", "dense_")) else "basic"
        found.setdefault(group, []).append(row)
    return found


def _times(
    table: Table, which: str, scale: float, unit: str, ceilings: Mapping[str, float] | None
) -> Iterable[str]:
    columns = (*table.mine, *table.peers)
    title = {"median": "Medians", "min": "Minima"}[which]
    yield from paragraphs(f"## {title}, {unit}")
    extra = ("best peer", *(f"x {m}" for m in table.mine)) if which == "median" else ()
    rate = ("GFLOP/s", "of peak") if ceilings else ()
    lines = []
    for name, row in table.rows.items():
        known = {c: t for c in columns if (t := typical(row, c, which)) is not None}
        fastest = min(known, key=known.__getitem__, default="")
        cells = [_time(row, c, known.get(c), scale, c == fastest) for c in columns]
        flops = row.get("flops", 0)
        line = [name, figure(flops / 1e6) if flops else "–", *cells]
        if extra:
            line += _ratios(table, row)
        if ceilings:
            line += _rate(table, row, flops, ceilings)
        lines.append(line)
    yield from grid(("", "MFLOP", *columns, *extra, *rate), lines)


def _time(row: Row, name: str, value: float | None, scale: float, fastest: bool) -> str:
    if value is None:
        cells = [u["cells"].get(name, {}) for u in row["units"]]
        if any("refused" in c for c in cells):
            return "≠"
        return "failed" if any("failed" in c for c in cells) else "–"
    text = figure(value * scale) + ("~" if noisy(row, name) else "")
    return f"**{text}**" if fastest else text


def _ratios(table: Table, row: Row) -> list[str]:
    best = best_peer(row, table.peers)
    if best is None:
        return ["–"] * (1 + len(table.mine))
    found = [compared(row, best, m) for m in table.mine]
    return [best, *("–" if r is None else _ratio(r) for r in found)]


def _ratio(r: Ratio) -> str:
    if r.lower == 0.0:
        return f"{r.value:.2f}"
    bound = f"≥ {r.lower:.2f}" if r.value >= 1 else f"≤ {r.upper:.2f}"
    return f"{r.value:.2f} ({bound})"


def _rate(table: Table, row: Row, flops: float, ceilings: Mapping[str, float]) -> list[str]:
    known = [t for m in table.mine if (t := typical(row, m)) is not None]
    if not known or not flops:
        return ["–", "–"]
    rate = flops / min(known)
    return [f"{rate / 1e9:.0f}", f"{100 * rate / ceilings['flops']:.0f} %"]


def notes(table: Table) -> Iterable[str]:
    """The contestants that failed or were refused and the withheld rows, with reasons, each once."""
    notes = dict.fromkeys(
        f"{n}, {c}: {why}"
        for n, row in table.rows.items()
        for u in row["units"]
        for c, cell in u["cells"].items()
        if "skip" not in cell and (why := why_not(cell))
    )
    notes |= {f"{key}, tuning failed: {why}": None for key, why in table.untuned.items()}
    if notes or table.withheld:
        yield from paragraphs("## Notes")
        yield from (f"* {note}" for note in notes)
        yield from (f"* WITHHELD: {n}, {why}" for n, why in table.withheld.items())
        yield ""


def figure(value: float) -> str:
    """The number as text, with about three significant digits.

    >>> figure(12345.6), figure(12.345), figure(0.12345)
    ('12346', '12.3', '0.123')
    """
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3
    return f"{value:.{digits}f}"


def _sizes(caches: Sequence[int]) -> str:
    return "/".join(f"{n >> 20}M" if n >= 1 << 20 else f"{n >> 10}K" for n in caches)


def _span(counts: Sequence[int]) -> str:
    return f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


def _days(results: Results) -> str:
    days = sorted({u["when"][:10] for row in results.rows.values() for u in row["units"]})
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"


def add_ceilings(results: Results, threads: int) -> None:
    """Measures the machine for the roofline. A ceiling is the best value of all runs that wrote this file."""
    known, found = results.data.get("ceilings", {}), ceilings(threads)
    results.data["ceilings"] = {name: max(value, known.get(name, 0.0)) for name, value in found.items()}
    results.write()


def ceilings(threads: int) -> dict[str, float]:
    """FLOP/s and bytes/s that all threads together reach, for the roofline. Takes a few seconds."""
    from autotensor.base.target import host
    from autotensor.search.machine.calibration import measure

    rates = {n: value for n, (value, _) in measure(host().with_threads(threads)).items()}

    def of(name: str, shared: bool = False) -> float | None:
        """The measured rate of the team. If there is none, the rate of one core, times the number of threads
        unless they share it."""
        for known in (f"{name}.t{threads}", f"{name}.all"):
            if known in rates:
                return rates[known]
        one = rates.get(name, rates.get(f"{name}.core"))
        return one if shared or one is None else one * threads

    names = {"flops": "flops", "memory": "bandwidth.memory", "L2": "bandwidth.L2", "L3": "bandwidth.L3"}
    names |= {f"{level} copied": f"copying.{level}" for level in ("L2", "L3")}
    found = {key: of(name, shared=key == "memory") for key, name in names.items()}
    return {key: value for key, value in found.items() if value is not None}

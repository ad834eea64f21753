"""README's table of whole models for every measured processor, the least favourable first.

    python benchmarks/contests/readme_table.py benchmarks/results/runtimes-*.json

Each file was written by `models.py --runtimes` on one processor. For each model, the table has autotensor's
times, untuned and tuned, the fastest two peers, and how many peers could run the model.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from contests.markdown import grid, paragraphs
from contests.published_table import Row, Table, typical
from contests.ratios import geometric_mean
from contests.report import figure
from contests.results import Results

NAMES = {
    "resnet18": "ResNet-18", "resnet50": "ResNet-50", "vgg16": "VGG-16", "r3d_18": "3D-ResNet-18",
    "mobilenet_v2": "MobileNetV2", "dcgan": "DCGAN generator", "bert_base": "BERT-base, 128 tokens",
    "gpt2": "GPT-2 small, 128 tokens",
}  # fmt: skip


def ours(row: Row) -> dict[str, float]:
    """The seconds of autotensor, untuned and tuned; with fast numerics if these change a schedule."""
    known = {"untuned": typical(row, "default-fast"), "tuned": typical(row, "tuned-fast")}
    return {name: t for name, t in known.items() if t is not None}


def ranking(row: Row, peers: Sequence[str]) -> list[tuple[float, str]]:
    """The peers that could run the model, the fastest first."""
    return sorted((t, p) for p in peers if (t := typical(row, p)) is not None)


def lead(row: Row, peers: Sequence[str]) -> float:
    """How many times as fast as the best peer autotensor is; tuned if that was measured."""
    mine = ours(row)
    return ranking(row, peers)[0][0] / mine.get("tuned", mine["untuned"])


def section(results: Results) -> Iterable[str]:
    """The lines of one processor."""
    table = Table.of(results)
    m = results.data["machine"]
    leads = [lead(row, table.peers) for row in table.rows.values()]
    machine = f"{m['cpu']}, {results.data['threads']} threads"
    yield from paragraphs(f"{machine}: {geometric_mean(leads):.2f} × the best peer in the geometric mean")
    lines = []
    for name, row in table.rows.items():
        mine, peers = ours(row), ranking(row, table.peers)
        cells = [figure(1e3 * mine[k]) if k in mine else "–" for k in ("untuned", "tuned")]
        cells += [f"{p} {figure(1e3 * t)}" for t, p in peers[:2]]
        cells += [f"{lead(row, table.peers):.2f} ×", str(len({p.removesuffix("-cl") for _, p in peers}))]
        lines.append((NAMES.get(name, name), *cells))
    heads = ("", "untuned", "tuned", "best peer", "next", "the best peer's time over ours")
    yield from grid((*heads, "runtimes that took it"), lines)


def page(paths: Sequence[Path]) -> str:
    """All processors, the one with autotensor's smallest lead first."""
    read = [Results.read(path) for path in paths]

    def mean(results: Results) -> float:
        table = Table.of(results)
        return geometric_mean(lead(row, table.peers) for row in table.rows.values())

    return "\n".join(line for results in sorted(read, key=mean) for line in section(results))


if __name__ == "__main__":
    print(page([Path(word) for word in sys.argv[1:]]))

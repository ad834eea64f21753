"""Vectors made of the lanes of other vectors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autotensor.base.dtype import DType
from autotensor.codegen.llvm.function_writer import FunctionWriter, ty


def shuffle(w: FunctionWriter, t: DType, a: str, b: str, order: Iterable[int | None]) -> str:
    """The vector with the lanes of `order`, which counts the lanes of `a` and then those of `b`; None: any
    value."""
    lanes = ", ".join(f"i32 {'poison' if k is None else k}" for k in order)
    return w.op(f"shufflevector {ty(t)} {a}, {ty(t)} {b}, <{t.lanes} x i32> <{lanes}>")


def picked(w: FunctionWriter, t: DType, vectors: Sequence[str], sources: Sequence[tuple[int, int]]) -> str:
    """The vector whose lanes come from other vectors. sources: (index of a vector, its lane) for each
    lane."""
    first, *others = dict.fromkeys(v for v, _ in sources)
    result, done = vectors[first], {first}
    order = [lane if v == first else None for v, lane in sources]
    for source in others or [first]:
        mixed = [
            t.lanes + lane if v == source and v not in done else kept
            for (v, lane), kept in zip(sources, order, strict=True)
        ]
        result = shuffle(w, t, result, vectors[source], mixed)
        done.add(source)
        order = [k if v in done else None for k, (v, _) in enumerate(sources)]
    return result


def transposed(w: FunctionWriter, t: DType, rows: Sequence[str]) -> list[str]:
    """The columns of a square, by perfect shuffles (Stone, "Parallel processing with the perfect shuffle",
    1971)."""
    n, half = t.lanes, t.lanes // 2
    low, high = ([x for k in range(half) for x in (at + k, n + at + k)] for at in (0, half))
    vectors = list(rows)
    for _ in range(n.bit_length() - 1):
        vectors = [
            shuffle(w, t, a, b, order)
            for a, b in zip(vectors[:half], vectors[half:], strict=True)
            for order in (low, high)
        ]
    return vectors

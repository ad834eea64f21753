"""Writing a part of a tensor: the whole tensor anew, with the part from elsewhere."""

from __future__ import annotations

from typing import Any

from autotensor import te
from autotensor.graph.build import call
from autotensor.imperative.tensor import Spans, Tensor, apply, result


def replaced(x: Tensor, value: Tensor, spans: Spans, squeezed: tuple[int, ...]) -> Tensor:
    """x with `value`, broadcast, inside the spans.

    out[i…] = value[i - begin…] where begin <= i < end on every axis, else x[i…]
    """
    part = tuple(e - b for b, e in spans)
    kept = tuple(n for a, n in enumerate(part) if a not in squeezed)
    full = apply("reshape", apply("broadcast_to", value, shape=kept), shape=part)

    def written(old: Any, new: Any) -> Any:
        def body(*i: Any) -> Any:
            inside = [te.all(v >= b, v < e) for v, (b, e) in zip(i, spans, strict=True)]
            at = tuple(v - b for v, (b, _) in zip(i, spans, strict=True))
            return te.select(te.all(*inside), new[at], old[i]) if inside else new[at]

        return te.compute(old.shape, body, name="written")

    return result(lambda old, new: call(written, old, new), [x, full])

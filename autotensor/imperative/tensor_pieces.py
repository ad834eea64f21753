"""Writing a part of a tensor: makes the whole tensor anew, with that part from another tensor."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from autotensor import te
from autotensor.graph.build import call

Spans = tuple[tuple[int, int], ...]  # (begin, end) along every axis


def written(spans: Spans) -> Callable[..., Any]:
    """The function of the nodes old and new; `new` has the extents of the spans.

    out[i…] = new[i - begin…] where begin <= i < end on every axis, else old[i…]
    """

    def written(old: Any, new: Any) -> Any:
        def body(*i: Any) -> Any:
            inside = [te.all(v >= b, v < e) for v, (b, e) in zip(i, spans, strict=True)]
            at = tuple(v - b for v, (b, _) in zip(i, spans, strict=True))
            return te.select(te.all(*inside), new[at], old[i]) if inside else new[at]

        return te.compute(old.shape, body, name="written")

    return partial(call, written)

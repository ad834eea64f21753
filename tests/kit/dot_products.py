"""Products of narrow types, scheduled by hand for a dot instruction, for several tests of dots."""

from __future__ import annotations

from typing import Any

import numpy as np

from autotensor import te
from autotensor.codegen.dot_instructions import DotInstruction
from autotensor.schedule.schedule import Schedule

Array = np.ndarray[Any, Any]


def product(dot: DotInstruction, m: int, n: int, k: int, panel: str = "1.0 0.0 1.1 0.1") -> Schedule:
    """C[m, n] = Σ_k A[m, k] W[k, n] in tiles of three rows and two vectors. panel: the order of W's copy."""
    acc, a, b = dot.types
    A, W = te.placeholder((m, k), str(a), name="A"), te.placeholder((k, n), str(b), name="W", constant=True)
    r = te.reduce_axis(k, name="r")
    C = te.compute(
        (m, n), lambda i, j: te.sum(A[i, r].astype(str(acc)) * W[r, j].astype(str(acc)), axis=r), name="C"
    )
    s = te.create_schedule(C)
    s.layout(W, [(0, dot.group), (1, 2 * dot.columns)], panel)
    near = s.cache_write(C, "local")
    i, j = C.op.axis
    io, ii = s[C].split(i, factor=3)
    jo, jv, jj = s[C].split(j, factors=[2, dot.columns])
    s[C].reorder(jo, io, ii, jv, jj)
    s[C].unroll(ii)
    s[C].unroll(jv)
    s[C].vectorize(jj)
    s[near].compute_at(s[C], io)
    ci, cj = near.op.axis
    cv, cl = s[near].split(cj, factor=dot.columns)
    ko, kq = s[near].split(near.op.reduce_axis[0], factor=dot.group)
    s[near].reorder(ko, ci, cv, cl, kq)
    s[near].unroll(ci)
    s[near].unroll(cv)
    s[near].tensorize(cl, dot.name)
    return s


def drawn(rng: np.random.Generator, dtype: Any, shape: tuple[int, ...]) -> Array:
    """Numbers of all sizes; the ends of an integer type are among them."""
    t = np.dtype(dtype)
    if t.kind not in "iu":
        return rng.standard_normal(shape).astype(t)
    ends = np.iinfo(t)
    found = rng.integers(ends.min, ends.max + 1, shape).astype(t)
    return np.where(rng.random(shape) < 0.1, rng.choice(np.array([ends.min, ends.max], t), shape), found)

"""Judges a kernel's results as the search judges those of candidates, but with room for roundings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from autotensor.api.verifying.checked_kernels import Step
from autotensor.base.errors import AutotensorError
from autotensor.schedule.primitives.algorithm import algorithm_tolerance
from autotensor.search.measuring.checks import Verdict, compare, compare_wide, output_bounds
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import evaluate
from autotensor.te.tolerance import coarsest_rounding, term_sizes

Array = np.ndarray[Any, Any]


def judged(
    step: Step,
    dag: ComputeDAG,
    arrays: Mapping[str, Array],
    outputs: Mapping[str, Array],
    exact: Mapping[str, Array],
) -> Verdict:
    """The verdict on the worst of a kernel's results, by the rules of the search."""
    own = None if step.trace is None else _algorithm_tolerance(step)
    bounds = output_bounds(step.dag, own)
    worst = Verdict(0.0, 0.0)
    for spec, _ in step.places("output"):
        got, want = outputs[spec.name], exact[spec.name].reshape(spec.shape)
        if own is not None and got.dtype.kind not in "biu":
            verdict = compare_wide(got, want, own)
        else:
            verdict = compare(got, want, bounds[spec.name])
            terms = 0.0
            if verdict.complaint and np.isfinite(verdict.error):  # terms of the sums may cancel
                terms = term_sizes(dag, arrays).get(spec.name, 0.0)
                verdict = compare(got, want, bounds[spec.name], terms)
            if verdict.complaint and want.dtype.kind == "f":  # roundings may be magnified, as by sin(100 x)
                near = _nearest(got, want, _swing(dag, arrays, exact)[spec.name].reshape(spec.shape))
                verdict = compare(got, near, bounds[spec.name], terms)
        if verdict.complaint:
            return replace(verdict, complaint=f"output {spec.name!r}: {verdict.complaint}")
        if verdict.ratio >= worst.ratio:
            worst = verdict
    return worst


SWINGS = 8  # draws; in each, every input is moved by one rounding
SWING_ROOM = 8.0  # a kernel rounds several times, as often as `te.tolerance` allows a body


def _swing(dag: ComputeDAG, arrays: Mapping[str, Array], exact: Mapping[str, Array]) -> dict[str, Array]:
    """The distance by which each element of the result moves if every input is moved by one rounding at
    random."""
    eps, rng = coarsest_rounding(dag), np.random.default_rng(0)
    found = {b.name: np.zeros(exact[b.name].shape) for b in dag.outputs}
    wide = {n: a.astype(np.float64) if a.dtype.kind not in "biu" else a for n, a in arrays.items()}
    for _ in range(SWINGS):
        moved = {
            n: a * (1.0 + eps * rng.choice((-1.0, 1.0), a.shape)) if a.dtype.kind == "f" else a
            for n, a in wide.items()
        }
        for name, values in evaluate(dag, moved, np.float64).items():
            if name in found:
                with np.errstate(all="ignore"):
                    apart = np.abs(values.astype(np.float64) - exact[name].astype(np.float64))
                found[name] = np.fmax(found[name], apart)
    return {name: SWING_ROOM * far for name, far in found.items()}


def _nearest(got: Array, want: Array, far: Array) -> Array:
    """The value that is nearest to the result and within the allowed swing around the expected value."""
    with np.errstate(all="ignore"):
        moved = want + np.clip(got.astype(np.float64) - want, -far, far)
    return np.where(np.isfinite(moved), moved, want)


def _algorithm_tolerance(step: Step) -> float | None:
    try:
        return None if step.trace is None else algorithm_tolerance(step.trace)
    except AutotensorError:  # the algorithm comes from a plug-in that is not installed
        return None


def bits(a: Array) -> Array:
    """The bytes of an array: [elements, bytes of one element]."""
    return np.ascontiguousarray(a).reshape(-1, 1).view(np.uint8)


def same_bits(a: Array, b: Array) -> bool:
    return bool(np.array_equal(bits(a), bits(b)))

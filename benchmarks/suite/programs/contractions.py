"""Contractions: classes of TCCG (Springer and Bientinesi, 2016), tensor decompositions, complex numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from autotensor import te
from suite.programs.program import Program

SUITE = "contractions"


def einsum(spec: str, sizes: dict[str, int], name: str) -> Program:
    """C[out] = Σ A[left] B[right]."""
    inputs, out = spec.split("->")
    left, right = inputs.split(",")
    summed = [x for x in dict.fromkeys(left + right) if x not in out]

    def make() -> Sequence[Any]:
        a = te.placeholder(tuple(sizes[x] for x in left), name="A")
        b = te.placeholder(tuple(sizes[x] for x in right), name="B")
        terms = {x: te.reduce_axis(sizes[x], name=x) for x in summed}

        def body(*axes: Any) -> Any:
            at = {**dict(zip(out, axes, strict=True)), **terms}
            return te.sum(
                a[tuple(at[x] for x in left)] * b[tuple(at[x] for x in right)], axis=[*terms.values()]
            )

        return a, b, te.compute(tuple(sizes[x] for x in out), _named(body, out), name="C")

    return Program(name, SUITE, make, lambda xp, a, b: xp.einsum(spec, a, b))


def _named(body: Callable[..., Any], out: str) -> Callable[..., Any]:
    """A function with as many named parameters as te needs."""
    found: Callable[..., Any] = eval(f"lambda {', '.join(out)}: body({', '.join(out)})", {"body": body})
    return found


def complex_product() -> Sequence[Any]:
    n = 384
    a, b = te.placeholder((n, n, 2), name="A"), te.placeholder((n, n, 2), name="B")
    k = te.reduce_axis(n, name="k")
    re = te.compute(
        (n, n), lambda i, j: te.sum(a[i, k, 0] * b[k, j, 0] - a[i, k, 1] * b[k, j, 1], axis=k), name="re"
    )
    im = te.compute(
        (n, n), lambda i, j: te.sum(a[i, k, 0] * b[k, j, 1] + a[i, k, 1] * b[k, j, 0], axis=k), name="im"
    )
    return a, b, te.compute((n, n, 2), lambda i, j, c: te.select(c == 0, re[i, j], im[i, j]), name="C")


def _complex(xp: Any, a: Any, b: Any) -> Any:
    re = a[..., 0] @ b[..., 0] - a[..., 1] @ b[..., 1]
    return xp.stack([re, a[..., 0] @ b[..., 1] + a[..., 1] @ b[..., 0]], axis=-1)


def complex_planes() -> Sequence[Any]:
    n = 384
    ar, ai, br, bi = (te.placeholder((n, n), name=x) for x in ("ar", "ai", "br", "bi"))
    k, m = te.reduce_axis(n, name="k"), te.reduce_axis(n, name="m")
    re = te.compute((n, n), lambda i, j: te.sum(ar[i, k] * br[k, j] - ai[i, k] * bi[k, j], axis=k), name="re")
    im = te.compute((n, n), lambda i, j: te.sum(ar[i, m] * bi[m, j] + ai[i, m] * br[m, j], axis=m), name="im")
    return ar, ai, br, bi, re, im


def mttkrp() -> Sequence[Any]:
    i, j, k, r = 128, 96, 96, 32
    x = te.placeholder((i, j, k), name="X")
    b, c = te.placeholder((j, r), name="B"), te.placeholder((k, r), name="C")
    q, p = te.reduce_axis(k, name="q"), te.reduce_axis(j, name="p")
    t = te.compute((i, j, r), lambda a, s, f: te.sum(x[a, s, q] * c[q, f], axis=q), name="T")
    return x, b, c, te.compute((i, r), lambda a, f: te.sum(t[a, p, f] * b[p, f], axis=p), name="M")


def mttkrp_at_once() -> Sequence[Any]:
    i, j, k, r = 96, 64, 64, 32
    x = te.placeholder((i, j, k), name="X")
    b, c = te.placeholder((j, r), name="B"), te.placeholder((k, r), name="C")
    q, p = te.reduce_axis(k, name="q"), te.reduce_axis(j, name="p")
    return (
        x,
        b,
        c,
        te.compute((i, r), lambda a, f: te.sum(x[a, p, q] * b[p, f] * c[q, f], axis=[p, q]), name="M"),
    )


def masked_product() -> Sequence[Any]:
    n = 512
    a, b, m = (
        te.placeholder((n, n), name="A"),
        te.placeholder((n, n), name="B"),
        te.placeholder((n, n), name="M"),
    )
    k = te.reduce_axis(n, name="k")

    def term(i: Any, j: Any) -> Any:
        return te.select(m[i, k] > 0.0, a[i, k] * b[k, j], 0.0)

    return a, b, m, te.compute((n, n), lambda i, j: te.sum(term(i, j), axis=k), name="C")


SIZES = {"a": 48, "b": 40, "c": 36, "d": 32, "e": 32, "f": 24}
CONTRACTIONS = (
    einsum("acd,dbc->ab", {**SIZES, "a": 312, "b": 296, "c": 24, "d": 72}, "tccg acd-dbc-ab"),
    einsum("acd,db->abc", {**SIZES, "a": 72, "b": 72, "c": 72, "d": 72}, "tccg acd-db-abc"),
    einsum("adec,ebd->abc", {**SIZES, "a": 48, "b": 48, "c": 32, "d": 24, "e": 32}, "tccg adec-ebd-abc"),
    einsum(
        "aebf,dfce->abcd",
        {**SIZES, "a": 24, "b": 24, "c": 24, "d": 24, "e": 24, "f": 24},
        "tccg aebf-dfce-abcd",
    ),
    einsum(
        "efbad,cf->abcde",
        {**SIZES, "a": 16, "b": 16, "c": 16, "d": 24, "e": 24, "f": 16},
        "tccg efbad-cf-abcde",
    ),
    einsum("bda,dc->abc", {**SIZES, "a": 96, "b": 96, "c": 24, "d": 96}, "tccg bda-dc-abc"),
    Program("complex product", SUITE, complex_product, _complex),
    Program(
        "complex product of planes",
        SUITE,
        complex_planes,
        lambda xp, ar, ai, br, bi: (ar @ br - ai @ bi, ar @ bi + ai @ br),
    ),
    Program(
        "mttkrp in two", SUITE, mttkrp, lambda xp, x, b, c: xp.einsum("ijk,kr,jr->ir", x, c, b, optimize=True)
    ),
    Program(
        "mttkrp",
        SUITE,
        mttkrp_at_once,
        lambda xp, x, b, c: xp.einsum("ijk,kr,jr->ir", x, c, b, optimize=True),
    ),
    Program("masked product", SUITE, masked_product, lambda xp, a, b, m: xp.where(m > 0, a, 0) @ b),
)
assert prod(SIZES.values())

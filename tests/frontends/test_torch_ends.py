"""torch decides at the ends of types: division, shifts, powers, casts, NaN in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import autotensor as at  # noqa: E402

pytestmark = pytest.mark.torch
INF, NAN = float("inf"), float("nan")
FLOATS = torch.tensor([-1.0, 5, INF, 1, 1e10, -5, 5, -6, 3, NAN, -0.0, 300.5, 3e9, -3e9, 1e20, -INF, 0])
DIVISORS = torch.tensor([INF, 0, 2, NAN, 3, INF, INF, 3, -0.1, 2, 5, -7, 7, 7, 3, 2, 0])
LONG = torch.tensor([-(2**63), 2**63 - 1, -7, 7, 0, 5])
SHORT = torch.tensor([-(2**31), 2**31 - 1, -7, 7, 0, 5], dtype=torch.int32)
BY = torch.tensor([3, -3, 2, -2, 5, 7])
AMOUNTS = torch.tensor([1, 31, 32, 64, -1, 3])
ORDER = torch.tensor([1.0, 5, NAN, 0, NAN, -INF, INF, 2])

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    **{
        f"{name} {x.dtype}": (fn, (x, BY.to(x.dtype)))
        for x in (LONG, SHORT, SHORT.to(torch.int8))
        for name, fn in {
            "//": torch.floor_divide,
            "truncated": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
            "remainder": torch.remainder,
            "fmod": torch.fmod,
            "pow": torch.pow,
        }.items()
    },
    **{
        f"{name} {x.dtype}": (fn, (x, AMOUNTS.to(x.dtype)))
        for x in (LONG, SHORT)
        for name, fn in {
            "<<": lambda a, b: a << b,
            ">>": lambda a, b: a >> b,
            "left": torch.bitwise_left_shift,
            "right": torch.bitwise_right_shift,
        }.items()
    },
    "cube": (lambda x: x**3, (torch.tensor([1000003], dtype=torch.int32),)),
    "negative powers": (
        torch.pow,
        (torch.tensor([3, 0, -1, 1, -1, 2]), torch.tensor([-1, -1, -3, -5, -4, 70])),
    ),
    "// of floats": (torch.floor_divide, (FLOATS, DIVISORS)),
    "remainder of floats": (torch.remainder, (FLOATS, DIVISORS)),
    "fmod of floats": (torch.fmod, (FLOATS, DIVISORS)),
    "sign": (torch.sign, (FLOATS,)),
    "clamped by NaN": (lambda x: torch.clamp(x, 2.0, NAN), (FLOATS,)),
    "clamped crosswise": (lambda x: torch.clamp(x, 5.0, 2.0), (FLOATS,)),
    **{
        f"to {t}": (lambda x, t=t: x.to(t), (FLOATS,))
        for t in (torch.int8, torch.uint8, torch.int32, torch.int64)
    },
    "sorted": (lambda x: torch.sort(x, stable=True), (ORDER,)),
    "sorted downwards": (lambda x: torch.sort(x, descending=True, stable=True), (ORDER,)),
    "largest": (lambda x: torch.topk(x, 4), (ORDER,)),
    "smallest": (lambda x: torch.topk(x, 4, largest=False), (ORDER,)),
    "place of the greatest": (torch.argmax, (ORDER,)),
    "greatest and its place": (lambda x: torch.max(x, 0), (ORDER,)),
    "least and its place": (lambda x: torch.min(x, 0), (ORDER,)),
    "exp2": (torch.exp2, (torch.tensor([127.0, 3, -126, 0, -1]),)),
}


@pytest.mark.parametrize("name", CASES)
def test_as_torch(name: str) -> None:
    fn, args = CASES[name]

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, *x: Any) -> Any:
            return fn(*x)

    got = at.compile_model(at.from_torch(Net(), args))(*(a.numpy() for a in args))
    want = fn(*args)
    for g, w in zip(_tuple(got), _tuple(want), strict=True):
        np.testing.assert_array_equal(np.asarray(g), w.numpy(), strict=True)


def _tuple(x: Any) -> tuple[Any, ...]:
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)

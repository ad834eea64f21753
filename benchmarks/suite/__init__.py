"""The operators on which libraries are compared, each defined once for every contestant.

    case = get("C2D.s2.b1")
    case.arrays()      inputs and constants, in torch's layout, the same in every process
    case.compute(…)    its result by torch;  case.numpy(…) by NumPy;  case.nodes() as ONNX
    case.tensors()     for autotensor: te tensors, channels last

basic    matrix products, convolutions of two networks, pools, rows; a relu of 16 floats: the cost of a call
ansor1   the single operators of Ansor (Zheng et al., OSDI 2020), shapes as in TVM's meta_schedule; batch 1
ansor16  some of these with batch 16
gemm     sixty matrix products: squares, odd sizes, long and thin, layers of known networks
"""

from __future__ import annotations

from collections.abc import Callable

from suite.capsule import capsules
from suite.case import Case
from suite.conv import convolutions
from suite.matmul import products
from suite.pools import pools
from suite.row_operators import rows

GROUPS = ("basic", "ansor1", "ansor16", "gemm")

_LATER = ("softmax_1536x128", "layernorm_128x768", "gelu_128x3072", "sum_1024x1024", "overhead_relu16")
_BATCH_16 = (
    "C1D.s0", "C2D.s2", "C3D.s3", "GMM.s1", "GRP.s2", "DIL.s2", "DEP.s2", "T2D.s1", "CAP.s1", "NRM.s2",
)  # fmt: skip
_ANSOR = ("C1D", "C2D", "C3D", "GMM", "GRP", "DIL", "DEP", "T2D", "CAP", "NRM")


def _table() -> dict[str, Callable[[], Case]]:
    return {**products(), **convolutions(), **capsules(), **pools(), **rows()}


_CASES = _table()


def get(name: str) -> Case:
    """The case of that name. Raises KeyError, which names the groups, for an unknown name."""
    if name not in _CASES:
        raise KeyError(f"no operator is called {name!r}; the groups are {', '.join(GROUPS)}.")
    return _CASES[name]()


def names(group: str) -> tuple[str, ...]:
    """The names of the cases of a group, of all cases ("all"), or of the single case with that name."""
    match group:
        case "all":
            return tuple(n for g in GROUPS for n in names(g))
        case "basic":
            first = [n for n in _CASES if "." not in n and not n.startswith(("gemm_", "dense_"))]
            return (*(n for n in first if n not in _LATER), *_LATER)
        case "ansor1":
            return tuple(f"{g}.s{s}.b1" for g in _ANSOR for s in range(4))
        case "ansor16":
            return tuple(f"{n}.b16" for n in _BATCH_16)
        case "gemm":
            return tuple(n for n in _CASES if n.startswith(("gemm_", "dense_")))
    get(group)
    return (group,)

"""Random small computations: chains of stages, each with one difficult feature of tensor expressions.

    dag = random_dag(random.Random(7))          1 to 4 stages over a few small tensors

Everything is chosen by a `random.Random`; hypothesis offers one whose choices it records and shrinks
(strategies.py). Values stay small: `bound` says how large a tensor's elements can get for inputs in -2 … 2,
and products that would leave the integers that a float holds exactly are not made. Shapes hold the awkward
sizes 1, 7, 17, 33 but few elements.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from dag_maker import Maker
from dag_stages import (
    broadcast,
    condition,
    convolution,
    folded,
    gather,
    mathematics,
    matmul,
    narrow,
    pad,
    rearrange,
    reduction,
    several,
    stencil,
    unary,
)

from autotensor.base.dtype import dtype_of
from autotensor.te.dag import ComputeDAG

TYPES = ("float32",) * 8 + ("int32", "int8", "float64", "uint8", "int64", "float16", "bfloat16")

KINDS: tuple[Callable[[Maker], None], ...] = (
    *(unary,) * 2,
    *(broadcast,) * 3,
    *(pad,) * 2,
    *(stencil,) * 2,
    *(reduction,) * 3,
    *(matmul,) * 3,
    *(convolution,) * 3,
    *(rearrange,) * 4,
    several,
    condition,
    narrow,
    *(folded,) * 3,
    mathematics,
    *(gather,) * 2,
)


def random_dag(rng: random.Random, most: int = 4) -> ComputeDAG:
    """A computation of 1 … `most` stages. Its results are the stages without readers, and sometimes an
    intermediate."""
    m = Maker(rng, dtype_of(rng.choice(TYPES)))
    for _ in range(rng.randint(1, most)):
        rng.choice(KINDS)(m)
    read = {(id(t.op), t.index) for v in m.made for t in v.tensor.op.input_tensors}  # type: ignore[union-attr]
    outputs = [v.tensor for v in m.made if (id(v.tensor.op), v.tensor.index) not in read]
    inner = [v.tensor for v in m.made if v.tensor not in outputs]
    if inner and rng.random() < 0.2:
        outputs.insert(0, rng.choice(inner))
    return ComputeDAG.of(outputs)

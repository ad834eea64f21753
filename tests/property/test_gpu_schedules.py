"""No legal GPU schedule races, misses a barrier, leaves its buffers, or changes what is computed."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from gpu_cases import ANYWHERE, CASES
from gpu_comparison import check_gpu
from gpu_traces import TARGET, gpu_trace
from random_dags import random_dag

from autotensor.base.target import Target, parse
from autotensor.ir.expr import Call
from autotensor.ir.node import Node
from autotensor.ir.stmt import Async, Barrier
from autotensor.ir.visit import any_node
from autotensor.lowering.nest.reduction.by_shuffles import SHUFFLE
from autotensor.lowering.pipeline import lower

LONG = 2000
CHUNK = 100


CUDA = parse("cuda -arch=sm_80")  # copies are asynchronous, and lanes exchange values


@pytest.mark.parametrize(
    ("name", "target"),
    [*((n, TARGET) for n in ANYWHERE), *((n, CUDA) for n in CASES)],
    ids=lambda x: x if isinstance(x, str) else x.kind,
)
@pytest.mark.sample(24)
def test_the_cases(name: str, target: Target) -> None:
    s = CASES[name]()
    check_gpu(s.dag, s.trace, target=target)


def test_exchanges_and_copies_are_really_there() -> None:
    def has(name: str, test: Callable[[Node], bool]) -> bool:
        return any(any_node(f.body, test) for f in lower(CASES[name]().state, CUDA).run)

    for name in ("warp_sums", "block_sums", "rows_of_threads", "arg_max_of_a_warp"):
        assert has(name, lambda n: isinstance(n, Call) and n.name == SHUFFLE), name
        assert has(name, lambda n: isinstance(n, Barrier)) == (name == "block_sums"), name
    for name in ("copied_ahead", "copied_ahead_with_tails", "tensor_cores_swizzled", "double_buffered"):
        assert has(name, lambda n: isinstance(n, Async)), name


@pytest.mark.parametrize("seed", range(0, 48, 12))
@pytest.mark.sample(2)
def test_known_seeds(seed: int) -> None:
    for n in range(seed, seed + 12):
        _check(n)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(0, LONG, CHUNK))
def test_at_length(first: int) -> None:
    for n in range(first, first + CHUNK):
        _check(n)


def _check(seed: int) -> None:
    rng = random.Random(seed)
    dag = random_dag(rng, 3)
    trace = gpu_trace(rng, dag)
    check_gpu(dag, trace, seed=seed)
    check_gpu(dag, trace, seed=seed, target=CUDA)

"""Sums of products of several factors: the order in which they are joined, the conditions, and right
results."""

from __future__ import annotations

import random

import numpy as np
import pytest
from comparison import Different, check
from contraction_cases import contraction, drawn_contraction

from autotensor.base.target import parse
from autotensor.compiler import compile_trace
from autotensor.runtime.open_artifact import open_artifact
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.state import State
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from schedules.algorithms import factored
from schedules.algorithms.factored import NAMES, factorings
from schedules.generate import default_trace, generate

TARGET = parse("llvm -mcpu=x86-64-v4 -threads=2")
EVEN = dict.fromkeys("abcdefijklr", 64)


def stages(dag: ComputeDAG, name: str = NAMES[0]) -> list[str]:
    """The stages that the algorithm makes, as equations: ["y.part[a,b] = Σ_k x0[a,k] * x1[k,b]", …]."""
    state = UseAlgorithm("y", name).apply(State.initial(dag))
    return [
        f"{s.name}[{','.join(a.name for a in s.op.axes)}]"
        f" over {','.join(a.name for a in s.op.reduce_axes) or 'nothing'}"
        f" of {','.join(b.name for b in s.op.reads())}"
        for s in state.stages
    ]


def algorithms(dag: ComputeDAG, target: str = "llvm -mcpu=x86-64-v4 -threads=2") -> set[str]:
    """The factorings that a default schedule uses."""
    steps = default_trace(dag, parse(target)).steps
    return {s.algorithm for s in steps if isinstance(s, UseAlgorithm)} & {*NAMES}


def test_a_chain_of_matrices_from_its_narrow_end() -> None:
    dag = contraction("ij,jk,kl->il", {"i": 4, "j": 64, "k": 64, "l": 64})
    assert stages(dag) == ["y.part[i,k] over j of x0,x1", "y[i,l] over k of y.part,x2"]
    dag = contraction("ij,jk,kl->il", {"i": 64, "j": 64, "k": 64, "l": 4})
    assert stages(dag) == ["y.part[j,l] over k of x1,x2", "y[i,l] over j of x0,y.part"]


def test_what_one_factor_alone_depends_on_is_summed_first() -> None:
    dag = contraction("ikl,kj->ij", EVEN)
    assert stages(dag) == ["y.part[i,k] over l of x0", "y[i,j] over k of y.part,x1"]


def test_what_depends_on_no_term_is_multiplied_behind_the_sum() -> None:
    dag = contraction("ik,kj->ij", EVEN, scale=0.5)
    assert stages(dag) == ["y.part[i,j] over k of x0,x1", "y[i,j] over nothing of y.part"]


def test_the_last_axis_of_a_part_is_that_of_the_result() -> None:
    """The last axis becomes the vector axis. If a part lacks it, an axis along which a factor is contiguous
    is taken."""
    dag = contraction("rj,rk,ijk->ir", {"i": 96, "j": 64, "k": 64, "r": 8})
    assert [s.partition(" ")[0] for s in stages(dag)] == ["y.part[j,k,r]", "y[i,r]"]
    dag = contraction("ia,al,lj->ij", {"i": 4, "a": 64, "l": 64, "j": 64})
    assert [s.partition(" ")[0] for s in stages(dag)] == ["y.part[i,l]", "y[i,j]"]


@pytest.mark.parametrize("equation", ["ik,kj->ij", "ikl,klj->ij", "bik,bkj->bij", "i->", "ij,ij->"])
def test_products_that_are_one_sum_stay_so(equation: str) -> None:
    dag = contraction(equation, {**EVEN, "b": 2})
    assert not factorings(dag.stages[-1])
    assert not algorithms(dag)


@pytest.mark.parametrize("equation", ["ij,jk,kl->il", "ijk,jr,kr->ir", "ikl,kj->ij", "i,ij,j->"])
def test_the_default_where_it_does_much_less(equation: str) -> None:
    dag = contraction(equation, EVEN)
    assert algorithms(dag)
    assert not algorithms(dag, "llvm -mcpu=x86-64-v4 -threads=2 -numerics=strict")


def test_whole_numbers_are_factored_in_strict_numerics_too() -> None:
    dag = contraction("ij,jk,kl->il", EVEN, "int32")
    assert algorithms(dag, "llvm -mcpu=x86-64-v4 -threads=2 -numerics=strict")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_of_16_bits_are_not(dtype: str) -> None:
    """Their parts overflow, or round, too soon."""
    assert not factorings(contraction("ij,jk,kl->il", EVEN, dtype).stages[-1])


def test_as_it_is_written_is_offered_too() -> None:
    made = [s.made_by[0] for s in generate(contraction("ijk,jr,kr->ir", EVEN), TARGET)]
    assert made[0] == "fewer_operations"
    assert any(name != "fewer_operations" for name in made)


def test_an_infinite_factor_may_stay_infinite() -> None:
    """∞ * (1 + 0), where the sum as it is written has ∞ * 1 + ∞ * 0, which is NaN."""
    dag = contraction("ij,jk,kl->il", {"i": 64, "j": 64, "k": 64, "l": 4})
    x = np.zeros((64, 64), np.float32)
    x[0, 0] = np.inf
    inputs = x, np.eye(64, dtype=np.float32), np.ones((64, 4), np.float32)
    written, joined = (
        open_artifact(compile_trace(dag, trace, parse("llvm")), threads=1)(*inputs)
        for trace in (Trace(), Trace((UseAlgorithm("y", NAMES[0]),)))
    )
    assert np.isnan(written[0]).all()
    assert np.isposinf(joined[0]).all()
    assert (written[1:] == 0).all()
    assert (joined[1:] == 0).all()


# -- any contraction -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_any_contraction(seed: int) -> None:
    _check_all(seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(20, 520, 50))
def test_many_contractions(first: int) -> None:
    for seed in range(first, first + 50):
        _check_all(seed)


def _check_all(seed: int) -> None:
    """The default schedule, and all factorings without one."""
    dag = drawn_contraction(random.Random(seed))
    check(dag, default_trace(dag, TARGET), seed=seed)
    for name in NAMES[: len(factorings(dag.stages[-1]))]:
        check(dag, Trace((UseAlgorithm("y", name),)), seed=seed, native=False)


def test_an_axis_summed_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a factor counts as no longer needed after a sum over one of its axes."""

    def joined(self: object, ways: tuple[object, ...], subset: frozenset[int]) -> object:
        return join(self, ways, frozenset({*subset, 0}))

    join = factored._Joins._join
    monkeypatch.setattr(factored._Joins, "_join", joined)
    factored.factorings.cache_clear()
    found = 0
    for seed in range(20):
        try:
            _check_all(seed)
        except Different:
            found += 1
    factored.factorings.cache_clear()
    assert found >= 3

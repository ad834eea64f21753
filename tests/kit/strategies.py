"""Hypothesis strategies: random small computations, and random legal schedules of them.

    @given(scheduled())
    def test_something(case): dag, trace = case

The generators themselves (random_dags.py, random_traces.py) use a `random.Random` for every choice.
Hypothesis passes one whose choices it records, so that a failing example shrinks to fewer stages and steps.
"""

from __future__ import annotations

import random

from hypothesis import strategies as st
from random_dags import random_dag
from random_traces import random_trace

from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG

Case = tuple[ComputeDAG, Trace]


def dags(most: int = 4) -> st.SearchStrategy[ComputeDAG]:
    """Computations of 1 … `most` kinds of stages."""
    return st.randoms(use_true_random=False).map(lambda rng: random_dag(rng, most))


def scheduled(stages: int = 4, steps: int = 10) -> st.SearchStrategy[Case]:
    """A computation and a legal trace of it."""
    return st.randoms(use_true_random=False).map(lambda rng: _case(rng, stages, steps))


def case_of(seed: int, stages: int = 4, steps: int = 10) -> Case:
    """The same without hypothesis, for long runs: one case per seed."""
    return _case(random.Random(seed), stages, steps)


def _case(rng: random.Random, stages: int, steps: int) -> Case:
    dag = random_dag(rng, stages)
    return dag, random_trace(rng, dag, steps)

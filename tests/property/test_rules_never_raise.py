"""No rule of graphs or sketches raises for any network, and graph rules do not change results.

Sketches are replayed with their holes open, for three machines; their results are tested elsewhere
(tests/schedules, test_schedules_keep_meaning.py).
Here rules raise instead of being left out (tests/conftest.py).
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from random_layers import networks

from autotensor.api.models import plan_model
from autotensor.base.target import parse
from autotensor.graph.evaluate import evaluate
from autotensor.graph.ir import Graph
from autotensor.graph.rules import optimize
from schedules.generate import generate

TARGETS = tuple(
    parse(f"llvm {options}")
    for options in ("-mcpu=x86-64-v4 -threads=2", "-mcpu=haswell -threads=8", "-mcpu=x86-64 -threads=1")
)
QUIET = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


def check(graph: Graph) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(x.shape).astype(np.float32) for x in graph.inputs]
    (wanted,), (found,) = evaluate(graph, *arrays), evaluate(optimize(graph), *arrays)
    scale = float(np.abs(wanted).max(initial=1e-3))
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3 * scale)
    for target in TARGETS:
        for task in plan_model(graph, target).tasks:
            assert generate(task.workload.dag, target)


@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=QUIET)
@given(networks())
def test_of_random_networks(graph: Graph) -> None:
    check(graph)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(max_examples=5000, deadline=None, derandomize=True, suppress_health_check=QUIET)
@given(networks(most=8))
def test_of_many_random_networks(graph: Graph) -> None:
    check(graph)

"""The onnx package's own tests: all but the listed ones pass, and the listed ones say Unsupported."""

from __future__ import annotations

import pytest
from onnx_suite import KINDS, failures, file_cases, listed, node_cases
from tiers import counts

from autotensor.api import from_onnx
from autotensor.api.instant_models import answer_by_numpy
from autotensor.graph.rules.narrow_floats import float32_inside

PARTS = 64  # of the node tests, so that several processes share them
SAMPLE = 29  # every so many-th node test is run by default; a prime, to meet all families

# Families that may not be on the list in any form: (beginning of the names of their tests)
NEVER_LISTED = (
    *("test_conv", "test_matmul", "test_gemm", "test_softmax", "test_logsoftmax", "test_maxpool"),
    *("test_averagepool", "test_globalaveragepool", "test_globalmaxpool", "test_lppool", "test_batchnorm"),
    *("test_instancenorm", "test_layer_normalization", "test_group_normalization", "test_rms_normalization"),
    *("test_add", "test_sub", "test_mul", "test_div", "test_relu", "test_lstm", "test_gru", "test_rnn"),
    *("test_simple_rnn", "test_reduce", "test_concat", "test_transpose", "test_reshape", "test_gather"),
)


def test_a_sample_of_the_node_tests():
    assert failures(node_cases()[::SAMPLE]) == []


@pytest.fixture
def numpy_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models give the answers that `instant=True` gives before anything is compiled."""

    def function(instant, rounded, graph, **how):
        ready = float32_inside(graph, rounded=rounded)
        return lambda *arrays: answer_by_numpy(ready, arrays, lambda: False)

    monkeypatch.setattr(from_onnx, "_compiled", function)


@pytest.mark.usefixtures("numpy_alone")
def test_numpy_passes_the_node_tests():
    assert failures(node_cases()) == []


@pytest.mark.onnx
@pytest.mark.parametrize("part", range(PARTS))
def test_node_tests(part: int):
    assert failures(node_cases()[part::PARTS]) == []


@pytest.mark.onnx
@pytest.mark.parametrize("kind", KINDS)
def test_model_tests(kind: str):
    cases = list(file_cases(kind))
    assert len(cases) > 10
    assert failures(cases) == []


def test_shares_of_the_tiers():
    """Tests that are not listed pass, as the tests above check."""
    rows = {
        row.name: row for row in counts(node_cases(), {c.name: c.name not in listed() for c in node_cases()})
    }
    assert rows["tier 1, opset <= 24"].share >= 0.97
    assert rows["tier 1, opset <= 24"].total > 900
    assert rows["tier 2"].share >= 0.97
    assert rows["tier 2"].total > 1300


def test_only_tests_that_exist_are_listed():
    names = {c.name for c in node_cases()} | {c.name for c in file_cases("simple")}
    assert set(listed()) - names == set()


def test_every_listed_test_has_a_reason():
    assert all(len(reason) > 10 for reason in listed().values())


def test_basic_families_are_not_listed():
    assert [n for n in listed() if n.startswith(NEVER_LISTED)] == []

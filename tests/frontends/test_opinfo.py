"""Torch's OpInfo database through `at.from_torch`: a fixed sample by default, all of it under `-m slow`."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")  # which torch's database imports

import opinfo  # noqa: E402
from opinfo import ALIEN, CRASHED, EQUAL, RAW, WRONG, Row  # noqa: E402

# one operator of each family, with samples that were holes once: no elements, no axes, data as places
FIXED = (
    *("add", "atan2", "clamp", "copysign", "round.decimals_3", "where"),
    *("sum", "var", "amax", "argmax", "cummax", "cumprod", "logcumsumexp", "linalg.vector_norm"),
    *("lgamma", "special.i1e", "polygamma.polygamma_n_2", "special.chebyshev_polynomial_u"),
    *("median", "nanmedian", "kthvalue", "mode", "sort", "searchsorted"),
    *("cat", "diagonal", "unfold", "roll", "as_strided", "diagonal_scatter"),
    *("gather", "index_put", "index_select", "masked_scatter", "scatter_reduce.mean", "index_reduce.amin"),
    *("nn.functional.conv_transpose3d", "nn.functional.max_pool2d", "nn.functional.embedding_bag"),
    *("native_layer_norm", "softmax", "cdist"),
)


def told(rows: list[Row], *outcomes: str) -> list[str]:
    return [f"{r.op} {r.dtype} #{r.sample}: {r.words}" for r in rows if r.outcome in outcomes]


def test_a_fixed_sample_of_operators():
    rows = list(opinfo.judge_all(FIXED, opinfo.DTYPES, 1, 0))
    rows = [r for r in rows if r.outcome != CRASHED]  # the rows ahead of each
    assert not told(rows, WRONG, RAW)
    equal = sum(r.outcome == EQUAL for r in rows)
    judged = sum(r.outcome != ALIEN for r in rows)
    assert judged > 55
    assert equal >= 0.9 * judged, opinfo.summary(rows)


@pytest.mark.slow
def test_core_operators():
    rows = opinfo.run(opinfo.core_names(), opinfo.DTYPES, 8, jobs=2)
    assert not told(rows, WRONG, RAW, CRASHED)
    judged = [r for r in rows if r.outcome != ALIEN]
    assert sum(r.outcome == EQUAL for r in judged) >= 0.97 * len(judged), opinfo.summary(rows)


@pytest.mark.slow
def test_all_operators():
    rows = opinfo.run(list(opinfo.infos()), opinfo.DTYPES, 3, jobs=2)
    assert not told(rows, WRONG, RAW, CRASHED)
    judged = [r for r in rows if r.outcome != ALIEN]
    assert sum(r.outcome == EQUAL for r in judged) >= 0.8 * len(judged), opinfo.summary(rows)


class TestTheJudge:
    """It finds what is wrong, or its silence says nothing."""

    def test_values(self):
        one = torch.tensor([1.0, 2.0])
        assert opinfo.differs(one.numpy(), one, None) == ""
        assert "1 of 2 differ: 2.5, torch has 2.0" in opinfo.differs(
            torch.tensor([1.0, 2.5]).numpy(), one, None
        )
        assert "NaN" in opinfo.differs(torch.tensor([1.0, float("nan")]).numpy(), one, None)
        assert "torch has torch.float32 (2,)" in opinfo.differs(one.double().numpy(), one, None)
        assert "(1, 2), torch has" in opinfo.differs(one[None].numpy(), one, None)

    def test_integers_are_the_same_or_wrong(self):
        big = torch.tensor([2**62 + 1])
        assert opinfo.differs(big.numpy(), big, None) == ""
        assert opinfo.differs((big - 1).numpy(), big, None)

    def test_a_large_error_of_torch_excuses_as_large_a_one_of_ours(self):
        theirs, exact = torch.tensor([1.001]), torch.tensor([1.0], dtype=torch.float64)
        assert opinfo.differs(torch.tensor([0.998]).numpy(), theirs, exact) == ""
        assert opinfo.differs(torch.tensor([0.99]).numpy(), theirs, exact)

    def test_places_of_equal_elements_are_anybodys_choice(self):
        x = torch.tensor([[3, 5, 5], [1, 1, 2]])
        ours, theirs = torch.tensor([[1, 2], [2, 0]]), torch.tensor([[2, 1], [2, 1]])
        assert opinfo.same_elements(x, ours, theirs, 1)
        assert not opinfo.same_elements(x, torch.tensor([[1, 1], [2, 0]]), theirs, 1)  # one twice
        assert not opinfo.same_elements(x, torch.tensor([[1, 0], [2, 0]]), theirs, 1)
        assert not opinfo.same_elements(x, torch.tensor([[1, 3], [2, 0]]), theirs, 1)  # outside

    def test_outcomes(self, monkeypatch):
        from torch.testing._internal.opinfo.core import SampleInput

        from autotensor.frontends.torch import CONVERTERS

        assert opinfo.judge(torch.abs, SampleInput(torch.randn(3)))[0] == EQUAL
        assert opinfo.judge(torch.nonzero, SampleInput(torch.randn(3)))[0] == opinfo.REFUSED
        monkeypatch.setitem(CONVERTERS, "aten.abs.default", CONVERTERS["aten.neg.default"])
        assert opinfo.judge(torch.abs, SampleInput(torch.randn(3)))[0] == WRONG
        monkeypatch.setitem(CONVERTERS, "aten.abs.default", lambda x: {}["nothing"])
        outcome, words = opinfo.judge(torch.abs, SampleInput(torch.randn(3)))
        assert outcome == opinfo.REFUSED  # a converter's mistake is a sentence, too
        assert "aten.abs.default cannot be converted (" in words
        monkeypatch.setattr("autotensor.compile_model", lambda *_, **__: {}["nothing"])
        assert opinfo.judge(torch.exp, SampleInput(torch.randn(3)))[0] == RAW

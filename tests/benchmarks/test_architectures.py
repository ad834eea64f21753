"""The judge of whole architectures: what it calls wrong, and what its counts mean."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import architectures  # noqa: E402
from nets import architecture_frames  # noqa: E402

EXACT = torch.linspace(-1, 1, 50, dtype=torch.float64)
SINGLE = [(EXACT + 1e-5 * torch.cos(torch.arange(50))).float()]


@pytest.mark.parametrize(
    ("got", "wrong"),
    [
        (SINGLE[0], ""),
        ((EXACT + 2.5e-5).float(), ""),
        ((EXACT + 5e-5).float(), "result 0: error 5.00e-05, torch's 1.00e-05"),
        (EXACT.float()[:49], "result 0: torch.float32[49], torch torch.float32[50]"),
        (EXACT, "result 0: torch.float64[50], torch torch.float32[50]"),
        (torch.where(EXACT > 0.9, torch.nan, EXACT).float(), "of 50 not finite"),
    ],
    ids=["torch's", "near", "far", "shape", "type", "nan"],
)
def test_an_error_may_be_three_times_torchs(got, wrong):
    ratio, why = architectures.compare([got.numpy()], SINGLE, [EXACT])
    assert wrong in why
    assert bool(why) == bool(wrong)
    assert not wrong or ratio > architectures.TIMES or ratio == 0


def test_results_are_counted_and_integers_are_equal():
    assert architectures.compare([], SINGLE, None)[1] == "0 results of 1"
    places = [torch.tensor([1, 2, 3])]
    assert (
        architectures.compare([torch.tensor([1, 2, 4])], places, places)[1]
        == "result 0: 1 of 3 integers differ"
    )
    assert architectures.compare([places[0]], places, places) == (0.0, "")


class Odd(torch.nn.Module):
    """No number in float64, and something else when it is exported."""

    def forward(self, x):
        x = torch.where(x > 0, x, float("nan")) if x.dtype is torch.float64 else x
        return x + 1 if torch.compiler.is_exporting() else x


def test_a_float64_run_without_numbers_judges_nobody():
    single, exact = architectures.references(Odd(), (torch.tensor([-1.0, 1.0]),), {})
    assert single[0].isfinite().all()
    assert exact is None


def test_a_program_that_is_another_one_when_exported_counts_for_nobody(monkeypatch):
    x = torch.tensor([1.0, 2.0])
    monkeypatch.setattr(architectures, "made", lambda *_: (Odd(), (x,), {}))
    *_, row = architectures.judge("timm", "odd", ["from_torch"])
    found = row["routes"]["from_torch"]
    assert found["status"] == "not torch's"
    assert "torch.export's program differs from the module: result 0" in found["why"]


def test_what_torch_cannot_do_counts_for_nobody():
    rows = [
        {"library": "timm", "name": n, "routes": {"onnx": {"status": s}}}
        for n, s in enumerate(["ok", "ok", "wrong", "not torch's", "died"])
    ]
    text = architectures.summary(
        [*rows, {"library": "timm", "name": "x", "excluded": "large", "routes": {}}], ["onnx"]
    )
    assert text.splitlines()[0].split()[:6] == ["onnx", "timm", "50.0", "%", "of", "4:"]


def test_a_signal_is_the_failure_of_its_route(monkeypatch):
    def judge(library, name, routes):
        done = {"library": library, "name": name, "routes": {}}
        for route in routes:
            if route == "compile":
                os.kill(os.getpid(), 9)
            done["routes"][route] = {"status": "ok"}
            yield done

    monkeypatch.setattr(architectures, "judge", judge)
    row = architectures.in_child("timm", "resnet18", ["from_torch", "compile", "onnx"], 60)
    assert [v["status"] for v in row["routes"].values()] == ["ok", "died", "ok"]
    assert row["routes"]["compile"]["why"] == "exit status -9"


def test_configurations_are_made_small_in_all_their_parts():
    part = SimpleNamespace(
        model_type="text", to_dict=dict, hidden_size=768, num_hidden_layers=12, vocab_size=30_000
    )
    config = SimpleNamespace(
        model_type="two", to_dict=dict, text=part, use_cache=True, image_size=224, eos_token_id=29_999,
        vocab_size=30_000, num_hidden_layers=3, layer_types=["a", "b", "a"],
    )  # fmt: skip
    made = architecture_frames.shrunk(config)
    assert (made.text.hidden_size, made.text.num_hidden_layers, made.text.vocab_size) == (64, 2, 512)
    assert (made.image_size, made.use_cache, made.eos_token_id, made.layer_types) == (
        128,
        False,
        3,
        ["a", "b"],
    )


def test_what_hides_an_operator_gets_noise():
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    weight = net[0].weight.clone()
    architecture_frames._lively(net)
    assert torch.equal(net[0].weight, weight)
    assert all(t.std() > 0 for t in (net[1].weight, net[1].bias, net[1].running_mean, net[1].running_var))

"""`torch.compile(model, backend="autotensor")` compared with eager mode; graph breaks; parts that stay in
eager mode."""

from __future__ import annotations

import importlib.metadata
import threading
import tomllib
import warnings
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch_modules import MODULES, Lambda, flat  # noqa: E402

from autotensor.base.errors import AutotensorError  # noqa: E402
from autotensor.integrations import torch_compile  # noqa: E402
from autotensor.integrations.torch_compile import autotensor  # noqa: E402
from autotensor.integrations.torch_options import Options  # noqa: E402

LOG = {"log": ":memory:", "quiet": True}


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    torch_compile._said.clear()
    yield
    torch._dynamo.reset()


@pytest.fixture
def parts(monkeypatch):
    """The compiled parts and the refused parts: a list of modules and reasons."""
    seen = []
    compile_part, tell = torch_compile.compile_part, torch_compile._tell

    def compiled(*args):
        part = compile_part(*args)
        seen.append(part)
        return part

    def told(why, options):
        seen.append(why)
        tell(why, options)

    monkeypatch.setattr(torch_compile, "compile_part", compiled)
    monkeypatch.setattr(torch_compile, "_tell", told)
    return seen


def compiled(module, **options):
    return torch.compile(module, backend=autotensor, options={**LOG, **options})


def check(got, expected):
    assert len(flat(got)) == len(flat(expected))
    for g, e in zip(flat(got), flat(expected), strict=True):
        assert (g.dtype, g.shape) == (e.dtype, e.shape)
        torch.testing.assert_close(g, e, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("name", MODULES)
def test_equals_eager(name, parts):
    module, inputs = MODULES[name]()
    expected = module(*(x.clone() for x in inputs))
    f = compiled(module)
    # Without allow_rnn, recurrent layers never come here.
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
        check(f(*(x.clone() for x in inputs)), expected)
        check(f(*(x.clone() for x in inputs)), expected)
    assert parts, "nothing was compiled"
    assert not [p for p in parts if isinstance(p, str)]


class Branching(nn.Module):
    """Python branches on a value and prints, so there are three parts."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        y = self.a(x)
        if x.sum() > 0:
            return torch.relu(self.b(y)) + 1
        return self.b(-y) * 2


def test_graph_breaks(parts):
    torch.manual_seed(1)
    module = Branching().eval()
    f = compiled(module)
    with torch.no_grad():
        for sign in (1, -1):
            x = torch.randn(3, 4) * sign
            check(f(x), module(x))
            check(f(-x), module(-x))
    assert len(parts) >= 3


def test_inputs_that_are_written_to(parts):
    def step(x, cache):
        cache[1:3] = x * 2
        x.add_(1)
        return cache.sum(), x.view(-1)

    x, cache = torch.randn(2, 3), torch.zeros(4, 3)
    x2, cache2 = x.clone(), cache.clone()
    with torch.no_grad():
        got = torch.compile(step, backend=autotensor, options=LOG)(x, cache)
        check(got, step(x2, cache2))
    assert torch.equal(x, x2)
    assert torch.equal(cache, cache2)
    got[1].zero_()
    assert x.abs().sum() == 0, "the view shares memory with what it is a view of"


def test_weights_that_change_are_seen(parts):
    module = nn.Linear(3, 2).eval()
    f, x = compiled(module), torch.randn(4, 3)
    with torch.no_grad():
        check(f(x), module(x))
        module.weight.mul_(3)
        check(f(x), module(x))
        module.load_state_dict({"weight": torch.ones(2, 3), "bias": torch.zeros(2)})
        check(f(x), module(x))
        check(compiled(module, constant_weights=False)(x), module(x))


def test_a_block_that_is_compiled_alone_keeps_code_for_every_layer(parts):
    """Dynamo uses one part for all blocks, and passes their weights to it."""
    layers = [nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval() for _ in range(5)]
    for n, layer in enumerate(layers):
        layer[1].running_mean.fill_(n)
    calls, x = [compiled(layer) for layer in layers], torch.randn(3, 4)
    with torch.no_grad():
        for _ in range(3):
            for f, layer in zip(calls, layers, strict=True):
                check(f(x), layer(x))
        assert len(parts) == len(layers)
        layers[1][0].weight.mul_(3)
        for f, layer in zip(calls, layers, strict=True):
            check(f(x), layer(x))
        assert len(parts) == len(layers) + 1


def test_code_for_weights_that_are_gone_is_dropped(monkeypatch):
    made = []

    class Kept(torch_compile._Part):
        def __init__(self, *args):
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr(torch_compile, "_Part", Kept)
    module, x = nn.Linear(3, 2).eval(), torch.randn(4, 3)
    unsafe = torch.compiler.skip_guard_on_inbuilt_nn_modules_unsafe
    f = compiled(module, guard_filter_fn=unsafe)
    with torch.no_grad():
        for n in range(5):
            module.weight = nn.Parameter(torch.full((2, 3), float(n)))
            check(f(x), module(x))
    assert sum(len(part._codes) for part in made) <= 2


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)
        self.bn.running_mean.uniform_()
        self.bn.running_var.uniform_(0.5, 2)

    def forward(self, x):
        return self.bn(self.conv(x))


def test_buffers_are_constants_so_that_norms_are_folded(parts):
    module, x = Normed().eval(), torch.randn(1, 2, 5, 5)
    f = compiled(module)
    with torch.no_grad():
        check(f(x), module(x))
        assert len(parts[0].inputs) == 1, "weights and statistics are not read at every call"
        module.load_state_dict(Normed().state_dict())
        check(f(x), module(x))
    assert [len(p.inputs) for p in parts] == [1, 1]


class Counting(nn.Module):
    """Writes into its own buffer at every call."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(3))
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x):
        self.calls.add_(1)
        return x * self.calls * self.scale


def test_a_buffer_that_the_part_writes_to_is_no_constant(parts):
    module, x = Counting().eval(), torch.randn(3)
    f = compiled(module)
    with torch.no_grad():
        for n in range(1, 5):
            check(f(x), x * n)
    assert module.calls.tolist() == [4, 4, 4]
    assert len(parts) == 1, "nothing was compiled anew"


def test_a_buffer_that_others_keep_changing_is_read_at_every_call_in_the_end(parts):
    module, x = Normed().eval(), torch.randn(1, 2, 5, 5)
    f = compiled(module)
    with torch.no_grad():
        for n in range(torch_compile.MOST_CHANGES + 3):
            module.bn.running_mean.fill_(n)
            check(f(x), module(x))
    assert len(parts) == 1 + torch_compile.MOST_CHANGES
    assert len(parts[-1].inputs) == 2


@pytest.mark.parametrize(
    "options", [{}, {"guard_filter_fn": torch.compiler.skip_guard_on_inbuilt_nn_modules_unsafe}]
)
def test_weights_that_are_replaced_are_seen(parts, options):
    """Also if the new weights get the memory of the old ones, and without dynamo's guards."""
    module, x = nn.Linear(3, 2).eval(), torch.randn(4, 3)
    f = compiled(module, **options)
    with torch.no_grad():
        for n in range(4):
            module.weight = nn.Parameter(torch.full((2, 3), float(n)))
            check(f(x), module(x))
        module.weight.data = torch.ones(2, 3)
        check(f(x), module(x))


def test_results_that_share_memory_with_inputs_do_so(parts):
    """AOT autograd's own wrappers are left out only if they have no views or writes to repeat."""
    f = torch.compile(lambda x: (x * 2, x.view(-1)), backend=autotensor, options=LOG)
    x = torch.randn(2, 3)
    with torch.no_grad():
        doubled, view = f(x)
    check(doubled, x * 2)
    assert view.data_ptr() == x.data_ptr()


def test_results_lie_in_memory_as_torch_lays_them(parts):
    """Code after a graph break may read the strides."""

    def laid(x):
        y = x * 2
        return y, y.mT, torch.nn.functional.max_pool2d(y, 2), y[:, ::2]

    def broken(x):
        y = x * 2
        torch._dynamo.graph_break()
        return y.as_strided((2, 3), (1, 2)), y if y.is_contiguous() else -y

    image = torch.randn(2, 4, 6, 6).to(memory_format=torch.channels_last)
    for x in (image, image.permute(3, 0, 2, 1), torch.randn(1, 4, 6, 2).mT):
        for f in (laid, broken):
            got, expected = compiled(f)(x), f(x)
            check(got, expected)
            assert [g.stride() for g in got[:3]] == [e.stride() for e in expected[:3]]
    assert all(isinstance(p, torch_compile.CompiledPart) for p in parts)


def test_lazy_and_strided_arguments_are_read_as_they_mean(parts):
    f = torch.compile(lambda a: a * 2, backend=autotensor, options=LOG)
    with torch.no_grad():
        lazy = torch.randn(3, dtype=torch.complex64).conj().imag  # torch negates it only when it is read
        assert lazy.is_neg()
        check(f(lazy), lazy * 2)
        turned = torch.randn(4, 6).t()
        check(f(turned), turned * 2)


def test_sizes_that_change(parts):
    module = nn.Sequential(nn.Linear(3, 5), nn.ReLU()).eval()
    f = compiled(module)
    with torch.no_grad():
        for n in (2, 5, 7, 5, 1, 2):
            x = torch.randn(n, 3)
            check(f(x), module(x))
    assert not [p for p in parts if isinstance(p, str)]


def test_numbers_of_modules_when_all_sizes_are_open(parts):
    """Dynamo then passes a norm's epsilon in a tensor."""
    module = Normed().eval()
    f = torch.compile(module, backend=autotensor, options=LOG, dynamic=True)
    with torch.no_grad():
        for n, eps in ((5, 1e-5), (6, 1e-5), (5, 0.5), (6, 1e-5)):
            module.bn.eps = eps
            x = torch.randn(2, 2, n, n)
            check(f(x), module(x))
    assert not [p for p in parts if isinstance(p, str)]


class Times(nn.Module):
    """Multiplies by a number that does not follow from shapes: the part is compiled for each value that
    dynamo leaves open."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 5), nn.Linear(5, 2))

    def forward(self, x, number):
        return self.layers(x) * number


def test_sizes_of_weights_are_not_looked_at_again(monkeypatch, parts):
    module = Times().eval()
    f, looked = torch.compile(module, backend=autotensor, options=LOG, dynamic=True), []
    shape_of = torch_compile._shape_of
    with torch.no_grad():
        for n in (4, 6):
            f(torch.randn(n, 3), n + 7)
        monkeypatch.setattr(torch_compile, "_shape_of", lambda v: looked.append(v) or shape_of(v))
        x = torch.randn(6, 3)
        check(f(x, 13), module(x, 13))
    assert 1 <= len(looked) <= 3  # the number, the size and the tensor that has it
    assert not [x for x in looked if isinstance(x, nn.Parameter)]


def test_old_sizes_are_dropped(monkeypatch, parts):
    monkeypatch.setattr(torch_compile, "KEPT_SHAPES", 2)
    module = Times().eval()
    f = torch.compile(module, backend=autotensor, options=LOG, dynamic=True)
    with torch.no_grad():
        for n in (3, 4, 5, 6, 3):
            x = torch.randn(9, 3)
            check(f(x, n), module(x, n))
    assert len(parts) >= 5


def test_inference_mode_and_bfloat16(parts):
    module = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval()
    x = torch.randn(4, 8)
    with torch.inference_mode():
        check(compiled(module)(x), module(x))
        half, y = module.to(torch.bfloat16), x.to(torch.bfloat16)
        torch.testing.assert_close(compiled(half)(y), half(y), rtol=2e-2, atol=2e-2)
    assert not [p for p in parts if isinstance(p, str)]


def test_strided_and_shared_inputs():
    f = torch.compile(lambda a, b: a @ b + a, backend=autotensor, options=LOG)
    base = torch.randn(4, 8)
    a, b = base[:, ::2], base.t()[:4]
    with torch.no_grad():
        check(f(a, b), a @ b + a)
        check(f(a, a), a @ a + a)


def test_training_is_left_to_torch():
    module = nn.Linear(3, 2)
    f = torch.compile(module, backend=autotensor, options={"log": ":memory:"})
    x = torch.randn(4, 3)
    with pytest.warns(UserWarning, match=r"runs in eager mode: it needs gradients, .* under torch.no_grad"):
        f(x).sum().backward()
    assert module.weight.grad is not None
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f(x)  # the reason is given once


def test_what_is_not_converted_runs_in_eager_mode():
    f = torch.compile(lambda x: torch.linalg.svdvals(x) * 2, backend=autotensor, options={"log": ":memory:"})
    x = torch.randn(4, 4)
    with torch.no_grad():
        with pytest.warns(UserWarning, match=r"eager mode: .*svd.* not supported"):
            got = f(x)
        check(got, torch.linalg.svdvals(x) * 2)


def test_what_torch_cannot_trace_runs_in_eager_mode(monkeypatch):
    def asserts(*_, **__):
        raise AssertionError("aot_autograd expected to have an entirely functional graph")

    monkeypatch.setattr(torch_compile, "aot_module_simplified", asserts)
    f = torch.compile(lambda x: x.sin(), backend=autotensor, options={"log": ":memory:"})
    x = torch.randn(3)
    with pytest.warns(UserWarning, match="torch cannot trace it: aot_autograd expected"):
        assert torch.equal(f(x), x.sin())


def test_results_are_not_copied():
    """A compiled part reads its inputs where they are."""
    seen = []
    part = torch_compile.CompiledPart(lambda *a: seen.extend(a) or a[0], (0, 1), (("out", 0), ("arg", 1)))
    x, y = torch.randn(4), torch.randn(3).to(torch.bfloat16)
    out = part([x, y])
    assert [a.ctypes.data for a in seen] == [x.data_ptr(), y.data_ptr()]
    assert out[0].data_ptr() == x.data_ptr()
    assert out[1] is y


def test_options():
    assert Options.of(None).trials == 0
    assert Options.of({"log": ":memory:", "trials": 3}).trials == 3


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"trails": 3}, r"backend autotensor has no option 'trails'. Did you mean 'trials'"),
        ({"trials": -1}, r"trials is -1; it must be a whole number, not negative"),
        ({"trials": "many"}, r"trials is 'many'; it must be a whole number"),
        ({"target": "quantum"}, r"target kind 'quantum' is unknown. Known: llvm"),
        ({"target": "vdlc"}, r"target 'vdlc' cannot run whole models"),
        ({"seed": "a"}, r"seed is 'a'; it must be a whole number"),
        ({"log": "nix.db"}, r"there is no tuning log at nix.db. Check the path, or tune first"),
        ({"log": "no/such/x.db", "trials": 1}, r"there is no directory no/such for the tuning log x.db"),
        ({"log": __file__}, r"is not a tuning log: it is not a SQLite database"),
    ],
)
def test_options_that_no_part_could_be_compiled_under(given, said):
    """They are refused, because a model that runs in eager mode as a whole would not be compiled at all."""
    f = torch.compile(Lambda(lambda x: x * 2), backend=autotensor, options=given)
    with pytest.raises(Exception, match=said) as raised, torch.no_grad():
        f(torch.randn(3))
    assert isinstance(raised.value.inner_exception, AutotensorError)


@pytest.mark.parametrize("dynamic", [False, True])
def test_an_answer_before_it_is_compiled(dynamic, monkeypatch):
    from autotensor.api import models

    opened, linked = threading.Event(), models.linked

    def later(*args, **options):
        assert opened.wait(60)
        return linked(*args, **options)

    monkeypatch.setattr(models, "linked", later)
    module = Lambda(lambda x: torch.relu(x @ x.T) * 2)
    f = torch.compile(module, backend=autotensor, options={**LOG, "instant": True}, dynamic=dynamic)
    with torch.no_grad():
        for rows in (3, 4):
            x = torch.randn(rows, 5)
            check(f(x), module(x))
        opened.set()
        check(f(x), module(x))


def test_trials_take_longer_than_an_instant():
    f = torch.compile(Lambda(lambda x: x * 2), backend=autotensor, options={"instant": True, "trials": 2})
    with (
        pytest.raises(Exception, match="2 trials would be measured before the first answer"),
        torch.no_grad(),
    ):
        f(torch.randn(3))


@pytest.mark.slow
def test_trials_are_measured_and_kept(tmp_path):
    from tuning_db import connect

    module = Lambda(lambda x: torch.relu(x) * 2)
    f = torch.compile(
        module, backend=autotensor, options={"log": str(tmp_path / "t.db"), "trials": 2, "quiet": True}
    )
    x = torch.randn(16, 16)
    with torch.no_grad():
        check(f(x), module(x))
    with connect(str(tmp_path / "t.db")) as store:
        assert store.count() > 0


def test_the_entry_point_is_declared(monkeypatch):
    """pyproject.toml declares the backend, so that torch finds it by its name."""
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    points = tomllib.loads(text)["project"]["entry-points"]["torch_dynamo_backends"]
    point = importlib.metadata.EntryPoint("autotensor", points["autotensor"], "torch_dynamo_backends")
    assert point.load() is autotensor
    from torch._dynamo.backends import registry

    monkeypatch.setitem(registry._BACKENDS, "autotensor", point)
    registry._COMPILER_FNS.pop("autotensor", None)
    module, inputs = MODULES["mlp"]()
    with torch.no_grad():
        check(torch.compile(module, backend="autotensor", options=LOG)(*inputs), module(*inputs))

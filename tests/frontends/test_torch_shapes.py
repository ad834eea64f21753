"""Extents that a call may choose: `dynamic_shapes`, and exported programs with `Dim`s."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.export import Dim  # noqa: E402

import autotensor as at  # noqa: E402
from autotensor.api import open_models  # noqa: E402
from autotensor.base.errors import ArgumentError, GraphError, InputError  # noqa: E402
from autotensor.frontends.torch import Unsupported  # noqa: E402
from autotensor.frontends.torch.sized_graphs import sized, symbols_of_sizes  # noqa: E402
from autotensor.graph.evaluate import evaluate  # noqa: E402


class Scores(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x, y, *, scale=2.0):
        return self.layer(x) @ self.layer(y).T * scale, x.sum(0)


SHAPES = {"x": {0: 4 * Dim("n", min=1, max=16)}, "y": {0: Dim("rows", max=9)}, "scale": None}


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return Scores().eval()


@pytest.fixture(scope="module")
def f(net):
    graph = at.from_torch(net, (torch.zeros(8, 4), torch.zeros(6, 4)), {"scale": 3.0}, dynamic_shapes=SHAPES)
    return at.compile_model(graph, db=":memory:")


@pytest.mark.parametrize(("n", "m"), [(8, 6), (4, 1), (12, 9), (8, 2), (64, 0)])
def test_other_shapes_give_the_right_answer(net, f, n, m):
    x, y = torch.randn(n, 4), torch.randn(m, 4)
    for got, wanted in zip(f(x.numpy(), y.numpy()), net(x, y, scale=3.0), strict=True):
        np.testing.assert_allclose(got, wanted.detach().numpy(), rtol=1e-4, atol=1e-5)
    f(y=y.numpy(), x=x.numpy())
    assert len(f.modules) <= 2, "one program, and one for no rows at all"


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ((68, 4), (3, 4), r"scores: axis 0 of input 'x' is 68; it takes 4 to 64\."),
        ((6, 4), (3, 4), r"axis 0 of input 'x' is 6; it takes 4 to 64 of the form 4\*n\."),
        ((8, 4), (10, 4), r"axis 0 of input 'y' is 10; it takes 0 to 9\."),
        ((8, 5), (3, 4), r"axis 1 of input 'x' is 5; it takes 4\."),
        ((8,), (3, 4), r"input 'x' is of shape \[8\]; it has 2 axes\."),
    ],
)
def test_what_a_dim_does_not_allow_is_one_sentence(f, x, y, message):
    with pytest.raises(ArgumentError, match=message):
        f(np.zeros(x, np.float32), np.zeros(y, np.float32))


def test_the_program_is_saved(f, tmp_path):
    f.save(tmp_path / "open.atm")
    loaded = at.load(tmp_path / "open.atm")
    assert repr(loaded).startswith("<OpenModule scores(x: float32[n * 4, 4], y: float32[rows, 4], ")
    assert "n from 1 to 16, rows from 1 to 9" in repr(loaded)
    for n, m in ((8, 6), (60, 3)):
        x, y = torch.randn(n, 4), torch.randn(m, 4)
        np.testing.assert_allclose(loaded(x.numpy(), y.numpy())[1], x.sum(0).numpy(), rtol=1e-4, atol=1e-5)


def test_extents_that_depend_on_each_other(net):
    class Joined(nn.Module):
        def forward(self, a, b):
            return a * 2 + b[1:]

    n = Dim("n", min=2, max=50)
    program = torch.export.export(
        Joined(), (torch.zeros(5), torch.zeros(6)), dynamic_shapes={"a": {0: n}, "b": {0: n + 1}}
    )
    f = at.compile_model(program, db=":memory:")
    a, b = np.arange(9, dtype=np.float32), np.ones(10, np.float32)
    np.testing.assert_array_equal(f(a, b), a * 2 + 1)
    with pytest.raises(ArgumentError, match=r"axis 0 of input 'b' is 9; it takes 10 next to the other axes"):
        f(a, b[1:])


class Remainder(nn.Module):
    """A remainder of an extent: no program serves all."""

    def forward(self, x):
        return x[: x.shape[0] % 3 + 2] * 2


def test_no_more_than_so_many_shapes_are_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(open_models, "KEPT_SHAPES", 2)
    program = torch.export.export(Remainder(), (torch.zeros(5),), dynamic_shapes=({0: Dim("n", min=4)},))
    f = at.compile_model(program, db=":memory:")
    for n in (4, 7, 9):
        assert f(-np.ones(n, np.float32)).shape == (n % 3 + 2,)
    assert [m.signature.inputs[0].shape for m in f.modules] == [(7,), (9,)]
    f.save(tmp_path / "met.atm")
    assert len(at.load(tmp_path / "met.atm").modules) == 2


def test_bounds_of_which_there_is_no_program():
    program = at.from_torch(Remainder(), torch.zeros(5), dynamic_shapes=({0: Dim("length", min=4, max=30)},))
    wanted = r"has an extent that is not a sum of products .*: 2 at length = 30; .*at\.by_shape"
    with pytest.raises(GraphError, match=wanted):
        at.compile_model(program, db=":memory:")


def test_an_extent_without_end(monkeypatch):
    monkeypatch.setattr(open_models, "REACH", 8)
    program = torch.export.export(nn.ReLU(), (torch.zeros(5, 2),), dynamic_shapes=({0: Dim("n")},))
    f = at.compile_model(program, db=":memory:")
    for n in (3, 1, 16, 17, 64, 33):
        x = np.random.default_rng(n).standard_normal((n, 2), np.float32)
        np.testing.assert_array_equal(f(x), np.maximum(x, 0))
    assert [m.open_shapes.symbols[0][1:] for m in f.modules] == [(1, 16), (1, 64)]


def test_a_table_that_ends_before(monkeypatch):
    class Placed(nn.Module):
        def __init__(self):
            super().__init__()
            self.places = nn.Embedding(100, 3)

        def forward(self, x):
            return x + self.places(torch.arange(x.shape[0]))

    net = Placed().eval()
    f = at.compile_model(
        at.from_torch(net, torch.zeros(5, 3), dynamic_shapes=({0: Dim("n")},)), db=":memory:"
    )
    for n in (64, 2, 40):
        x = torch.randn(n, 3)
        np.testing.assert_allclose(f(x), net(x).detach().numpy(), rtol=1e-6)
    (program,) = f.modules
    assert program.open_shapes.symbols[0][1:] == (1, 64)


def test_parts_of_torch_are_exported_for_each_member():
    class Either(nn.Module):
        def forward(self, x, yes):
            return torch.cond(yes, lambda x: x * 2, lambda x: x + 1, (x,))

    shapes = {"x": {0: Dim("n", min=1, max=9)}, "yes": None}
    graph = at.from_torch(Either(), (torch.zeros(5), torch.tensor(True)), dynamic_shapes=shapes)
    f, x = at.compile_model(graph, db=":memory:"), np.arange(7, dtype=np.float32)
    np.testing.assert_array_equal(f(x, np.array(True)), x * 2)
    np.testing.assert_array_equal(f(x[:3], np.array(False)), x[:3] + 1)
    assert len(f.modules) == 1


def test_plans():
    program = torch.export.export(nn.ReLU(), (torch.zeros(5),), dynamic_shapes=({0: Dim("n")},))
    graph = at.from_torch(program, name="relu")
    with pytest.raises(InputError, match=r"'relu' has open extents\. Give them: graph\.at\(shapes\)"):
        at.plan_model(graph)
    bounded = at.from_torch(nn.ReLU(), torch.zeros(5), dynamic_shapes=({0: Dim("n", max=9)},), name="relu")
    assert at.plan_model(bounded).opened.shapes["input"][0].name == "n"
    assert [t.name for t in at.plan_model(graph.at({"input": (7,)})).tasks] == ["relu 7"]
    assert repr(graph) == "<OpenProgram relu(input: [batch])>"
    assert repr(bounded) == "<OpenProgram relu(input: [n])>"
    with pytest.raises(InputError, match=r"dynamic_shapes is True; it names the open axes of each input\."):
        at.from_torch(nn.ReLU(), torch.zeros(5), dynamic_shapes=True)
    with pytest.raises(InputError, match=r"dynamic_shapes is for modules; an exported program has its own"):
        at.from_torch(program, dynamic_shapes=({0: Dim("n")},))


def test_torchs_own_words_where_an_extent_is_fixed():
    class Fixed(nn.Module):
        def forward(self, x):
            return x + torch.ones(5)

    with pytest.raises(Unsupported, match=r"torch\.export cannot export Fixed: .*"):
        at.from_torch(Fixed(), torch.zeros(5), dynamic_shapes=({0: Dim("n")},))


def test_models_of_frameworks_are_named_the_way(tmp_path):
    with pytest.raises(InputError, match=r"Linear is a torch module.*at\.compile_model\(at\.from_torch\("):
        at.compile_model(nn.Linear(3, 4))
    with pytest.raises(InputError, match=r"got str\. Read a file by at\.from_onnx\(file\)"):
        at.compile_model("net.onnx")
    f = at.compile_model(torch.export.export(nn.ReLU(), (torch.zeros(5),)), db=":memory:")
    np.testing.assert_array_equal(f(-np.ones(5, np.float32)), np.zeros(5))


# -- numbers that are data -----------------------------------------------------------------------------------


class Lambda(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *x):
        return self.function(*x)


@pytest.mark.parametrize("place", [2, 0, -1])
def test_an_index_may_be_data(place):
    x, i = torch.randn(3, 4), torch.tensor([place])
    f = at.compile_model(at.from_torch(Lambda(lambda x, i: x[:, i[0]] * i[0].item()), (x, i)), db=":memory:")
    np.testing.assert_allclose(f(x.numpy(), i.numpy()), (x[:, place] * place).numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda x, i: x[:, : i[0]],
            r"slice.Tensor gives a shape that depends on data .*Give it a fixed",
        ),
        (lambda x, i: torch.arange(i[0].item()), r"arange.* gives a shape that depends on data"),
        (lambda x, i: x.nonzero(), r"nonzero.default gives a shape that depends on data"),
        (lambda x, i: x if i[0].item() > 0 else -x, r"cannot export Lambda: Could not guard on data"),
    ],
)
def test_sizes_may_not(function, message):
    with pytest.raises(Unsupported, match=message):
        at.from_torch(Lambda(function), (torch.randn(3, 4), torch.tensor([2])))


def test_a_buffer_that_is_given_its_own_value_is_not_written():
    class Moves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.arange(6.0).reshape(2, 3))

        def forward(self, x):
            self.table = self.table.to(x.device)
            return x + self.table

    x = torch.randn(2, 3)
    (got,) = evaluate(at.from_torch(Moves(), (x,)), x.numpy())
    np.testing.assert_allclose(got, Moves()(x).numpy())


def test_what_is_only_asserted_is_not_computed():
    """torch's checks of data: that all elements are true, of a single number, and of arithmetic on data."""

    class Checks(nn.Module):
        def forward(self, x):
            torch._check_tensor_all(x > -100)
            count = (x > 0).sum().item()
            torch._check(count + 1 >= 1)
            return x * 2

    x = torch.randn(2, 3)
    (got,) = evaluate(at.from_torch(Checks(), (x,)), x.numpy())
    np.testing.assert_allclose(got, 2 * x.numpy())


def test_arithmetic_on_numbers_of_the_data_is_refused_in_a_sentence():
    class Scales(nn.Module):
        def forward(self, x):
            return x * ((x > 0).sum().item() + 1)

    with pytest.raises(Unsupported, match="Python computes with a number that depends on data") as said:
        at.from_torch(Scales(), (torch.randn(2, 3),))
    assert "test_torch_shapes.py" in str(said.value)


def test_the_one_row_of_a_table_is_computed_without_its_index():
    class Row(nn.Module):
        def forward(self, x, i):
            return x[i] * 2

    x, i = torch.randn(1, 3), torch.zeros(4, dtype=torch.int64)
    f = at.compile_model(at.from_torch(Row(), (x, i)), db=":memory:")
    np.testing.assert_allclose(f(x.numpy(), i.numpy()), 2 * x[i].numpy())


def test_who_writes_is_told_what_to_do_instead():
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x):
            self.count.add_(1)
            return x + self.count

    with pytest.raises(
        Unsupported, match=r"counts writes to its buffer 'count'\. Take its value as an input"
    ):
        at.from_torch(Counts().eval(), torch.ones(3))
    with pytest.raises(
        Unsupported, match=r"writes into its input 'x_0'\. Write to a clone of it; torch\.comp"
    ):
        at.from_torch(Lambda(lambda x: x.add_(1) * 2), torch.ones(3))


def test_sizes_that_torch_refuses_leave_no_traceback(caplog):
    """An exported program need not be defined outside the range of its `Dim`, so such a call is not counted
    as a fault."""

    class Table(nn.Module):
        def forward(self, x):
            return x + torch.arange(8.0)[: x.shape[0]]

    program = torch.export.export(Table(), (torch.zeros(4),), dynamic_shapes=({0: Dim("n", max=8)},))
    symbols = symbols_of_sizes(n.meta.get("val") for n in program.graph.nodes)
    assert sized(program.graph, dict.fromkeys(symbols, 8))
    with pytest.raises(Unsupported, match=r"aten\.add\.Tensor"):
        sized(program.graph, dict.fromkeys(symbols, 9))
    assert not [r for r in caplog.records if r.levelname == "ERROR"]


class Cached(nn.Module):
    """Attention to earlier positions and to those of the call, as in a decoder with a cache."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(64, 8)

    def forward(self, x, past):
        before = past.shape[1]
        places = torch.arange(before, before + x.shape[1])
        x = x + self.table(places)
        keys = torch.cat([past, x], 1)
        seen = torch.arange(keys.shape[1])[None] <= places[:, None]
        scores = (x @ keys.transpose(1, 2)).masked_fill(~seen, float("-inf"))
        return scores.softmax(-1) @ keys


def test_positions_and_masks_begin_after_a_cache():
    net = Cached().eval()
    length, before = Dim("length", min=1, max=8), Dim("before", min=1, max=20)
    example = (torch.randn(2, 3, 8), torch.randn(2, 5, 8))
    graph = at.from_torch(net, example, dynamic_shapes=({1: length}, {1: before}))
    f = at.compile_model(graph, target="llvm -threads=1")
    for rows, earlier in ((1, 1), (8, 20), (5, 2), (1, 19)):
        x, past = torch.randn(2, rows, 8), torch.randn(2, earlier, 8)
        wanted = net(x, past).detach().numpy()
        np.testing.assert_allclose(f(x.numpy(), past.numpy()), wanted, rtol=1e-4, atol=1e-5)
    assert len(f.modules) == 1


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular", "constant"])
def test_images_of_any_size_are_rolled_and_get_borders(mode):
    class Moved(nn.Module):
        def forward(self, x):
            return torch.roll(nn.functional.pad(x, (1, 2, 3, 1), mode=mode), (1, -2), (2, 3)) * 2

    sizes = {2: Dim("h", min=4, max=24), 3: Dim("w", min=4, max=24)}
    graph = at.from_torch(Moved(), (torch.randn(1, 2, 7, 8),), dynamic_shapes=(sizes,))
    f = at.compile_model(graph, target="llvm -threads=1")
    for h, w in ((4, 4), (24, 24), (5, 23), (13, 6)):
        x = torch.randn(1, 2, h, w)
        np.testing.assert_array_equal(f(x.numpy()), Moved()(x).numpy())
    assert len(f.modules) == 1


@pytest.mark.parametrize(
    "said", [{"scale_factor": 2}, {"scale_factor": 2, "align_corners": True}, {"size": (9, 5)}]
)
def test_images_of_any_size_are_resized(said):
    class Resized(nn.Module):
        def forward(self, x):
            return nn.functional.interpolate(x, mode="bilinear", **said)

    sizes = {2: Dim("h", min=4, max=24), 3: Dim("w", min=4, max=24)}
    graph = at.from_torch(Resized(), (torch.randn(1, 2, 7, 8),), dynamic_shapes=(sizes,))
    f = at.compile_model(graph, target="llvm -threads=1")
    for h, w in ((4, 4), (24, 24), (5, 23), (13, 6)):
        x = torch.randn(1, 2, h, w)
        np.testing.assert_allclose(f(x.numpy()), Resized()(x).numpy(), rtol=1e-5, atol=1e-5)
    assert len(f.modules) == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x: nn.functional.adaptive_avg_pool2d(x, (3, 4)),
        lambda x: nn.functional.adaptive_max_pool2d(x, (3, 4)),
        lambda x: nn.functional.interpolate(x, (9, 5)),
        lambda x: nn.functional.interpolate(x, (x.shape[2] // 2, x.shape[3] // 3)),
    ],
    ids=["means", "greatest", "nearest of a size", "nearest of parts"],
)
def test_images_of_any_size_are_pooled_and_thinned_out(function):
    class Pooled(nn.Module):
        def forward(self, x):
            return function(x)

    sizes = {2: Dim("h", min=6, max=40), 3: Dim("w", min=6, max=40)}
    graph = at.from_torch(Pooled(), (torch.randn(1, 2, 7, 11),), dynamic_shapes=(sizes,))
    f = at.compile_model(graph, target="llvm -threads=1")
    for h, w in ((6, 6), (40, 40), (39, 40), (7, 38), (14, 15), (15, 14)):
        x = torch.randn(1, 2, h, w)
        np.testing.assert_allclose(f(x.numpy()), function(x).numpy(), rtol=1e-5, atol=1e-6)
    assert len(f.modules) == 1

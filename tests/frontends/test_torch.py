"""`at.from_torch` against eager torch, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch_modules import MODULES, Lambda, flat  # noqa: E402

import autotensor as at  # noqa: E402
from autotensor.base.errors import GraphError, InputError  # noqa: E402
from autotensor.frontends.torch import CONVERTERS, Unsupported, converts  # noqa: E402
from autotensor.frontends.torch.element_types import common, to_array, to_tensor  # noqa: E402
from autotensor.graph.evaluate import evaluate  # noqa: E402


def close(got: np.ndarray, wanted: torch.Tensor) -> None:
    expected = to_array(wanted)
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(
        got, expected, rtol=1e-4, atol=1e-4 * max(1.0, np.abs(expected).max(initial=0))
    )


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("name", MODULES)
def test_graph_means_what_the_module_does(name):
    module, inputs = MODULES[name]()
    expected = flat(module(*inputs))
    graph = at.from_torch(module, inputs)
    got = evaluate(graph, *(to_array(x) for x in inputs))
    assert len(got) == len(expected)
    for g, e in zip(got, expected, strict=True):
        close(g, e)


@pytest.mark.parametrize("name", ["mlp", "cnn", "lstm", "encoder", "indexing", "in_place", "results"])
def test_compiled_module_equals_eager(name):
    module, inputs = MODULES[name]()
    graph = at.from_torch(module, inputs)
    got = at.compile_model(graph, db=":memory:")(*(to_array(x) for x in inputs))
    for g, e in zip(got if isinstance(got, tuple) else (got,), flat(module(*inputs)), strict=True):
        close(g, e)


def test_names_come_from_the_module():
    module, inputs = MODULES["results"]()
    graph = at.from_torch(module, inputs)
    assert graph.input_names == ("x",)
    assert graph.output_names == ("logits", "states_0", "states_1", "again")
    module, inputs = MODULES["cnn"]()
    graph = at.from_torch(module, inputs[0], name="my net")
    assert (graph.name, graph.output_names) == ("my_net", ("output",))
    assert "stem.0.weight" in {c.name for c in graph.constants}


def test_an_exported_program_needs_no_examples():
    module, inputs = MODULES["mlp"]()
    graph = at.from_torch(torch.export.export(module, inputs))
    close(evaluate(graph, to_array(inputs[0]))[0], module(*inputs))


def test_arguments_by_name_and_numbers_among_them():
    class Scaled(nn.Module):
        def forward(self, x, *, scale, shift=None):
            return x * scale if shift is None else x * scale + shift

    x = torch.randn(3)
    graph = at.from_torch(Scaled(), (x,), {"scale": 2.5})
    assert graph.input_names == ("x",)
    close(evaluate(graph, to_array(x))[0], x * 2.5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int8])
def test_other_types(dtype):
    x = (torch.randn(4, 6) * 3).to(dtype)
    module = Lambda(lambda v: v + v.relu())
    got = at.compile_model(at.from_torch(module, x), db=":memory:")(to_array(x))
    assert torch.equal(to_tensor(got), module(x))


def test_weights_are_attention_and_dense_still():
    """Operators that a schedule needs whole are not decomposed."""
    module, inputs = MODULES["encoder"]()
    graph = at.from_torch(module, inputs)
    assert graph.count("attention") == 1
    assert graph.count("dense") == 4
    assert graph.count("layer_norm") == 2


@pytest.mark.parametrize(
    ("module", "inputs", "message"),
    [
        (nn.BatchNorm1d(4), (torch.randn(3, 4),), r"training mode changes its buffers.*Call .eval\(\)"),
        (nn.Dropout(), (torch.randn(3),), r"dropout is random in training mode|random"),
        (Lambda(lambda x: x.add_(1) * 2), (torch.randn(3),), r"writes into its input 'args_0'.*clone of it"),
        (Lambda(lambda x: x[x > 0]), (torch.randn(3),), r"that depends on data .* Use torch.where"),
        (Lambda(lambda x: x * 2 if x.sum() > 0 else x), (torch.randn(3),), r"torch.export cannot export"),
        (Lambda(lambda x: x + torch.rand(3)), (torch.randn(3),), r"aten.rand.default: random numbers"),
        (Lambda(lambda x: torch.fft.fft(x)), (torch.randn(4),), r"a complex result .*\(torch_m.*_as_real"),
        (Lambda(torch.linalg.svdvals), (torch.randn(4, 4),), r"not supported \(torch_modules"),
        (Lambda(lambda x: 3), (torch.randn(4, 4),), r"returns 3, which is not a tensor|no tensor"),
    ],
    ids=["batch", "dropout", "writes", "mask", "branch", "random", "complex", "operator", "number"],
)  # fmt: skip
def test_refusals_are_one_sentence(module, inputs, message):
    with pytest.raises(Unsupported, match=message):
        at.from_torch(module, inputs)


def test_what_is_not_a_module():
    with pytest.raises(InputError, match=r"takes a torch.nn.Module or an exported program, not function"):
        at.from_torch(lambda x: x, (torch.ones(1),))
    with pytest.raises(InputError, match=r"example_inputs is a dict, expected a tuple of tensors"):
        at.from_torch(nn.ReLU(), {"x": torch.ones(1)})
    with pytest.raises(InputError, match=r"example_kwargs is a list, expected inputs by name"):
        at.from_torch(nn.ReLU(), (torch.ones(1),), [1])


def test_inputs_that_the_module_does_not_take():
    with pytest.raises(
        Unsupported, match=r"cannot export Linear: .*\[2, 5\] X \[4, 3\]\. If the module runs on"
    ):
        at.from_torch(nn.Linear(4, 3), (torch.ones(2, 5),))


def test_a_converter_that_lies_is_found_out(monkeypatch):
    """Shapes and types are held to what torch derives."""
    monkeypatch.setitem(CONVERTERS, "aten.relu.default", lambda x: at.ops.sum(x))
    with pytest.raises(GraphError, match=r"aten.relu.default: converted to shape \(\), torch says \(3,\)"):
        at.from_torch(nn.ReLU(), torch.randn(3))


def test_an_operator_has_one_converter():
    with pytest.raises(GraphError, match=r"operator 'aten.relu.default' has two converters"):
        converts("aten.relu.default")(lambda x: x)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (torch.ones(2, dtype=torch.int32), 2.5),
        (torch.ones(2, dtype=torch.int8), torch.tensor(3)),
        (torch.ones(2, dtype=torch.float16), torch.tensor(3.0)),
        (torch.ones(2, dtype=torch.bool), 1),
        (torch.ones(2, dtype=torch.int64), torch.ones((), dtype=torch.bfloat16)),
        (torch.ones(2, dtype=torch.uint8), torch.ones(2, dtype=torch.int8)),
        (torch.tensor(2), torch.tensor(2.0, dtype=torch.float64)),
    ],
)
def test_mixed_types_are_torchs(a, b):
    nodes = [at.input(tuple(v.shape), str(v.dtype)[6:]) if isinstance(v, torch.Tensor) else v for v in (a, b)]
    assert str(common(*nodes)) == str(torch.result_type(a, b))[6:]


def test_memory_is_shared():
    x = torch.arange(6.0).reshape(2, 3)
    assert to_array(x).ctypes.data == x.data_ptr()
    assert to_tensor(to_array(x)).data_ptr() == x.data_ptr()
    half = x.to(torch.bfloat16)
    assert to_array(half).ctypes.data == half.data_ptr()
    assert torch.equal(to_tensor(to_array(half)), half)
    turned = x.t()
    np.testing.assert_array_equal(to_array(turned), turned.numpy())
    np.testing.assert_array_equal(to_array(torch.conj(x * 1j).imag), -x.numpy())
    with pytest.raises(Unsupported, match=r"layout torch.sparse_coo .* Use .to_dense\(\)"):
        to_array(x.to_sparse())


def test_a_module_without_values_is_refused():
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        fake, x = nn.Linear(3, 2), torch.randn(1, 3)
    with pytest.raises(Unsupported, match=r"of a FakeTensorMode, has no values"):
        at.from_torch(fake, (x,))


def test_what_goes_wrong_at_first():
    """Mistaken calls of a beginner: each error says what to write."""
    module = nn.Linear(3, 2)
    with pytest.raises(Unsupported, match=r"Give example inputs: at\.from_torch\(module, \(x,\)\)"):
        at.from_torch(module)
    with pytest.raises(at.AutotensorError, match=r"is a NumPy array\. Give a tensor: torch\.from_numpy"):
        at.from_torch(module, (np.zeros((1, 3), "float32"),))
    with pytest.raises(at.AutotensorError, match=r"not a torch module\. at\.compile_model\(at\.from_torch"):
        at.compile(module)


def test_a_module_that_was_compiled_is_the_module() -> None:
    graph = at.from_torch(torch.compile(nn.ReLU()), torch.zeros(5))
    assert str(graph) == str(at.from_torch(nn.ReLU(), torch.zeros(5)))

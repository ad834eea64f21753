"""Layers that numerics of 16 bits leave in float32: the layers that a name means, and their float32
results."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import autotensor as at
from autotensor.api.models import plan_model
from autotensor.base.errors import GraphError, TargetError
from autotensor.base.target import Target, parse
from autotensor.graph.build import constant, input, ops
from autotensor.graph.ir import Constant, Graph
from autotensor.graph.rules import optimize
from autotensor.graph.rules.kept_layers import kept_layers

BF16 = "llvm -mcpu=znver4 -threads=1 -numerics=bf16"


def drawn(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def network() -> Graph:
    """A stem, two blocks, and a head without a bias. The second block is named by its bias."""
    x = input((1, 16, 6, 6), name="x")
    y = ops.conv2d(x, constant(drawn(32, 16, 1, 1), "stem.weight"), constant(drawn(32), "stem.bias"))
    y = ops.reshape(ops.transpose(ops.relu(y), (0, 2, 3, 1)), (36, 32))
    y = ops.relu(ops.dense(y, constant(drawn(40, 32), "blocks.0.fc.weight")))
    y = ops.matmul(y, constant(drawn(40, 48), "val_7")) + constant(drawn(48), "blocks.1.fc.bias")
    return Graph((x,), (ops.dense(ops.relu(y), constant(drawn(24, 48), "head.weight")),), "net")


def in_16_bits(keep: str) -> set[str]:
    """The weights of the compiled network that are in bfloat16, by their names."""
    plan = plan_model(network(), f"{BF16} -keep-float32={keep}" if keep else BF16)
    return {c.name for c in plan.graph.constants if str(c.dtype) == "bfloat16"}


ALL = {"stem.weight", "blocks.0.fc.weight", "val_7", "head.weight"}


@pytest.mark.parametrize(
    ("keep", "stay"),
    [
        ("", set()),
        ("head", {"head.weight"}),
        ("head.weight,stem", {"head.weight", "stem.weight"}),
        ("blocks.0", {"blocks.0.fc.weight"}),
        ("blocks.1.fc", {"val_7"}),  # by the name of its bias
        ("blocks.*", {"blocks.0.fc.weight", "val_7"}),
        ("blocks.[0]*", {"blocks.0.fc.weight"}),
    ],
)
def test_a_name_means_a_layer_its_weight_or_bias(keep, stay) -> None:
    assert in_16_bits(keep) == ALL - stay


def test_the_weights_of_a_layer_that_stays_keep_all_their_bits() -> None:
    by_name = {c.name: c.array for c in plan_model(network(), f"{BF16} -keep-float32=head").graph.constants}
    exact = next(c.array for c in network().constants if c.name == "head.weight")
    assert np.array_equal(np.sort(by_name["head.weight"], axis=None), np.sort(exact, axis=None))


def test_a_network_whose_layers_all_stay_is_that_of_float32() -> None:
    x = drawn(1, 16, 6, 6)
    floats = at.compile_model(network(), target="llvm -threads=1")(x)
    kept = at.compile_model(network(), target="llvm -threads=1 -numerics=bf16 -keep-float32=*")(x)
    assert np.array_equal(kept, floats)
    assert not np.array_equal(at.compile_model(network(), target="llvm -threads=1 -numerics=fp16")(x), floats)


def test_a_table_is_a_layer() -> None:
    table = constant(drawn(64, 32), "words")
    graph = Graph(ids := input((4,), "int64", name="ids"), ops.take(table, ids, axis=0))
    assert [n.op_name for n in kept_layers(optimize(graph), ("words",))] == ["take"]
    for keep, exact in ((" -keep-float32=words", True), ("", False)):
        plan = plan_model(graph, f"{BF16}{keep}")
        (c,) = (c for c in plan.graph.constants if isinstance(c, Constant) and c.array.size > 8)
        rounded = table.array.astype(ml_dtypes.bfloat16).astype(np.float32)
        assert np.array_equal(np.asarray(c.array, np.float32), table.array if exact else rounded)


# -- what is refused -------------------------------------------------------------------------------------


def test_a_name_of_no_layer_is_refused_in_one_sentence() -> None:
    with pytest.raises(GraphError) as said:
        plan_model(network(), f"{BF16} -keep-float32=head,heat")
    assert str(said.value) == (
        "keep-float32: 'heat' is the name of no layer of model 'net'. "
        "Layers: stem.weight, blocks.0.fc.weight, val_7, head.weight."
    )


@pytest.mark.parametrize("numerics", ["fast", "strict"])
def test_other_numerics_have_no_exceptions(numerics) -> None:
    with pytest.raises(TargetError, match=rf"given with numerics '{numerics}', which round no layer"):
        parse(f"llvm -numerics={numerics} -keep-float32=head")


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(TargetError, match="has an empty name"):
        parse(f"{BF16} -keep-float32=head,")


def test_a_target_keeps_the_names() -> None:
    target = parse(f"{BF16} -keep-float32='head, blocks.*'")
    assert target.keep_float32 == ("head", "blocks.*")
    assert Target.from_json(target.to_json()) == target


def test_a_file_keeps_the_names(tmp_path) -> None:
    model = at.compile_model(network(), target="llvm -threads=1 -numerics=bf16 -keep-float32=head")
    model.save(tmp_path / "m.atm")
    assert hash(at.load(tmp_path / "m.atm").artifact.target) == hash(model.artifact.target)

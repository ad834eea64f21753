"""Graphs, training steps and ONNX models through pickle and copy; what cannot go says so in one sentence."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import autotensor as at
from autotensor import flow
from autotensor.base.errors import InputError
from autotensor.models import MODELS

RNG = np.random.default_rng(0)


def there_and_back(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize("name", ["mlp", "gru", "resnet101"])
def test_a_graph_of_any_depth_pickles(name: str) -> None:
    graph = MODELS.get(name).build(batch=1, weights=None)
    assert there_and_back(graph) == graph  # equal nodes are one node
    assert copy.deepcopy(graph) is graph


def test_weights_of_a_pickled_graph_cannot_be_changed() -> None:
    graph = at.Graph((x := at.input((2, 2)),), (at.ops.matmul(x, np.eye(2, dtype=np.float32)),))
    weights = [n for n in there_and_back(graph).nodes if hasattr(n, "array")]
    assert weights
    assert not any(w.array.flags.writeable for w in weights)


def test_a_training_step_goes_on_from_where_it_was() -> None:
    x, w = at.input((4, 3)), at.parameter(np.ones((3, 1), np.float32))
    step = at.training_step(at.ops.mean(at.ops.matmul(x, w) * at.ops.matmul(x, w)), [w])
    batch = RNG.standard_normal((4, 3)).astype(np.float32)
    step(batch)
    others = [there_and_back(step), copy.deepcopy(step)]
    losses = [step(batch), step(batch)]
    for other in others:
        assert [other(batch), other(batch)] == losses


@pytest.mark.onnx
def test_an_onnx_model_is_compiled_anew() -> None:
    import onnx.helper as h

    x, y = (h.make_tensor_value_info(n, 1, ["n", 3]) for n in "xy")
    proto = h.make_model(h.make_graph([h.make_node("Relu", ["x"], ["y"])], "g", [x], [y]))
    model = at.OnnxModel(proto)
    given = RNG.standard_normal((2, 3)).astype(np.float32)
    want = model(given)
    for other in (there_and_back(model), copy.deepcopy(model)):
        assert (other(given)[0] == want[0]).all()
        assert other.name == model.name


@pytest.mark.onnx
def test_an_onnx_model_over_an_open_log_says_why_not() -> None:
    import onnx.helper as h

    from tuning_db import connect

    x, y = (h.make_tensor_value_info(n, 1, [3]) for n in "xy")
    proto = h.make_model(h.make_graph([h.make_node("Relu", ["x"], ["y"])], "g", [x], [y]))
    with connect(":memory:") as store, pytest.raises(InputError, match=r"log that is open here\. Give db="):
        pickle.dumps(at.OnnxModel(proto, db=store))


def test_a_session_says_why_not() -> None:
    for way in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(InputError, match=r"^a session cannot be pickled or copied: .* Saver's file\.$"):
            way(flow.Session())

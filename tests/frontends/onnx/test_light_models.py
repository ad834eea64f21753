"""The nine whole networks of the onnx package: as they are, and with random weights against onnxruntime.

As they come, their weights are constants, so that they test structure only.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from onnx.backend.test.runner import Runner

import autotensor.integrations.onnx_backend as backend

LIGHT = Path(os.path.dirname(onnx.__file__)) / "backend" / "test" / "data" / "light"
NAMES = (
    *("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50"),
    *("shufflenet", "squeezenet", "vgg19", "zfnet512"),
)


def inputs_of(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    given = {i.name for i in model.graph.initializer}
    return [x for x in model.graph.input if x.name not in given]


def with_random_weights(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """Every ConstantOfShape of the model as an initializer that keeps activations near unit scale."""
    rng = np.random.default_rng(seed)
    shapes = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    users = {name: n for n in model.graph.node for name in n.input}
    places = {name: k for n in model.graph.node for k, name in enumerate(n.input)}
    kept = [n for n in model.graph.node if n.op_type != "ConstantOfShape"]
    for node in model.graph.node:
        if node.op_type != "ConstantOfShape":
            continue
        name, shape = node.output[0], tuple(int(v) for v in shapes[node.input[0]])
        user, place = users[name].op_type, places[name]
        if user == "BatchNormalization":
            values = rng.uniform(0.5, 1.5, shape) if place in (1, 4) else rng.normal(0, 0.1, shape)
        elif len(shape) > 1:
            values = rng.normal(0, np.sqrt(2 / np.prod(shape[1:])), shape)
        else:
            values = rng.normal(0, 0.1, shape)
        model.graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), name))
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return model


@pytest.mark.onnx
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", NAMES)
def test_light_models(name: str):
    model = onnx.load(LIGHT / f"light_{name}.onnx")
    x = Runner.generate_dummy_data(inputs_of(model)[0], seed=0, name=name, random=False)
    wanted = numpy_helper.to_array(onnx.load_tensor(LIGHT / f"light_{name}_output_0.pb"))
    Runner.assert_similar_outputs([wanted], backend.run_model(model, [x]), 1e-3, 1e-7)


@pytest.mark.onnx
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", NAMES)
def test_light_models_with_random_weights(name: str):
    model = with_random_weights(onnx.load(LIGHT / f"light_{name}.onnx"), seed=7)
    value = inputs_of(model)[0]
    shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, {value.name: x})[0]
    (found,) = backend.run_model(model, [x])
    assert np.ptp(wanted) > 0  # the weights are not all alike
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())

"""Every fused group of a model against the operators' NumPy references, not only the model's last output."""

from __future__ import annotations

import numpy as np
import pytest

from autotensor.api.models import default_traces, plan_model
from autotensor.compiler import compile_trace
from autotensor.graph.evaluate import evaluate_node
from autotensor.graph.ir import Apply, Constant, Input
from autotensor.models import bert, dcgan, gpt2, mlp, mobilenet, resnet, resnet3d, small_cnn
from autotensor.models.transformer import Size
from autotensor.runtime.module import Module

TINY = Size(layers=1, hidden=64, heads=2, vocabulary=50, positions=32)
MODELS = {
    "resnet18": lambda: resnet.build(18, image=64),
    "resnet50": lambda: resnet.build(50, image=64),
    "mlp": mlp.build,
    "small_cnn": small_cnn.build,
    "mobilenet_v2": lambda: mobilenet.build(image=64),
    "r3d_18": lambda: resnet3d.build(frames=4, image=32),
    "dcgan": lambda: dcgan.build(width=16),
    "bert_base": lambda: bert.build(tokens=31, size=TINY),
    "gpt2": lambda: gpt2.build(tokens=32, size=TINY),
}


def node_values(graph, seed):
    """The value of every node of the graph, by the references."""
    rng = np.random.default_rng(seed)
    values = {}
    for node in graph.nodes:
        if isinstance(node, Constant):
            values[node] = node.array
        elif isinstance(node, Input):
            values[node] = rng.standard_normal(node.shape).astype(node.dtype.numpy)
        elif isinstance(node, Apply):
            values[node] = evaluate_node(node, [values[x] for x in node.inputs])
    return values


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.sample(2)
def test_every_group_equals_its_reference(name):
    plan = plan_model(MODELS[name]())
    values = node_values(plan.graph, seed=3)
    traces = default_traces(plan)
    modules = {
        t.workload.key: Module(compile_trace(t.workload.dag, traces[t.workload.key], plan.target))
        for t in plan.tasks
    }
    for group in plan.groups:
        dag = group.workload.dag
        given = {
            arg: np.ascontiguousarray(values[node]).reshape(buffer.shape)
            for arg, node in zip(group.arg_names, group.inputs, strict=False)
            for buffer in dag.inputs
            if buffer.name == arg
        }
        out = {b.name: np.full(b.shape, np.nan, b.dtype.numpy) for b in dag.outputs}
        constants = {n: a for n, a in given.items() if n in dag.constants}
        f = modules[group.workload.key]
        f = f.bind(**constants) if constants else f
        f(*({**given, **out}[n] for n in dag.args if n not in constants))
        for arg, node in zip(group.arg_names[len(group.inputs) :], group.outputs, strict=True):
            expected = values[node].reshape(out[arg].shape)
            error = np.abs(out[arg] - expected).max() / np.abs(expected).max()
            assert error <= 2e-5, f"{group.name}: {error:.1e}"

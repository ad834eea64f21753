"""Steps of training as jobs: names, our losses against the reference's, the table."""

from __future__ import annotations

import numpy as np
import pytest
import training
from jobs.training_job import FIRST, NAMES, TrainingJob, eager
from peers import Spec

from autotensor.autodiff import gradients
from autotensor.graph.evaluate import evaluate
from autotensor.graph.ir import Graph, Input, Parameter, topological


def test_names():
    job = TrainingJob.named("cnn@b32@adam")
    assert (job.model, job.batch, job.optimizer) == ("cnn", 32, "adam")
    assert {TrainingJob.named(n).optimizer for n in NAMES} == {"sgd", "adam"}
    for wrong in ("rnn@b32", "cnn", "cnn@32x", "cnn@b32@newton"):
        with pytest.raises(ValueError, match="no step of training"):
            TrainingJob.named(wrong)


@pytest.mark.parametrize("name", ["mlp@b4", "cnn@b2"])
def test_our_steps_are_the_formula(name):
    """The first losses of gradient descent, by the references."""
    job = TrainingJob.named(name)
    _, result = job.ours(Spec("ours", 1))
    loss = job.loss()
    inputs = [n for n in topological([loss]) if isinstance(n, Input)]
    weights = [n for n in inputs if isinstance(n, Parameter)]
    graph = Graph(tuple(inputs), (loss, *gradients(loss, weights)), "step")
    x, t = job.data()
    values = {n.name: n.start.array.copy() for n in weights} | {"x": x, "t": t}
    want = []
    for _ in range(FIRST):
        first, *slopes = evaluate(graph, *(values[n.name] for n in inputs))
        want.append(float(first))
        for w, g in zip(weights, slopes, strict=True):
            values[w.name] = values[w.name] - job.rate * g
    np.testing.assert_allclose(result(), want, rtol=1e-5)


@pytest.mark.torch
@pytest.mark.parametrize("name", NAMES)
def test_torch_agrees(name):
    pytest.importorskip("torch")
    job = TrainingJob.named(name)
    ours, theirs = job.ours(Spec("ours", 1)), eager(job, Spec("eager-training", 1))
    np.testing.assert_allclose(ours[1](), theirs[1](), rtol=1e-4)


def test_the_table():
    units = [
        {"default": {"median": 1e-4}, "torch": {"median": 3e-4}, "inductor": {"failed": "no compiler"}},
        {"default": {"median": 2e-4}, "torch": {"median": 4e-4}, "inductor": {"failed": "no compiler"}},
    ]
    text = training.table({"mlp@b64": units[:1]}, ["default", "torch", "inductor"])
    assert text.splitlines()[0] == "| step | default µs | torch µs | inductor µs | torch × | inductor × |"
    assert text.splitlines()[2] == "| mlp@b64 | 100 | 300 | no compiler | 3.00 | |"
    both = training.table({"mlp@b64": units}, ["default", "torch"])
    assert "| mlp@b64 | 200 | 400 | 2.00 |" in both
